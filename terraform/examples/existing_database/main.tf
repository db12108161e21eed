# A database that is there already, made by another configuration or by hand: this one adds the collection's TTL policy and indexes, and
# grants the function's account that database alone. Nothing here ever deletes it.

variable "project_id" {
  description = "The Google Cloud project."
  type        = string
}

module "job" {
  source = "../.."

  project_id = var.project_id
  region     = "europe-west1"
  name       = "hourly-report"
  schedule   = "5 * * * *"

  database_id     = "app-data"
  create_database = false
}
