# The service, its Cloud Scheduler job and their accounts. ../../terraform makes a function, so it isn't used here; the timings are its own.

variable "project_id" { type = string }
variable "region" { type = string }
variable "schedule" { type = string }
variable "image" {
  description = "The container, made by cloudbuild.yaml."
  type        = string
}
variable "database" {
  description = "The Firestore database of the runs."
  type        = string
}
variable "timeout_seconds" {
  description = "How long one attempt at a run may take. The other timings follow from it."
  type        = number
  default     = 120

  validation {
    condition     = var.timeout_seconds >= 15 && var.timeout_seconds <= 1800
    error_message = "timeout_seconds is 15 to 1800: Cloud Scheduler waits for an answer for at most 30 minutes."
  }
}

locals {
  lease = var.timeout_seconds
  # Five retries, each wait twice the one before: 15 waits to the fourth, 31 to the fifth.
  min_backoff = ceil(max(local.lease / 15 + 2, (var.timeout_seconds + local.lease + 11) / 31))
  environment = {
    DEDUP_STORE           = "firestore://${var.project_id}/${var.database}"
    DEDUP_SCOPE           = "header:X-Job-Project,header:X-Job-Location"
    DEDUP_TIMEOUT_SECONDS = var.timeout_seconds
    DEDUP_LEASE_SECONDS   = local.lease
    DEDUP_CALLERS         = google_service_account.scheduler.email
    GOOGLE_CLOUD_PROJECT  = var.project_id
    THREADS               = 8
  }
}

resource "google_cloud_run_v2_service" "job" {
  project             = var.project_id
  location            = var.region
  name                = "scheduled-job"
  ingress             = "INGRESS_TRAFFIC_INTERNAL_ONLY"
  deletion_protection = false

  template {
    service_account                  = google_service_account.runtime.email
    timeout                          = "${var.timeout_seconds}s"
    max_instance_request_concurrency = 8
    containers {
      image = var.image
      resources {
        limits = { cpu = "1", memory = "512Mi" }
      }
      dynamic "env" {
        for_each = local.environment
        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }
}

resource "google_service_account" "runtime" {
  project    = var.project_id
  account_id = "scheduled-job-runtime"
}

resource "google_service_account" "scheduler" {
  project    = var.project_id
  account_id = "scheduled-job-scheduler"
}

resource "google_cloud_run_v2_service_iam_member" "scheduler_invoker" {
  project  = var.project_id
  location = google_cloud_run_v2_service.job.location
  name     = google_cloud_run_v2_service.job.name
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_project_iam_member" "runtime_datastore_user" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.runtime.member

  condition {
    title      = "scheduled-job database only"
    expression = "resource.name == \"projects/${var.project_id}/databases/${var.database}\""
  }
}

resource "google_cloud_scheduler_job" "nightly" {
  project          = var.project_id
  region           = var.region
  name             = "nightly"
  schedule         = var.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "${var.timeout_seconds}s"

  retry_config {
    retry_count          = 5
    min_backoff_duration = "${local.min_backoff}s"
    max_backoff_duration = "3600s"
    max_doublings        = 5
  }

  http_target {
    http_method = "POST"
    uri         = google_cloud_run_v2_service.job.uri
    headers     = { "X-Job-Project" = var.project_id, "X-Job-Location" = var.region }
    oidc_token {
      service_account_email = google_service_account.scheduler.email
      audience              = google_cloud_run_v2_service.job.uri
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.scheduler_invoker]
}
