# The Cloud Scheduler jobs: what they call, as whom, and what they say.

mock_provider "google" {
  source          = "./tests/mocks/google"
  override_during = plan
}
mock_provider "random" {
  source          = "./tests/mocks/random"
  override_during = plan
}
mock_provider "time" {}

variables {
  project_id = "my-project"
  region     = "us-central1"
  schedule   = "30 2 * * *"
  source_dir = "./tests/another_job"
}

run "three_values_make_a_job" {
  command = plan

  assert {
    condition     = keys(google_cloud_scheduler_job.job) == ["scheduled-job"]
    error_message = "There is one job, of the deployment's name."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].name == "scheduled-job"
    error_message = "The job's id is the name."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].project == "my-project"
    error_message = "The job is in the project."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].region == "us-central1"
    error_message = "The job is in the function's region."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].schedule == "30 2 * * *"
    error_message = "The job has the schedule."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].time_zone == "Etc/UTC"
    error_message = "The schedule is meant in UTC, and says so."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].paused == false
    error_message = "The job runs."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].http_method == "POST"
    error_message = "The job posts."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].uri == "https://scheduled-job-abc123-uc.a.run.app"
    error_message = "The target is the URI of the function's service, which counts as internal."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].oidc_token[0].audience == "https://scheduled-job-abc123-uc.a.run.app"
    error_message = "The token is for the URI of the function's service, not for its cloudfunctions.net URL."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].oidc_token[0].audience == google_cloudfunctions2_function.job.service_config[0].uri
    error_message = "Audience and service are the same."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].oidc_token[0].service_account_email == "scheduler@my-project.iam.gserviceaccount.com"
    error_message = "The job calls as the Scheduler's own account."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].headers == tomap({ "X-Job-Project" = "my-project", "X-Job-Location" = "us-central1" })
    error_message = "The headers say project and location, and nothing that Cloud Scheduler would change."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].http_target[0].body == null
    error_message = "There is no body."
  }
  assert {
    condition     = output.job_name == "scheduled-job" && output.job_names == tolist(["scheduled-job"])
    error_message = "The outputs name the job."
  }
  assert {
    condition     = output.function_uri == "https://scheduled-job-abc123-uc.a.run.app"
    error_message = "The output function_uri is the URI of the service."
  }
  assert {
    condition     = output.force_run_command == "gcloud scheduler jobs run scheduled-job --project=my-project --location=us-central1"
    error_message = "The output force_run_command forces the job."
  }
  assert {
    condition     = output.logs_command == "gcloud logging read 'resource.type=\"cloud_run_revision\" resource.labels.service_name=\"scheduled-job\" jsonPayload.outcome:*' --project=my-project --limit=20 --format='value(timestamp,jsonPayload.message)'"
    error_message = "The output logs_command reads the function's lines."
  }
}

run "more_jobs_call_the_same_function" {
  command = plan

  variables {
    name             = "reports"
    scheduler_region = "europe-west1"
    time_zone        = "Europe/Zurich"
    paused           = true
    body             = jsonencode({ table = "orders" })
    jobs = {
      weekly-report = { schedule = "0 7 * * 1", time_zone = "Asia/Tokyo", body = "as text" }
      hourly-report = { schedule = "5 * * * *", paused = false }
    }
  }

  assert {
    condition     = keys(google_cloud_scheduler_job.job) == ["hourly-report", "reports", "weekly-report"]
    error_message = "There is a job for each of jobs, beside the one at the top."
  }
  assert {
    condition     = { for id, job in google_cloud_scheduler_job.job : id => job.schedule } == { hourly-report = "5 * * * *", reports = "30 2 * * *", weekly-report = "0 7 * * 1" }
    error_message = "Each job has its own schedule."
  }
  assert {
    condition     = { for id, job in google_cloud_scheduler_job.job : id => job.time_zone } == { hourly-report = "Europe/Zurich", reports = "Europe/Zurich", weekly-report = "Asia/Tokyo" }
    error_message = "A job has its own time zone, else the one at the top."
  }
  assert {
    condition     = { for id, job in google_cloud_scheduler_job.job : id => job.paused } == { hourly-report = false, reports = true, weekly-report = true }
    error_message = "All jobs are paused that don't say otherwise."
  }
  assert {
    condition     = base64decode(google_cloud_scheduler_job.job["reports"].http_target[0].body) == "{\"table\":\"orders\"}"
    error_message = "The body is sent as it was given."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["reports"].http_target[0].headers["Content-Type"] == "application/json"
    error_message = "A body that is JSON says so."
  }
  assert {
    condition     = base64decode(google_cloud_scheduler_job.job["weekly-report"].http_target[0].body) == "as text" && google_cloud_scheduler_job.job["weekly-report"].http_target[0].headers["Content-Type"] == "text/plain; charset=utf-8"
    error_message = "A body that isn't JSON is sent as text."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["hourly-report"].http_target[0].body == null
    error_message = "A job has a body of its own, or none."
  }
  assert {
    condition     = alltrue([for job in google_cloud_scheduler_job.job : job.region == "europe-west1"])
    error_message = "The jobs are in the Scheduler's region."
  }
  assert {
    condition     = alltrue([for job in google_cloud_scheduler_job.job : job.http_target[0].headers["X-Job-Location"] == "europe-west1"])
    error_message = "The location that is sent is the jobs', not the function's."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.location == "us-central1"
    error_message = "The function stays in its own region."
  }
  assert {
    condition     = output.job_name == "reports" && output.job_names == tolist(["hourly-report", "reports", "weekly-report"])
    error_message = "The outputs name all jobs."
  }
  assert {
    condition     = output.force_run_command == "gcloud scheduler jobs run reports --project=my-project --location=europe-west1"
    error_message = "The output force_run_command looks where the jobs are."
  }
}
