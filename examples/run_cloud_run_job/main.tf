# A function that starts the Cloud Run job once for each run, and the job.

variable "project_id" { type = string }
variable "region" { type = string }
variable "schedule" { type = string }
variable "image" {
  description = "The job's container."
  type        = string
}

module "job" {
  source = "../../terraform"

  name        = "run-job"
  project_id  = var.project_id
  region      = var.region
  schedule    = var.schedule
  source_dir  = abspath(path.module)
  environment = { JOB = google_cloud_run_v2_job.nightly.id }
}

resource "google_cloud_run_v2_job" "nightly" {
  project             = var.project_id
  location            = var.region
  name                = "nightly"
  deletion_protection = false

  template {
    template {
      containers {
        image = var.image
      }
    }
  }
}

# roles/run.invoker may not override RUN_ID.
resource "google_project_iam_custom_role" "job_starter" {
  project     = var.project_id
  role_id     = "scheduledJobStarter"
  title       = "Starts a Cloud Run job, and looks whether it has"
  permissions = ["run.jobs.run", "run.jobs.runWithOverrides", "run.executions.list", "run.executions.get"]
}

resource "google_cloud_run_v2_job_iam_member" "starter" {
  project  = var.project_id
  location = google_cloud_run_v2_job.nightly.location
  name     = google_cloud_run_v2_job.nightly.name
  role     = google_project_iam_custom_role.job_starter.id
  member   = "serviceAccount:${module.job.service_accounts.runtime}"
}
