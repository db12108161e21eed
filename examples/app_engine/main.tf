# The Cloud Scheduler job of the App Engine application that `gcloud app deploy` has made, and its account's rights. ../../terraform makes a
# function, so it isn't used here; the retries are derived as there.

variable "project_id" { type = string }
variable "schedule" { type = string }
variable "region" {
  description = "Cloud Scheduler's name of the application's region: us-central1 for us-central, europe-west1 for europe-west, else the same."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is as Cloud Scheduler calls it, such as us-central1 where App Engine says us-central."
  }
}
variable "timeout_seconds" {
  description = "How long one attempt may take, as DEDUP_TIMEOUT_SECONDS in app.yaml."
  type        = number
  default     = 3600

  validation {
    condition     = var.timeout_seconds >= 15 && var.timeout_seconds <= 86415
    error_message = "timeout_seconds is 15 to 86415: an App Engine target's deadline is 15 s to 24 h 15 s."
  }
}
variable "lease_seconds" {
  description = "As DEDUP_LEASE_SECONDS in app.yaml."
  type        = number
  default     = 300
}

locals {
  # Five retries, each wait twice the one before: 15 waits to the fourth, 31 to the fifth.
  min_backoff = ceil(max(var.lease_seconds / 15 + 2, (var.timeout_seconds + var.lease_seconds + 11) / 31))
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
    max_backoff_duration = "${max(3600, 16 * local.min_backoff)}s"
    max_doublings        = 5
  }

  app_engine_http_target {
    http_method  = "POST"
    relative_uri = "/"
    headers      = { "X-Job-Project" = var.project_id, "X-Job-Location" = var.region }
    app_engine_routing {
      service = "scheduled-job"
    }
  }
}

# App Engine runs as its default account.
resource "google_project_iam_member" "datastore_user" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = "serviceAccount:${var.project_id}@appspot.gserviceaccount.com"

  condition {
    title      = "runs database only"
    expression = "resource.name == \"projects/${var.project_id}/databases/(default)\""
  }
}
