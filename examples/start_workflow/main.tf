# A function that starts the workflow once for each run, and the workflow.

variable "project_id" { type = string }
variable "region" { type = string }
variable "schedule" { type = string }

module "job" {
  source = "../../terraform"

  name        = "start-workflow"
  project_id  = var.project_id
  region      = var.region
  schedule    = var.schedule
  source_dir  = abspath(path.module)
  environment = { WORKFLOW = google_workflows_workflow.nightly.id }
}

resource "google_project_service" "api" {
  for_each = toset(["workflows.googleapis.com", "workflowexecutions.googleapis.com"])

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}

resource "google_workflows_workflow" "nightly" {
  project             = var.project_id
  region              = var.region
  name                = "nightly"
  source_contents     = file("${path.module}/workflow.yaml")
  service_account     = google_service_account.workflow.id
  user_env_vars       = { DATABASE_ID = "(default)" }
  deletion_protection = false

  depends_on = [google_project_service.api]
}

resource "google_service_account" "workflow" {
  project    = var.project_id
  account_id = "nightly-workflow"
}

# The workflow keeps its run_ids in Firestore, and writes its reports there.
resource "google_project_iam_member" "workflow_datastore_user" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.workflow.member

  condition {
    title      = "nightly workflow database only"
    expression = "resource.name == \"projects/${var.project_id}/databases/(default)\""
  }
}

# Starts executions and lists them. Workflows takes no policy on one workflow, so this is on all of the project's.
resource "google_project_iam_member" "workflows_invoker" {
  project = var.project_id
  role    = "roles/workflows.invoker"
  member  = "serviceAccount:${module.job.service_accounts.runtime}"
}
