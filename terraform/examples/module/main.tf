# This repository's terraform/ as a module of your own configuration: pinned, with what is yours beside it. In a fork, leave `source` as
# it is; from elsewhere, name the fork and a tag: "git::https://github.com/YOU/FORK.git//terraform?ref=v1.0.0".

variable "project_id" {
  description = "The Google Cloud project."
  type        = string
}

module "nightly_export" {
  source = "../.."

  project_id      = var.project_id
  region          = "us-central1"
  name            = "nightly-export"
  schedule        = "30 2 * * *"
  timeout_seconds = 540
  body            = jsonencode({ table = "orders" })
  environment     = { BUCKET = google_storage_bucket.exports.name }
}

resource "google_storage_bucket" "exports" {
  # checkov:skip=CKV_GCP_62: an example; who reads exports is yours to log
  # checkov:skip=CKV_GCP_78: an example; exports are made anew every night
  project                     = var.project_id
  name                        = "${var.project_id}-exports"
  location                    = "us-central1"
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
}

# What the job itself needs is granted to the function's account.
resource "google_storage_bucket_iam_member" "writes_exports" {
  bucket = google_storage_bucket.exports.name
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${module.nightly_export.service_accounts.runtime}"
}

output "force_run_command" {
  description = "Forces a run now."
  value       = module.nightly_export.force_run_command
}
