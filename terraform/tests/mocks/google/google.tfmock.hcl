# What Google would answer, so that the plan already knows it.

override_resource {
  target = google_service_account.runtime
  values = {
    id     = "projects/my-project/serviceAccounts/runtime@my-project.iam.gserviceaccount.com"
    email  = "runtime@my-project.iam.gserviceaccount.com"
    member = "serviceAccount:runtime@my-project.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.scheduler
  values = {
    id     = "projects/my-project/serviceAccounts/scheduler@my-project.iam.gserviceaccount.com"
    email  = "scheduler@my-project.iam.gserviceaccount.com"
    member = "serviceAccount:scheduler@my-project.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.build
  values = {
    id     = "projects/my-project/serviceAccounts/build@my-project.iam.gserviceaccount.com"
    email  = "build@my-project.iam.gserviceaccount.com"
    member = "serviceAccount:build@my-project.iam.gserviceaccount.com"
  }
}

# A function has two addresses; only the first is one that an OIDC token may name.
mock_resource "google_cloudfunctions2_function" {
  defaults = {
    id  = "projects/my-project/locations/us-central1/functions/scheduled-job"
    url = "https://us-central1-my-project.cloudfunctions.net/scheduled-job"
    service_config = {
      uri = "https://scheduled-job-abc123-uc.a.run.app"
    }
  }
}

mock_resource "google_artifact_registry_repository" {
  defaults = {
    id   = "projects/my-project/locations/us-central1/repositories/scheduled-job-images"
    name = "scheduled-job-images"
  }
}

# The first connection only reads.
mock_resource "google_memorystore_instance" {
  defaults = {
    endpoints = [{
      connections = [
        { psc_auto_connection = [{ connection_type = "CONNECTION_TYPE_READER", ip_address = "10.128.0.3", port = "6379" }] },
        { psc_auto_connection = [{ connection_type = "CONNECTION_TYPE_PRIMARY", ip_address = "10.128.0.2", port = "6379" }] },
      ]
    }]
    managed_server_ca = [{ ca_certs = [{ certificates = ["root"] }, { certificates = ["new", "chain"] }] }]
  }
}
