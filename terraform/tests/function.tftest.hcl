# The function, its images, and the APIs that all of it needs.

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

run "three_values_make_a_function" {
  command = plan

  assert {
    condition     = google_cloudfunctions2_function.job.name == "scheduled-job" && google_cloudfunctions2_function.job.project == "my-project" && google_cloudfunctions2_function.job.location == "us-central1"
    error_message = "The function has the name, the project and the region."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].runtime == "python313"
    error_message = "The function runs on Python 3.13."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].entry_point == "handle_scheduled_job"
    error_message = "The entry point is main.py's."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].service_account == "projects/my-project/serviceAccounts/build@my-project.iam.gserviceaccount.com"
    error_message = "The build runs as an account of its own, by its whole resource name."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].docker_repository == "projects/my-project/locations/us-central1/repositories/scheduled-job-images"
    error_message = "The images go to a repository of their own."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].source[0].storage_source[0].bucket == google_storage_bucket.source.name
    error_message = "The source is in the source's bucket."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].source[0].storage_source[0].object == google_storage_bucket_object.source.name
    error_message = "The source is the archive of this plan."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].service_account_email == "runtime@my-project.iam.gserviceaccount.com"
    error_message = "The function runs as an account of its own."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].timeout_seconds == 120
    error_message = "An attempt may take 120 s."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].ingress_settings == "ALLOW_INTERNAL_ONLY"
    error_message = "The function is only to be reached from inside."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].available_cpu == "1" && google_cloudfunctions2_function.job.service_config[0].available_memory == "512Mi"
    error_message = "An instance has one CPU, said outright, and 512 Mi."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].max_instance_request_concurrency == 8
    error_message = "An instance takes 8 requests at once, so that a retry is answered while the job runs."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].min_instance_count == 0 && google_cloudfunctions2_function.job.service_config[0].max_instance_count == 10
    error_message = "There are 0 to 10 instances."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].all_traffic_on_latest_revision == true
    error_message = "The newest revision gets all requests."
  }
  assert {
    condition = google_cloudfunctions2_function.job.service_config[0].environment_variables == tomap({
      DEDUP_STORE             = "firestore://my-project/scheduled-job-runs-beef?collection=scheduler_runs"
      DEDUP_LEASE_SECONDS     = "120"
      DEDUP_RENEW             = "true"
      DEDUP_TIMEOUT_SECONDS   = "120"
      DEDUP_RETENTION_SECONDS = "86400"
      DEDUP_SCOPE             = "header:X-Job-Project,header:X-Job-Location"
      DEDUP_MANUAL_RUNS       = "share"
      DEDUP_LOG_LEVEL         = "INFO"
      DEDUP_AUTH              = "iam"
      DEDUP_CALLERS           = "scheduled-job-scheduler@my-project.iam.gserviceaccount.com"
      GOOGLE_CLOUD_PROJECT    = "my-project"
      THREADS                 = "8"
    })
    error_message = "The environment is what the variables say, and nothing else."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].environment_variables == tomap({ SOURCE_DATE_EPOCH = "315532801" })
    error_message = "Bytecode is compiled for good, once, in the build."
  }
  assert {
    condition     = length(google_cloudfunctions2_function.job.service_config[0].secret_environment_variables) == 0
    error_message = "There is no secret."
  }

  assert {
    condition     = google_artifact_registry_repository.images.repository_id == "scheduled-job-images" && google_artifact_registry_repository.images.location == "us-central1" && google_artifact_registry_repository.images.project == "my-project"
    error_message = "The repository of the images is named after the function, and beside it."
  }
  assert {
    condition     = google_artifact_registry_repository.images.format == "DOCKER"
    error_message = "The repository holds images."
  }
  assert {
    condition     = one([for policy in google_artifact_registry_repository.images.cleanup_policies : policy.most_recent_versions[0].keep_count if policy.action == "KEEP"]) == 5
    error_message = "The last five images are kept."
  }
  assert {
    condition     = one([for policy in google_artifact_registry_repository.images.cleanup_policies : "${policy.condition[0].tag_state} ${policy.condition[0].older_than}" if policy.action == "DELETE"]) == "ANY 2592000s"
    error_message = "Older images go after thirty days."
  }

  assert {
    condition     = google_service_account.runtime.account_id == "scheduled-job-runtime" && google_service_account.scheduler.account_id == "scheduled-job-scheduler" && google_service_account.build.account_id == "scheduled-job-build"
    error_message = "The accounts are named after the function."
  }
  assert {
    condition     = alltrue([for account in [google_service_account.runtime, google_service_account.scheduler, google_service_account.build] : account.project == "my-project"])
    error_message = "The accounts are in the project: Cloud Scheduler takes none of another."
  }
  assert {
    condition     = output.service_accounts == { runtime = "runtime@my-project.iam.gserviceaccount.com", scheduler = "scheduler@my-project.iam.gserviceaccount.com", build = "build@my-project.iam.gserviceaccount.com" }
    error_message = "The outputs name the accounts."
  }

  assert {
    condition = keys(google_project_service.api) == [
      "artifactregistry.googleapis.com", "cloudbuild.googleapis.com", "cloudfunctions.googleapis.com", "cloudresourcemanager.googleapis.com",
      "cloudscheduler.googleapis.com", "firestore.googleapis.com", "iam.googleapis.com", "logging.googleapis.com", "monitoring.googleapis.com",
      "run.googleapis.com", "storage.googleapis.com",
    ]
    error_message = "The APIs are enabled that are used, and no others."
  }
  assert {
    condition     = alltrue([for name, api in google_project_service.api : api.service == name && api.project == "my-project"])
    error_message = "The APIs are enabled in the project."
  }
  assert {
    condition     = alltrue([for api in google_project_service.api : api.disable_on_destroy == false])
    error_message = "No API is switched off under others in the project."
  }
  assert {
    condition     = time_sleep.build_roles.create_duration == "60s" && time_sleep.build_roles.triggers == tomap({ account = "build@my-project.iam.gserviceaccount.com" })
    error_message = "The first build waits until its account's roles are seen, and so does that of another account."
  }
}

