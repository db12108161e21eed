# Where the runs are kept: what of the chosen store the rest of this module needs. Each store has a file of its own.

locals {
  # What the function opens, and what the output calls it.
  store = {
    firestore   = local.firestore
    spanner     = local.spanner
    memorystore = local.memorystore
  }[var.store]

  # A URL that holds a password is a secret as a whole. The certificate authority is none; a new one (an apply away, when Google renews it)
  # is a new deployment.
  store_in_clear = merge(
    var.memorystore.secret == null ? { DEDUP_STORE = local.store.url } : {},
    local.memorystore_has_ca ? { (local.memorystore_ca_variable) = local.memorystore_ca } : {},
  )
  store_secret = var.memorystore.secret == null ? {} : { DEDUP_STORE = { secret = var.memorystore.secret, version = "latest", project_id = null } }

  # What requirements.txt needs, for stores whose library isn't there from the start: a line that names this file, or the package itself.
  store_requirements = { spanner = "dedup/stores/requirements-spanner.txt", memorystore = "dedup/stores/requirements-redis.txt" }
  store_packages = {
    for store, file in local.store_requirements :
    store => one([for line in split("\n", file("${local.repository}/${file}")) : regex(local.package, line) if can(regex(local.package, line))])
  }
  uploaded_requirements = "${local.source_dir}/requirements.txt"
  required              = fileexists(local.uploaded_requirements) ? [for line in split("\n", file(local.uploaded_requirements)) : trimspace(line)] : []

  # Names of packages, as PyPI compares them.
  package  = "^[A-Za-z0-9][A-Za-z0-9._-]*"
  packages = [for line in local.required : replace(lower(regex(local.package, line)), "/[._-]+/", "-") if can(regex(local.package, line))]
  # Files of packages: "-r FILE", in pip's four ways to write it.
  included = [
    for line in local.required : trimprefix(regex("^(?:-r|--requirement[ =]) *([^ ]+)", line)[0], "./") if can(regex("^(?:-r|--requirement[ =]) *([^ ]+)", line))
  ]
  has_library = {
    for store, file in local.store_requirements :
    store => contains(local.packages, local.store_packages[store]) || contains(local.included, file)
  }

  # What is drawn anew with each new deployment: what was left behind keeps its own name.
  drawn_name = var.create_database ? "${var.name}-runs-${random_id.database[0].hex}" : null
}

resource "random_id" "database" {
  count = var.create_database ? 1 : 0

  byte_length = 2
}
