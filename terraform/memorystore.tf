# store = "memorystore": an instance of Memorystore for Valkey, or a server that was there, which may be Redis.
#
# Why Valkey for a new one: it syncs each write to disk before it answers (Memorystore for Redis takes snapshots at most), and it knows the
# function's account by IAM, so that there is no password in the state. What Redis can't promise stays: docs/choosing-a-store.md.
#
# The network must have a service connection policy of the class gcp-memorystore in the region. It has only one, whoever uses it, so
# that isn't made here: docs/deploy.md has the command.

locals {
  on_memorystore      = var.store == "memorystore"
  creates_memorystore = local.on_memorystore && var.create_database

  memorystore = !local.on_memorystore ? null : {
    url  = var.memorystore.secret == null ? "${local.memorystore_has_ca ? "rediss" : "redis"}://${local.memorystore_address}/0${local.memorystore_options}" : null
    name = local.memorystore_by_iam ? reverse(split("/", local.memorystore_instance))[0] : local.memorystore_address
  }
  memorystore_address = local.creates_memorystore ? "${local.memorystore_primary.ip_address}:${local.memorystore_primary.port}" : (
    var.memorystore.host == null ? null : "${var.memorystore.host}:${var.memorystore.port}"
  )
  memorystore_primary = local.creates_memorystore ? one(flatten([
    for endpoint in google_memorystore_instance.runs[0].endpoints : [
      for connection in endpoint.connections : [
        for psc in connection.psc_auto_connection : psc if psc.connection_type == "CONNECTION_TYPE_PRIMARY" # the other one only reads
      ]
    ]
  ])) : null
  memorystore_options = local.memorystore_has_ca ? "?ca=env:${local.memorystore_ca_variable}${local.memorystore_by_iam ? "&auth=iam" : ""}" : ""

  # TLS wherever the certificate authority is known.
  memorystore_ca_variable = "REDIS_CA"
  memorystore_has_ca      = local.creates_memorystore || var.memorystore.ca != null
  memorystore_ca = local.creates_memorystore ? join("\n", flatten([
    for authority in google_memorystore_instance.runs[0].managed_server_ca : authority.ca_certs[*].certificates
  ])) : var.memorystore.ca

  # The instance that the function's account signs in to by IAM, by its whole name.
  memorystore_by_iam   = local.creates_memorystore || var.memorystore.instance != null
  memorystore_id       = local.creates_memorystore ? coalesce(var.database_id, local.drawn_name) : null
  memorystore_instance = local.creates_memorystore ? "projects/${var.project_id}/locations/${var.region}/instances/${local.memorystore_id}" : var.memorystore.instance
}

resource "google_memorystore_instance" "runs" {
  count = local.creates_memorystore ? 1 : 0

  project     = var.project_id
  location    = var.region
  instance_id = local.memorystore_id
  labels      = var.labels

  # Each run is one key, and the store follows no redirection to other shards.
  mode          = "CLUSTER_DISABLED"
  shard_count   = 1
  replica_count = 1 # in another zone, and takes over
  node_type     = "STANDARD_SMALL"

  engine_configs = { maxmemory-policy = "noeviction" } # a full server must refuse a run, not forget another
  persistence_config {
    mode = "AOF"
    aof_config {
      append_fsync = "ALWAYS" # what was acknowledged is there again after a crash
    }
  }

  authorization_mode      = "IAM_AUTH"
  transit_encryption_mode = "SERVER_AUTHENTICATION"
  desired_auto_created_endpoints {
    network    = startswith(var.network, "projects/") ? var.network : "projects/${var.project_id}/global/networks/${var.network}"
    project_id = var.project_id
  }

  deletion_policy             = var.delete_database ? "DELETE" : "ABANDON"
  deletion_protection_enabled = !var.delete_database

  depends_on = [google_project_service.api]
}
