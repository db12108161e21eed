# store = "spanner": the database of the runs with its one table, on an instance that is made for it or was there. A database that was
# there is left as it is: `python -m dedup store create` makes the table in it.

locals {
  on_spanner               = var.store == "spanner"
  creates_spanner          = local.on_spanner && var.create_database
  creates_spanner_instance = local.creates_spanner && var.spanner_instance == null

  spanner = !local.on_spanner ? null : {
    url  = "spanner://${var.project_id}/${local.spanner_instance}/${local.spanner_database}"
    name = "${local.spanner_instance}/${local.spanner_database}"
  }
  spanner_instance = local.creates_spanner_instance ? google_spanner_instance.runs[0].name : var.spanner_instance
  spanner_database = local.creates_spanner ? google_spanner_database.runs[0].name : var.database_id

  # One statement, which holds the row deletion policy too; DDL that is sent has neither comments nor a last semicolon.
  spanner_table = trimsuffix(trimspace(replace(file("${local.repository}/dedup/stores/spanner.sql"), "/(?m)^\\s*--.*$/", "")), ";")
}

resource "google_spanner_instance" "runs" {
  count = local.creates_spanner_instance ? 1 : 0

  project          = var.project_id
  name             = local.drawn_name
  display_name     = local.drawn_name
  config           = "regional-${coalesce(var.database_location, var.region)}"
  edition          = "STANDARD"
  processing_units = 100 # the least there is
  labels           = var.labels

  # Records live for a day, and a backup would keep the instance from being deleted.
  default_backup_schedule_type = "NONE"

  deletion_policy = var.delete_database ? "DELETE" : "ABANDON"
  force_destroy   = var.delete_database

  depends_on = [google_project_service.api]
}

resource "google_spanner_database" "runs" {
  # checkov:skip=CKV_GCP_93: records hold no more than names and times; Google's own encryption at rest serves, and needs no key to look after
  # checkov:skip=CKV_GCP_119: destroy leaves the database behind, which this would refuse altogether; drop protection guards it
  # checkov:skip=CKV_GCP_120: it is on, unless delete_database says otherwise, which checkov doesn't work out

  count = local.creates_spanner ? 1 : 0

  project          = var.project_id
  instance         = local.spanner_instance
  name             = coalesce(var.database_id, local.drawn_name)
  database_dialect = "GOOGLE_STANDARD_SQL"
  ddl              = [local.spanner_table]

  # As with Firestore's: left behind, and protected from everybody; the next apply draws another name.
  deletion_policy        = var.delete_database ? "DELETE" : "ABANDON"
  enable_drop_protection = !var.delete_database
  deletion_protection    = false # it would stop destroy altogether

  lifecycle {
    ignore_changes = [ddl] # the provider takes another text of the statement for another database
  }

  depends_on = [google_project_service.api]
}
