# store = "firestore": the database of the runs, its TTL policy, and its indexes, exactly those that the listing of runs needs.

locals {
  on_firestore = var.store == "firestore"
  firestore = !local.on_firestore ? null : {
    url  = "firestore://${var.project_id}/${local.database_id}?collection=${local.collection}"
    name = local.database_id
  }
  database_id = local.on_firestore && var.create_database ? google_firestore_database.runs[0].name : var.database_id
  collection  = "scheduler_runs"
}

resource "google_firestore_database" "runs" {
  count = local.on_firestore && var.create_database ? 1 : 0

  project     = var.project_id
  name        = coalesce(var.database_id, local.drawn_name)
  location_id = coalesce(var.database_location, var.region)
  type        = "FIRESTORE_NATIVE"

  # A job may keep its own documents here (run.on_commit). Left behind, it doesn't stand in the way of the next apply: that draws a new id.
  deletion_policy         = var.delete_database ? "DELETE" : "ABANDON"
  delete_protection_state = var.delete_database ? "DELETE_PROTECTION_DISABLED" : "DELETE_PROTECTION_ENABLED"

  depends_on = [google_project_service.api]
}

resource "google_firestore_field" "expire_at" {
  count = local.on_firestore ? 1 : 0

  project    = var.project_id
  database   = local.database_id
  collection = local.collection
  field      = "expire_at"

  ttl_config {}   # records go a day or more after this time; nothing is decided by their going
  index_config {} # no index

  depends_on = [google_project_service.api]
}

# No field is indexed by itself but the one that follows. An automatic index on a field that rises with time (expire_at, lease_expires,
# claimed_at, ...) caps a collection at 500 writes a second, and each index is paid for with every write.
# https://docs.cloud.google.com/firestore/native/docs/best-practices
resource "google_firestore_field" "unindexed" {
  count = local.on_firestore ? 1 : 0

  project    = var.project_id
  database   = local.database_id
  collection = local.collection
  field      = "*"

  index_config {} # no index

  depends_on = [google_project_service.api]
}

# Runs are listed newest first. What remains of the limit: 500 runs a second that are claimed for the same time or for rising ones.
resource "google_firestore_field" "schedule_time" {
  count = local.on_firestore ? 1 : 0

  project    = var.project_id
  database   = local.database_id
  collection = local.collection
  field      = "schedule_time"

  index_config {
    indexes {
      order       = "DESCENDING"
      query_scope = "COLLECTION"
    }
  }

  depends_on = [google_project_service.api]
}

# Runs of one job, and runs of one status, newest first. Both together are served by merging these two.
resource "google_firestore_index" "listed_by" {
  for_each = local.on_firestore ? toset(["job_name", "status"]) : []

  project     = var.project_id
  database    = local.database_id
  collection  = local.collection
  query_scope = "COLLECTION"

  fields {
    field_path = each.key
    order      = "ASCENDING"
  }
  fields {
    field_path = "schedule_time"
    order      = "DESCENDING"
  }

  depends_on = [google_project_service.api]
}
