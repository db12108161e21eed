# The Cloud Scheduler jobs. Each refuses, in the plan, timings by which a run could be lost (see timings.tf).

resource "google_cloud_scheduler_job" "job" {
  for_each = local.jobs

  project          = var.project_id
  region           = coalesce(var.scheduler_region, var.region)
  name             = each.key
  description      = "Calls the function ${var.name}, which runs each tick once."
  schedule         = each.value.schedule
  time_zone        = each.value.time_zone
  paused           = each.value.paused
  attempt_deadline = "${each.value.attempt_deadline}s"

  retry_config {
    retry_count          = each.value.retry_count
    max_retry_duration   = "${each.value.max_retry_duration}s"
    min_backoff_duration = "${local.min_backoff[each.key]}s"
    max_backoff_duration = "${local.max_backoff[each.key]}s"
    max_doublings        = each.value.max_doublings
  }

  http_target {
    http_method = "POST"
    uri         = google_cloudfunctions2_function.job.service_config[0].uri
    body        = each.value.body == null ? null : base64encode(each.value.body)

    # Cloud Scheduler sends the job's id alone, which is unique only in a project and region.
    headers = merge(
      { "X-Job-Project" = var.project_id, "X-Job-Location" = coalesce(var.scheduler_region, var.region) },
      each.value.body == null ? {} : { "Content-Type" = can(jsondecode(each.value.body)) ? "application/json" : "text/plain; charset=utf-8" },
    )

    oidc_token {
      service_account_email = google_service_account.scheduler.email
      audience              = google_cloudfunctions2_function.job.service_config[0].uri # Cloud Run knows itself by no other name
    }
  }

  lifecycle {
    precondition {
      condition     = each.value.attempt_deadline >= 15 && each.value.attempt_deadline <= 1800 && floor(each.value.attempt_deadline) == each.value.attempt_deadline
      error_message = "${each.key}: attempt_deadline_seconds is ${each.value.attempt_deadline}, and Cloud Scheduler takes 15 to 1800, here whole seconds. Hand longer work over to something else (run.hand_over)."
    }
    precondition {
      condition     = each.value.attempt_deadline >= var.timeout_seconds
      error_message = "${each.key}: attempt_deadline_seconds (${each.value.attempt_deadline}) is below timeout_seconds (${var.timeout_seconds}): Cloud Scheduler would count an attempt as failed, and deliver again, while it still works. Set it to ${var.timeout_seconds} or more, or leave it out."
    }
    precondition {
      condition     = var.renew_lease || local.lease >= each.value.attempt_deadline
      error_message = "${each.key}: with renew_lease = false the lease must outlast the job, and lease_seconds (${local.lease}) is below attempt_deadline_seconds (${each.value.attempt_deadline}): another attempt would take the run over while the first still works. Set lease_seconds to ${each.value.attempt_deadline} or more, or renew_lease to true."
    }
    precondition {
      condition     = each.value.max_doublings >= 1 && floor(each.value.max_doublings) == each.value.max_doublings && each.value.max_retry_duration >= 0 && local.min_backoff[each.key] > 0 && local.max_backoff[each.key] >= local.min_backoff[each.key]
      error_message = "${each.key}: max_doublings (${each.value.max_doublings}) is a whole number, at least 1 (the provider passes over a 0, and Google's default of 5 would rule), max_retry_duration_seconds (${each.value.max_retry_duration}) isn't negative, min_backoff_seconds (${local.min_backoff[each.key]}) is above 0, and max_backoff_seconds (${local.max_backoff[each.key]}) is no less than that."
    }
    precondition {
      condition     = var.allow_no_retries || each.value.retry_count > 0 || each.value.max_retry_duration > 0
      error_message = "${each.key}: with retry_count = 0, a run whose attempt fails or dies is lost. Set retry_count to 5, or say that you want it so: allow_no_retries = true."
    }
    precondition {
      condition     = (each.value.retry_count == 0 && each.value.max_retry_duration == 0) || local.last_retry[each.key] > local.held + 10
      error_message = "${each.key}: the retries end ${local.last_retry[each.key]} s after the first failure, and an attempt that died may hold its run for ${local.held} s${var.renew_lease ? " (timeout ${var.timeout_seconds} + lease ${local.lease})" : " (the lease)"}: the run would be lost without a word. They must go on for more than ${local.held + 10} s. Leave min_backoff_seconds and max_backoff_seconds out to have them derived, or set them higher, or lease_seconds lower."
    }
    precondition {
      condition     = local.retention > local.end_of_retries[each.key] + var.timeout_seconds + local.lease
      error_message = "${each.key}: retention_seconds (${local.retention}) is no longer than the retries may go on, ${local.end_of_retries[each.key]} s, with timeout and lease ${local.end_of_retries[each.key] + var.timeout_seconds + local.lease} s: TTL could delete a record that a retry still needs, and the run would be done twice. Set it higher, or leave it out."
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.scheduler_invoker] # a tick before it would be refused
}
