# The service, which only the caller's account may call. It has no schedule, so it isn't made by ../../terraform; it shares its database.

variable "project_id" { type = string }
variable "region" { type = string }
variable "database" {
  description = "The Firestore database of the calls; the caller's own may be it."
  type        = string
}
variable "caller" {
  description = "The e-mail address of the account that calls."
  type        = string
}
variable "image" {
  description = "The service's container: this folder's main.py, its requirements.txt and dedup/."
  type        = string
}

resource "google_cloud_run_v2_service" "billing" {
  project             = var.project_id
  location            = var.region
  name                = "billing"
  deletion_protection = false

  template {
    service_account = google_service_account.billing.email
    timeout         = "120s"
    containers {
      image = var.image
      env {
        name  = "DEDUP_STORE"
        value = "firestore://${var.project_id}/${var.database}"
      }
      env {
        name  = "DEDUP_TIMEOUT_SECONDS"
        value = "120"
      }
      env {
        name  = "DEDUP_LEASE_SECONDS"
        value = "120"
      }
      env {
        name  = "DEDUP_CALLERS"
        value = var.caller
      }
    }
  }
}

resource "google_service_account" "billing" {
  project    = var.project_id
  account_id = "billing-runtime"
}

resource "google_cloud_run_v2_service_iam_member" "caller" {
  project  = var.project_id
  location = google_cloud_run_v2_service.billing.location
  name     = google_cloud_run_v2_service.billing.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${var.caller}"
}

resource "google_project_iam_member" "datastore_user" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.billing.member

  condition {
    title      = "billing database only"
    expression = "resource.name == \"projects/${var.project_id}/databases/${var.database}\""
  }
}
