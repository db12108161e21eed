# One job in two regions, each for the data that is there: two deployments of one project, told apart by their names. Each has its own
# accounts, database and alerts, so that nothing of one region stops the other.

variable "project_id" {
  description = "The Google Cloud project."
  type        = string
}

module "report" {
  source = "../.."
  for_each = {
    us = { region = "us-central1", time_zone = "America/Chicago" }
    eu = { region = "europe-west1", time_zone = "Europe/Brussels" }
  }

  project_id = var.project_id
  region     = each.value.region
  name       = "report-${each.key}"
  schedule   = "0 7 * * 1-5"
  time_zone  = each.value.time_zone
  body       = jsonencode({ region = each.value.region })
}

output "force_run_commands" {
  description = "Each forces a run now, by region."
  value       = { for key, report in module.report : key => report.force_run_command }
}
