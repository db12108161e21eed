# terraform apply -var-file=production.tfvars

project_id = "my-project"
region     = "us-central1"
schedule   = "30 2 * * *"

timeout_seconds       = 120
notification_channels = ["projects/my-project/notificationChannels/1234567890"]
labels                = { environment = "production" }
