# A function that runs the trigger once for each run, and the trigger.

variable "project_id" { type = string }
variable "region" { type = string }
variable "schedule" { type = string }
variable "repository" {
  description = "The connected repository, projects/PROJECT/locations/LOCATION/connections/CONNECTION/repositories/REPOSITORY."
  type        = string
}

module "job" {
  source = "../../terraform"

  name       = "run-build"
  project_id = var.project_id
  region     = var.region
  schedule   = var.schedule
  source_dir = abspath(path.module)
  environment = {
    TRIGGER = "projects/${var.project_id}/locations/${var.region}/triggers/${google_cloudbuild_trigger.nightly.trigger_id}"
  }
}

resource "google_cloudbuild_trigger" "nightly" {
  project         = var.project_id
  location        = var.region
  name            = "nightly"
  service_account = google_service_account.build.id
  substitutions   = { _RUN_ID = "by hand" } # declared, so that it may be overridden

  source_to_build {
    repository = var.repository
    ref        = "refs/heads/main"
    repo_type  = "GITHUB"
  }
  build {
    step {
      name = "gcr.io/cloud-builders/curl"
      args = ["--request", "POST", "--header", "Idempotency-Key: $_RUN_ID", "https://example.com/publish"]
    }
    options {
      logging = "CLOUD_LOGGING_ONLY"
    }
  }
}

resource "google_service_account" "build" {
  project    = var.project_id
  account_id = "nightly-build"
}

resource "google_project_iam_member" "build_log_writer" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.build.member
}

# Cloud Build takes no policy on one trigger, so this is on all of the project's.
resource "google_project_iam_custom_role" "build_starter" {
  project     = var.project_id
  role_id     = "scheduledBuildStarter"
  title       = "Runs a trigger, and looks whether it has"
  permissions = ["cloudbuild.builds.create", "cloudbuild.builds.list"]
}

resource "google_project_iam_member" "build_starter" {
  project = var.project_id
  role    = google_project_iam_custom_role.build_starter.id
  member  = "serviceAccount:${module.job.service_accounts.runtime}"
}

resource "google_service_account_iam_member" "build_user" {
  service_account_id = google_service_account.build.name
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${module.job.service_accounts.runtime}"
}
