# A function that hands each run over to a Cloud Run job, and the job.

variable "project_id" { type = string }
variable "region" { type = string }
variable "schedule" { type = string }
variable "image" {
  description = "The job's container, made by cloudbuild.yaml."
  type        = string
}
variable "task_timeout_seconds" {
  description = "How long one attempt at the work may take, up to 168 hours."
  type        = number
  default     = 14400
}
variable "task_max_retries" {
  description = "How often Cloud Run starts it again."
  type        = number
  default     = 3
}

module "job" {
  source = "../../terraform"

  name        = "long-job"
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
    task_count = 1 # tasks would have one owner, and no way to share its run
    template {
      service_account = google_service_account.work.email
      timeout         = "${var.task_timeout_seconds}s"
      max_retries     = var.task_max_retries
      containers {
        image = var.image
        env {
          name  = "TASK_TIMEOUT_SECONDS"
          value = var.task_timeout_seconds
        }
        env {
          name  = "TASK_MAX_RETRIES"
          value = var.task_max_retries
        }
        env {
          name  = "DEDUP_STORE"
          value = "firestore://${var.project_id}/${module.job.database}"
        }
      }
    }
  }
}

resource "google_service_account" "work" {
  project    = var.project_id
  account_id = "long-job-work"
}

# The job completes its run in the function's database.
resource "google_project_iam_member" "work_datastore_user" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.work.member

  condition {
    title      = "long-job database only"
    expression = "resource.name == \"projects/${var.project_id}/databases/${module.job.database}\""
  }
}

# roles/run.invoker may not override RUN_ID and ATTEMPT_ID.
resource "google_project_iam_custom_role" "job_starter" {
  project     = var.project_id
  role_id     = "longJobStarter"
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
