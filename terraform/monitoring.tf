# Alerts, which are always made: with no channel they notify nobody, and are to be seen in the console.
#
# Those on log lines need no metric. The one on missed runs counts a metric of this module in PromQL, which may be done before the
# metric is there: a threshold or absence condition fails for ten minutes after the metric was made (provider#11102), and absence ends at
# 23.5 hours: https://docs.cloud.google.com/monitoring/alerts/metric-absence

locals {
  of_function = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}\" AND resource.labels.location=\"${var.region}\""
  ids         = "(${join(" OR ", [for id in sort(keys(local.jobs)) : "\"${id}\""])})"
  of_jobs     = "resource.type=\"cloud_scheduler_job\" AND resource.labels.location=\"${coalesce(var.scheduler_region, var.region)}\" AND resource.labels.job_id=${local.ids}"
  of_work     = "resource.type=\"cloud_run_job\" AND resource.labels.location=\"${var.region}\" AND jsonPayload.job_name=${local.ids}" # of runs handed over

  alerts = {
    failed-for-good = {
      title    = "a run failed for good"
      severity = "ERROR"
      filter   = "${local.of_function} AND jsonPayload.outcome=\"job_failed_for_good\""
      about    = "The job raised PermanentError: the run is recorded as failed, and isn't retried. The log line has the traceback. Once it is mended, delete the run's record, and force a run."
    }
    job-raised = {
      title    = "the job raised"
      severity = "WARNING"
      filter   = "${local.of_function} AND jsonPayload.outcome=(\"job_failed\" OR \"interrupted\")"
      about    = "An attempt at a run failed, and its claim was released. Cloud Scheduler retries it as long as it has retries left. The log line has the traceback."
    }
    not-recorded = {
      title    = "a job is done, but not recorded"
      severity = "ERROR"
      filter   = "${local.of_function} AND (jsonPayload.outcome=(\"done_not_recorded\" OR \"effects_not_recorded\") OR jsonPayload.message:\"could not record the run as\")"
      about    = "The database could not be written when the job ended. A retry may run the job again when the lease ends: see that its effects are not there twice."
    }
    lease-lost = {
      title    = "a lease was lost"
      severity = "ERROR"
      filter   = "${local.of_function} AND (jsonPayload.outcome=\"done_lease_lost\" OR jsonPayload.message:\"lease lost\" OR jsonPayload.message:\"leases can't be renewed\")"
      about    = "An attempt went on past its lease, and another may have taken its run over: both may have done the work. Usual causes: an instance without CPU, a database out of reach for a whole lease."
    }
    attempt-failed = {
      title    = "Cloud Scheduler's attempt failed"
      severity = "WARNING"
      filter   = "${local.of_jobs} AND log_id(\"cloudscheduler.googleapis.com/executions\") AND severity>=ERROR AND NOT httpRequest.status=409"
      about    = "Cloud Scheduler got no answer, or one that it retries; 409, a run that is in progress, is left out. The entry's debugInfo says what it got. An entry is written for each attempt, also where a retry succeeds."
    }
    refused = {
      title    = "a caller was refused"
      severity = "WARNING"
      filter   = "${local.of_function} AND log_id(\"run.googleapis.com/requests\") AND httpRequest.status=(401 OR 403)"
      about    = "A request without a token that the function takes. If it was Cloud Scheduler's: its account has lost roles/run.invoker, the audience isn't the function's URI, or Cloud Scheduler's service agent has lost roles/cloudscheduler.serviceAgent."
    }
  }

  # After how long without a run that was done, in seconds; 0: no alert. Only a schedule that is alike every day tells it.
  missed_after = {
    for id, job in local.jobs : id => job.paused ? 0 : job.missed_after >= 0 ? job.missed_after : (
      local.gap[id] != null && alltrue([for field in slice(local.fields[id], 2, 5) : field == "*"])
      && (can(tonumber(local.fields[id][0])) || local.fields[id][1] == "*")
      ? local.gap[id].longest + local.recovered[id] + 300 + (startswith(job.time_zone, "Etc/") ? 0 : 3600) : 0 # clocks are put back
    )
  }
  # How many runs of each job were done in a span: by the function, or by the Cloud Run job that it handed them over to.
  counted = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_outcomes"
  by = [
    "monitored_resource=\"cloud_run_revision\",service_name=\"${var.name}\"",
    "monitored_resource=\"cloud_run_job\"",
  ]
  done = {
    for id, after in local.missed_after : id => {
      for span, seconds in { before = after + 2592000, lately = after } : span => join(" + ", [
        for by in local.by :
        "(sum(increase(${local.counted}{${by},scheduler_job=\"${id}\",outcome=\"processed\"}[${seconds}s])) or vector(0))"
      ])
    }
  }
}

resource "google_monitoring_alert_policy" "log" {
  for_each = local.alerts

  project               = var.project_id
  display_name          = "${var.name}: ${each.value.title}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.notification_channels
  user_labels           = var.labels

  conditions {
    display_name = each.value.title
    condition_matched_log {
      filter = each.value.filter
    }
  }

  alert_strategy {
    auto_close = "86400s"
    notification_rate_limit {
      period = "300s"
    }
  }

  documentation {
    content   = "${each.value.about}\n\n    gcloud logging read '${each.value.filter}' --project=${var.project_id} --limit=10"
    mime_type = "text/markdown"
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_alert_policy" "missed" {
  for_each = { for id, seconds in local.missed_after : id => seconds if seconds > 0 }

  project               = var.project_id
  display_name          = "${var.name}: no run of ${each.key} was done in time"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = var.notification_channels
  user_labels           = var.labels

  conditions {
    display_name = "no run done for ${each.value} s"
    condition_prometheus_query_language {
      # Some run was done before, none lately: a job that has just been deployed isn't missed before its first run.
      query                     = "(${local.done[each.key].before} > 0) unless (${local.done[each.key].lately} > 0)"
      evaluation_interval       = "60s"
      duration                  = "0s"
      disable_metric_validation = true
    }
  }

  alert_strategy {
    auto_close = "604800s"
  }

  documentation {
    content   = "The job ${each.key} has done no run for ${each.value} seconds (schedule ${local.jobs[each.key].schedule}, ${local.jobs[each.key].time_zone}). Is it paused? What do the other alerts and Cloud Scheduler's log say?\n\n    gcloud logging read '${local.of_jobs}' --project=${var.project_id} --limit=10"
    mime_type = "text/markdown"
  }

  depends_on = [google_logging_metric.outcomes, google_project_service.api]
}
