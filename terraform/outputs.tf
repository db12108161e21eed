output "function_uri" {
  description = "Where the function is. It is private."
  value       = google_cloudfunctions2_function.job.service_config[0].uri
}

output "job_name" {
  description = "The Scheduler job that the top-level variables describe."
  value       = google_cloud_scheduler_job.job[var.name].name
}

output "job_names" {
  description = "All Scheduler jobs."
  value       = sort(keys(google_cloud_scheduler_job.job))
}

output "service_accounts" {
  description = "The accounts, by what they are for. Give `runtime` what your job needs."
  value = {
    runtime   = google_service_account.runtime.email
    scheduler = google_service_account.scheduler.email
    build     = google_service_account.build.email
  }
}

output "database" {
  description = "Where the runs are: the Firestore database, INSTANCE/DATABASE on Spanner, or the Memorystore instance (HOST:PORT where that is all that is known, null where a secret says it)."
  value       = local.store.name
}

output "force_run_command" {
  description = "Forces a run now."
  value       = "gcloud scheduler jobs run ${var.name} --project=${var.project_id} --location=${coalesce(var.scheduler_region, var.region)}"
}

output "logs_command" {
  description = "Shows what came of the last deliveries."
  value       = "gcloud logging read 'resource.type=\"cloud_run_revision\" resource.labels.service_name=\"${var.name}\" jsonPayload.outcome:*' --project=${var.project_id} --limit=20 --format='value(timestamp,jsonPayload.message)'"
}

output "timings" {
  description = "The timings of each job, in seconds; what wasn't set is derived. `retries` are when its retries come, counted from the failure of the first attempt."
  value = {
    for id, job in local.jobs : id => {
      timeout            = var.timeout_seconds
      attempt_deadline   = job.attempt_deadline
      lease              = local.lease
      retention          = local.retention
      retry_count        = job.retry_count
      max_retry_duration = job.max_retry_duration
      min_backoff        = local.min_backoff[id]
      max_backoff        = local.max_backoff[id]
      max_doublings      = job.max_doublings
      retries            = local.retries[id]
    }
  }
}
