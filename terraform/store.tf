# Where the runs are kept: what of the chosen store the rest of this module needs. Each store has a file of its own.

locals {
  # What the function opens, and what the output calls it.
  store = {
    firestore   = local.firestore
    spanner     = local.spanner
    memorystore = local.memorystore
  }[var.store]

  # A URL that holds a password is a secret as a whole.
  store_in_clear = var.memorystore.secret == null ? { DEDUP_STORE = local.store.url } : {}
  store_secret   = var.memorystore.secret == null ? {} : { DEDUP_STORE = { secret = var.memorystore.secret, version = "latest", project_id = null } }

  # The line that requirements.txt needs, for stores whose library isn't there from the start.
  store_lines = {
    for store, file in { spanner = "requirements-spanner.txt", memorystore = "requirements-redis.txt" } :
    store => one([for line in split("\n", file("${local.repository}/${file}")) : trimspace(line) if can(regex("^\\w", line))])
  }
  uploaded_requirements = "${local.source_dir}/requirements.txt"

  # Names of packages, as PyPI compares them.
  package = "^[A-Za-z0-9][A-Za-z0-9._-]*"
  packages = [
    for line in fileexists(local.uploaded_requirements) ? split("\n", file(local.uploaded_requirements)) : [] :
    replace(lower(regex(local.package, trimspace(line))), "/[._-]+/", "-") if can(regex(local.package, trimspace(line)))
  ]
  store_packages = { for store, line in local.store_lines : store => regex(local.package, line) }

  # What is drawn anew with each new deployment: what was left behind keeps its own name.
  drawn_name = var.create_database ? "${var.name}-runs-${random_id.database[0].hex}" : null
}

resource "random_id" "database" {
  count = var.create_database ? 1 : 0

  byte_length = 2
}
