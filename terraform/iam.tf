# Who may do what: three accounts, none with a key, and every role that they have.

locals {
  # As Google makes it, known before the account is: of example.com:my-project it is ...@my-project.example.com.iam...
  scheduler_email = "${var.name}-scheduler@${join(".", reverse(split(":", var.project_id)))}.iam.gserviceaccount.com"
}

resource "google_service_account" "runtime" {
  project      = var.project_id
  account_id   = "${var.name}-runtime"
  display_name = "Runs the function ${var.name}"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "scheduler" {
  project      = var.project_id
  account_id   = "${var.name}-scheduler"
  display_name = "Calls the function ${var.name}"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "build" {
  project      = var.project_id
  account_id   = "${var.name}-build"
  display_name = "Builds the function ${var.name}"

  depends_on = [google_project_service.api]
}

# The Scheduler's account: may call this one service.

resource "google_cloud_run_v2_service_iam_member" "scheduler_invoker" {
  project  = var.project_id
  location = google_cloudfunctions2_function.job.location
  name     = google_cloudfunctions2_function.job.name
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member

  lifecycle {
    # A service that is made anew starts without its bindings.
    replace_triggered_by = [google_cloudfunctions2_function.job.id]
  }
}

# The function's account: the runs' database, its own telemetry, and its secrets.

resource "google_project_iam_member" "runtime_datastore_user" {
  count = local.on_firestore ? 1 : 0

  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.runtime.member

  # https://docs.cloud.google.com/firestore/native/docs/conditions
  condition {
    title       = "${var.name} database only"
    description = "Only ${local.database_id}"
    expression  = "resource.name == \"projects/${var.project_id}/databases/${local.database_id}\""
  }
}

resource "google_spanner_database_iam_member" "runtime_database_user" {
  count = local.on_spanner ? 1 : 0

  project  = var.project_id
  instance = local.spanner_instance
  database = local.spanner_database
  role     = "roles/spanner.databaseUser"
  member   = google_service_account.runtime.member
}

resource "google_project_iam_member" "runtime_memorystore_user" {
  count = local.memorystore_by_iam ? 1 : 0

  project = split("/", local.memorystore_instance)[1]
  role    = "roles/memorystore.dbConnectionUser"
  member  = google_service_account.runtime.member

  # https://docs.cloud.google.com/memorystore/docs/valkey/about-iam-auth
  condition {
    title       = "${var.name} runs only"
    description = "Only ${local.memorystore_instance}"
    expression  = "resource.name == \"${local.memorystore_instance}\""
  }
}

resource "google_project_iam_member" "runtime_telemetry" {
  for_each = toset(["roles/cloudtrace.agent", "roles/logging.logWriter", "roles/monitoring.metricWriter"])

  project = var.project_id
  role    = each.key
  member  = google_service_account.runtime.member
}

resource "google_secret_manager_secret_iam_member" "runtime_accessor" {
  for_each = local.secrets

  project   = coalesce(each.value.project_id, var.project_id)
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.runtime.member

  depends_on = [google_project_service.api]
}

# The build's account: reads the source, writes the image, and its log.

resource "google_project_iam_member" "build_log_writer" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.build.member
}

resource "google_project_iam_member" "build_source_viewer" {
  project = var.project_id
  role    = "roles/storage.objectViewer"
  member  = google_service_account.build.member

  # Cloud Functions copies the archive to a bucket of its own, and the build reads it there.
  condition {
    title       = "${var.name} source only"
    description = "Only the function's source, and Cloud Functions' copy of it"
    expression  = "resource.name == \"projects/_/buckets/${google_storage_bucket.source.name}\" || resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.source.name}/\") || resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-\")"
  }
}

resource "google_artifact_registry_repository_iam_member" "build_writer" {
  project    = var.project_id
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.build.member
}
