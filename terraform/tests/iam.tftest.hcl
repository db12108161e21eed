# Who may do what. That there is no binding beside these is shown by tests/template/terraform/test_iam.py, which compares the whole set.

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

run "each_account_has_the_roles_that_it_needs" {
  command = plan

  variables {
    secret_environment_variables = { API_KEY = { secret = "api-key" }, PASSWORD = { secret = "password", project_id = "vault-project" } }
  }

  assert {
    condition     = google_cloud_run_v2_service_iam_member.scheduler_invoker.role == "roles/run.invoker" && google_cloud_run_v2_service_iam_member.scheduler_invoker.member == "serviceAccount:scheduler@my-project.iam.gserviceaccount.com"
    error_message = "The Scheduler's account, and nobody else, may call the service."
  }
  assert {
    condition     = google_cloud_run_v2_service_iam_member.scheduler_invoker.name == "scheduled-job" && google_cloud_run_v2_service_iam_member.scheduler_invoker.location == "us-central1" && google_cloud_run_v2_service_iam_member.scheduler_invoker.project == "my-project"
    error_message = "It is the function's service that the Scheduler's account may call."
  }

  assert {
    condition     = google_project_iam_member.runtime_datastore_user[0].role == "roles/datastore.user" && google_project_iam_member.runtime_datastore_user[0].member == "serviceAccount:runtime@my-project.iam.gserviceaccount.com" && google_project_iam_member.runtime_datastore_user[0].project == "my-project"
    error_message = "The function's account may read and write documents."
  }
  assert {
    condition     = google_project_iam_member.runtime_datastore_user[0].condition[0].expression == "resource.name == \"projects/my-project/databases/scheduled-job-runs-beef\""
    error_message = "The function's account gets at the database of the runs alone."
  }
  assert {
    condition     = toset([for grant in google_project_iam_member.runtime_telemetry : grant.role]) == toset(["roles/cloudtrace.agent", "roles/logging.logWriter", "roles/monitoring.metricWriter"])
    error_message = "The function's account writes log, trace and metrics."
  }
  assert {
    condition     = alltrue([for grant in google_project_iam_member.runtime_telemetry : grant.member == "serviceAccount:runtime@my-project.iam.gserviceaccount.com" && grant.project == "my-project"])
    error_message = "It is the function's account that writes log, trace and metrics."
  }
  assert {
    condition = { for name, grant in google_secret_manager_secret_iam_member.runtime_accessor : name => "${grant.project}/${grant.secret_id}" } == {
      API_KEY  = "my-project/api-key"
      PASSWORD = "vault-project/password"
    }
    error_message = "The function's account reads its own secrets."
  }
  assert {
    condition     = alltrue([for grant in google_secret_manager_secret_iam_member.runtime_accessor : grant.role == "roles/secretmanager.secretAccessor" && grant.member == "serviceAccount:runtime@my-project.iam.gserviceaccount.com"])
    error_message = "The function's account reads secrets, and changes none."
  }

  assert {
    condition     = google_project_iam_member.build_log_writer.role == "roles/logging.logWriter" && google_project_iam_member.build_log_writer.member == "serviceAccount:build@my-project.iam.gserviceaccount.com" && google_project_iam_member.build_log_writer.project == "my-project"
    error_message = "The build's account writes its log."
  }
  assert {
    condition     = google_project_iam_member.build_source_viewer.role == "roles/storage.objectViewer" && google_project_iam_member.build_source_viewer.member == "serviceAccount:build@my-project.iam.gserviceaccount.com" && google_project_iam_member.build_source_viewer.project == "my-project"
    error_message = "The build's account reads objects."
  }
  assert {
    condition     = google_project_iam_member.build_source_viewer.condition[0].expression == "resource.name == \"projects/_/buckets/my-project-scheduled-job-source\" || resource.name.startsWith(\"projects/_/buckets/my-project-scheduled-job-source/\") || resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-\")"
    error_message = "The build's account reads the function's source alone, here and in Cloud Functions' copy."
  }
  assert {
    condition     = google_artifact_registry_repository_iam_member.build_writer.role == "roles/artifactregistry.writer" && google_artifact_registry_repository_iam_member.build_writer.member == "serviceAccount:build@my-project.iam.gserviceaccount.com"
    error_message = "The build's account writes images."
  }
  assert {
    condition     = google_artifact_registry_repository_iam_member.build_writer.repository == "scheduled-job-images" && google_artifact_registry_repository_iam_member.build_writer.location == "us-central1" && google_artifact_registry_repository_iam_member.build_writer.project == "my-project"
    error_message = "The build's account writes to the repository of this function's images alone."
  }
}
