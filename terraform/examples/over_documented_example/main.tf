# Over a function that runs the example of Google's page "Deduplicate job requests", in the middle of its runs: no scope, so that a run's
# id stays what it was, and the example's database. function/ stands for the folder of that function.

variable "project_id" {
  description = "The Google Cloud project."
  type        = string
}

module "job" {
  source = "../.."

  project_id      = var.project_id
  region          = "us-central1"
  name            = "my-scheduled-job" # the function's name as it is; import it first, or let the old one go when this one runs
  schedule        = "*/10 * * * *"
  timeout_seconds = 180
  source_dir      = "${path.module}/function"

  scope           = ""
  database_id     = "(default)"
  create_database = false
}
