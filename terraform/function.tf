# The function. Nobody but the Scheduler's account may call it (iam.tf).

locals {
  # What variables of this module decide, and no other does. A misspelt DEDUP_ name would stop the function's start.
  decided = "^(DEDUP_.*|GOOGLE_CLOUD_PROJECT|THREADS${local.memorystore_has_ca ? "|${local.memorystore_ca_variable}" : ""})$"
  secrets = merge(var.secret_environment_variables, local.store_secret)
  in_vpc  = var.network != null
}

resource "google_artifact_registry_repository" "images" {
  # checkov:skip=CKV_GCP_84: images hold code and no data; Google's own encryption at rest serves, and needs no key to look after

  project       = var.project_id
  location      = var.region
  repository_id = "${var.name}-images"
  description   = "Images of the function ${var.name}, made by Cloud Build."
  format        = "DOCKER"
  labels        = var.labels

  cleanup_policies {
    id     = "keep-the-last-five"
    action = "KEEP"
    most_recent_versions {
      keep_count = 5
    }
  }
  cleanup_policies {
    id     = "delete-after-thirty-days"
    action = "DELETE"
    condition {
      tag_state  = "ANY"
      older_than = "2592000s"
    }
  }

  depends_on = [google_project_service.api]
}

# A role that was just given takes up to a minute to be seen by Cloud Build: https://docs.cloud.google.com/iam/docs/access-change-propagation
resource "time_sleep" "build_roles" {
  create_duration = "60s"
  triggers        = { account = google_service_account.build.email }

  depends_on = [
    google_project_iam_member.build_log_writer,
    google_project_iam_member.build_source_viewer,
    google_artifact_registry_repository_iam_member.build_writer,
  ]
}

resource "google_cloudfunctions2_function" "job" {
  project     = var.project_id
  location    = var.region
  name        = var.name
  description = "A scheduled job that runs once, whatever is delivered twice."
  labels      = var.labels

  build_config {
    runtime           = var.runtime
    entry_point       = "handle_scheduled_job"
    service_account   = google_service_account.build.id
    docker_repository = google_artifact_registry_repository.images.id
    # By it, main.py and dedup/ are compiled for good. Else their bytecode goes by time stamps, which the image resets: it would be made
    # again in each cold start (docs/benchmarks.md).
    environment_variables = { SOURCE_DATE_EPOCH = "315532801" }

    source {
      storage_source {
        bucket = google_storage_bucket.source.name
        object = google_storage_bucket_object.source.name
      }
    }
  }

  service_config {
    service_account_email            = google_service_account.runtime.email
    timeout_seconds                  = var.timeout_seconds
    available_cpu                    = tostring(var.cpu)
    available_memory                 = var.memory
    max_instance_request_concurrency = var.concurrency
    min_instance_count               = var.min_instances
    max_instance_count               = var.max_instances
    ingress_settings                 = var.ingress
    all_traffic_on_latest_revision   = true

    environment_variables = merge(var.environment, var.scope == "" ? {} : { DEDUP_SCOPE = var.scope }, local.store_in_clear, {
      DEDUP_LEASE_SECONDS     = tostring(local.lease)
      DEDUP_RENEW             = tostring(var.renew_lease)
      DEDUP_TIMEOUT_SECONDS   = tostring(var.timeout_seconds)
      DEDUP_RETENTION_SECONDS = tostring(local.retention)
      DEDUP_MANUAL_RUNS       = var.manual_runs
      DEDUP_LOG_LEVEL         = var.log_level
      DEDUP_AUTH              = "iam" # Cloud Run has verified the token (iam.tf); whose it is, is looked at once more
      DEDUP_CALLERS           = join(",", concat([local.scheduler_email], var.callers))
      GOOGLE_CLOUD_PROJECT    = var.project_id            # by which log lines find their trace
      THREADS                 = tostring(var.concurrency) # functions-framework takes four a core otherwise
    })

    direct_vpc_egress = local.in_vpc ? "VPC_EGRESS_PRIVATE_RANGES_ONLY" : null
    dynamic "direct_vpc_network_interface" {
      for_each = local.in_vpc ? [1] : []
      content {
        network    = var.network
        subnetwork = var.subnetwork
      }
    }

    dynamic "secret_environment_variables" {
      for_each = local.secrets
      content {
        key        = secret_environment_variables.key
        secret     = secret_environment_variables.value.secret
        version    = secret_environment_variables.value.version
        project_id = coalesce(secret_environment_variables.value.project_id, var.project_id)
      }
    }
  }

  depends_on = [
    time_sleep.build_roles,
    google_firestore_field.expire_at,
    google_project_iam_member.runtime_datastore_user,
    google_project_iam_member.runtime_memorystore_user,
    google_spanner_database_iam_member.runtime_database_user,
    google_secret_manager_secret_iam_member.runtime_accessor,
  ]
}
