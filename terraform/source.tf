# What is deployed: what .gcloudignore lets through, so that gcloud functions deploy and this module upload the same.

locals {
  repository = abspath("${path.module}/..")
  source_dir = var.source_dir == null ? local.repository : abspath(var.source_dir)

  # The lines "!/main.py" and "!/dedup/": what is let through. A fork that adds a package adds a line there.
  let_through = [for line in split("\n", file("${local.repository}/.gcloudignore")) : trimprefix(trimspace(line), "!/") if startswith(line, "!/")]

  sources = merge([
    for path in local.let_through : {
      for file in fileset(path == "dedup/" ? local.repository : local.source_dir, endswith(path, "/") ? "${path}**" : path) :
      file => "${path == "dedup/" ? local.repository : local.source_dir}/${file}"
      if !strcontains(file, "__pycache__/")
    }
  ]...)
}

data "archive_file" "source" {
  type             = "zip"
  output_path      = "${path.root}/.terraform/${var.name}-source.zip"
  output_file_mode = "0644" # the same archive, whoever makes it

  dynamic "source" {
    for_each = local.sources
    content {
      filename = source.key
      content  = file(source.value)
    }
  }

  # It is no secret, and a new one (an apply away, when Google renews it) is a new deployment.
  dynamic "source" {
    for_each = local.memorystore_has_ca ? ["server-ca.pem"] : []
    content {
      filename = source.value
      content  = local.memorystore_ca
    }
  }
}

resource "google_storage_bucket" "source" {
  # checkov:skip=CKV_GCP_62: what is read is this repository's source; Cloud Audit Logs say who, where they are switched on
  # checkov:skip=CKV_GCP_78: objects are named by their hash, and never written twice

  project                     = var.project_id
  name                        = "${var.project_id}-${var.name}-source"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # it holds nothing but archives of this repository
  labels                      = var.labels

  # No rule by age: it could delete the archive that the function was built from.
  depends_on = [google_project_service.api]
}

resource "google_storage_bucket_object" "source" {
  bucket = google_storage_bucket.source.name
  # The function is built anew when this name changes, and only then.
  name   = "${data.archive_file.source.output_sha256}.zip"
  source = data.archive_file.source.output_path
}
