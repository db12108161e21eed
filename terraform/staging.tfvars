# terraform apply -var-file=staging.tfvars: as production is, and gone without a trace when it is destroyed.

project_id = "my-project-staging"
region     = "us-central1"
schedule   = "30 2 * * *"

timeout_seconds = 120
delete_database = true
log_level       = "DEBUG"
labels          = { environment = "staging" }
