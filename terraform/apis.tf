# Enabled for this module, and left on when it is destroyed: others in the project may use them.

resource "google_project_service" "api" {
  for_each = toset(concat([
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "run.googleapis.com",
    "storage.googleapis.com",
    ],
    local.on_firestore ? ["firestore.googleapis.com"] : [],
    local.on_spanner ? ["spanner.googleapis.com"] : [],
    local.creates_memorystore ? ["memorystore.googleapis.com"] : [],
    length(local.secrets) > 0 ? ["secretmanager.googleapis.com"] : [],
  ))

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}