run "what_is_set_is_what_is_deployed" {
  command = plan

  variables {
    name                         = "nightly-export"
    region                       = "europe-west1"
    runtime                      = "python312"
    timeout_seconds              = 300
    lease_seconds                = 400
    renew_lease                  = false
    retention_seconds            = 604800
    scope                        = ""
    manual_runs                  = "separate"
    log_level                    = "DEBUG"
    concurrency                  = 1
    cpu                          = 0.5
    memory                       = "1Gi"
    min_instances                = 1
    max_instances                = 3
    ingress                      = "ALLOW_ALL"
    labels                       = { team = "exports" }
    environment                  = { BUCKET = "exports" }
    callers                      = ["operator@example.com"]
    secret_environment_variables = { API_KEY = { secret = "api-key", version = "7" }, PASSWORD = { secret = "password", project_id = "vault-project" } }
  }

  assert {
    condition = google_cloudfunctions2_function.job.service_config[0].environment_variables == tomap({
      BUCKET                  = "exports"
      DEDUP_STORE             = "firestore://my-project/nightly-export-runs-beef?collection=scheduler_runs"
      DEDUP_LEASE_SECONDS     = "400"
      DEDUP_RENEW             = "false"
      DEDUP_TIMEOUT_SECONDS   = "300"
      DEDUP_RETENTION_SECONDS = "604800"
      DEDUP_MANUAL_RUNS       = "separate"
      DEDUP_LOG_LEVEL         = "DEBUG"
      DEDUP_AUTH              = "iam"
      DEDUP_CALLERS           = "nightly-export-scheduler@my-project.iam.gserviceaccount.com,operator@example.com"
      GOOGLE_CLOUD_PROJECT    = "my-project"
      THREADS                 = "1"
    })
    error_message = "The environment is what the variables say; an empty scope isn't sent."
  }
  assert {
    condition = toset([for secret in google_cloudfunctions2_function.job.service_config[0].secret_environment_variables : "${secret.key} = ${secret.project_id}/${secret.secret}/${secret.version}"]) == toset([
      "API_KEY = my-project/api-key/7", "PASSWORD = vault-project/password/latest"
    ])
    error_message = "The secrets come from Secret Manager, of the project that was said, else of this one."
  }
  assert {
    condition     = contains(keys(google_project_service.api), "secretmanager.googleapis.com")
    error_message = "With secrets, Secret Manager's API is enabled."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.build_config[0].runtime == "python312"
    error_message = "runtime is the function's."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].timeout_seconds == 300
    error_message = "timeout_seconds is the function's."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].available_cpu == "0.5" && google_cloudfunctions2_function.job.service_config[0].available_memory == "1Gi"
    error_message = "cpu and memory are the instances'."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].max_instance_request_concurrency == 1
    error_message = "concurrency is the instances'."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].min_instance_count == 1 && google_cloudfunctions2_function.job.service_config[0].max_instance_count == 3
    error_message = "min_instances and max_instances are the function's."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].ingress_settings == "ALLOW_ALL"
    error_message = "ingress is the function's."
  }
  assert {
    condition     = alltrue([for labels in [google_cloudfunctions2_function.job.labels, google_artifact_registry_repository.images.labels, google_storage_bucket.source.labels] : labels == tomap({ team = "exports" })])
    error_message = "What can carry labels carries them."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.location == "europe-west1" && google_artifact_registry_repository.images.location == "europe-west1" && google_storage_bucket.source.location == "europe-west1"
    error_message = "Function, images and source are in one region."
  }
}
