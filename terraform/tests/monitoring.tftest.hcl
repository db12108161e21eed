# What is told when something goes wrong, and what is to be seen. The words that log lines are found by are held to the function's own
# by tests/template/terraform/test_monitoring.py.

mock_provider "google" {
  source          = "./tests/mocks/google"
  override_during = plan
}
mock_provider "random" {
  source          = "./tests/mocks/random"
  override_during = plan
}
mock_provider "time" {}

variables {
  project_id = "my-project"
  region     = "us-central1"
  schedule   = "30 2 * * *"
  source_dir = "./tests/another_job"
}

run "alerts_are_always_made" {
  command = plan

  assert {
    condition     = keys(google_monitoring_alert_policy.log) == ["attempt-failed", "failed-for-good", "job-raised", "lease-lost", "not-recorded", "refused"]
    error_message = "There is an alert for each thing that goes wrong."
  }
  assert {
    condition     = { for id, policy in google_monitoring_alert_policy.log : id => policy.severity } == { attempt-failed = "WARNING", failed-for-good = "ERROR", job-raised = "WARNING", lease-lost = "ERROR", not-recorded = "ERROR", refused = "WARNING" }
    error_message = "What Cloud Scheduler mends by itself is a warning."
  }
  assert {
    condition     = alltrue([for id in ["failed-for-good", "job-raised", "lease-lost", "not-recorded", "refused"] : startswith(google_monitoring_alert_policy.log[id].conditions[0].condition_matched_log[0].filter, "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"scheduled-job\" AND resource.labels.location=\"us-central1\" AND ")])
    error_message = "The function's alerts match the function's lines alone."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.log["failed-for-good"].conditions[0].condition_matched_log[0].filter, " AND jsonPayload.outcome=\"job_failed_for_good\"")
    error_message = "PermanentError is told."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.log["job-raised"].conditions[0].condition_matched_log[0].filter, " AND jsonPayload.outcome=(\"job_failed\" OR \"interrupted\")")
    error_message = "A job that raises is told."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.log["not-recorded"].conditions[0].condition_matched_log[0].filter, " AND (jsonPayload.outcome=(\"done_not_recorded\" OR \"effects_not_recorded\") OR jsonPayload.message:\"could not record the run as\")")
    error_message = "A job that is done, but not recorded, is told."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.log["lease-lost"].conditions[0].condition_matched_log[0].filter, " AND (jsonPayload.outcome=\"done_lease_lost\" OR jsonPayload.message:\"lease lost\" OR jsonPayload.message:\"leases can't be renewed\")")
    error_message = "A lease that is lost is told."
  }
  assert {
    condition     = google_monitoring_alert_policy.log["attempt-failed"].conditions[0].condition_matched_log[0].filter == "resource.type=\"cloud_scheduler_job\" AND resource.labels.location=\"us-central1\" AND resource.labels.job_id=(\"scheduled-job\") AND log_id(\"cloudscheduler.googleapis.com/executions\") AND severity>=ERROR AND NOT httpRequest.status=409"
    error_message = "An attempt of Cloud Scheduler's that fails is told, but not a run in progress."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.log["refused"].conditions[0].condition_matched_log[0].filter, " AND log_id(\"run.googleapis.com/requests\") AND httpRequest.status=(401 OR 403)")
    error_message = "A caller that is refused is told."
  }
  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.log : policy.alert_strategy[0].notification_rate_limit[0].period == "300s" && policy.alert_strategy[0].auto_close == "86400s"])
    error_message = "An alert on log lines has a rate limit, without which Google refuses it, and closes after a day."
  }
  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.log : policy.combiner == "OR" && policy.project == "my-project" && length(policy.conditions) == 1 && length(policy.notification_channels) == 0])
    error_message = "Each alert has its one condition, and without a channel tells nobody."
  }
  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.log : strcontains(policy.documentation[0].content, policy.conditions[0].condition_matched_log[0].filter)])
    error_message = "Each alert says how to read the lines that it is about."
  }

  assert {
    condition     = keys(google_monitoring_alert_policy.missed) == ["scheduled-job"] && google_monitoring_alert_policy.missed["scheduled-job"].severity == "CRITICAL" && google_monitoring_alert_policy.missed["scheduled-job"].combiner == "OR" && google_monitoring_alert_policy.missed["scheduled-job"].project == "my-project"
    error_message = "A daily run that is missed is told."
  }
  assert {
    condition     = google_monitoring_alert_policy.missed["scheduled-job"].conditions[0].condition_prometheus_query_language[0].query == "((sum(increase(logging_googleapis_com:user_scheduled_job_outcomes{monitored_resource=\"cloud_run_revision\",service_name=\"scheduled-job\",scheduler_job=\"scheduled-job\",outcome=\"processed\"}[2678970s])) or vector(0)) + (sum(increase(logging_googleapis_com:user_scheduled_job_outcomes{monitored_resource=\"cloud_run_job\",scheduler_job=\"scheduled-job\",outcome=\"processed\"}[2678970s])) or vector(0)) > 0) unless ((sum(increase(logging_googleapis_com:user_scheduled_job_outcomes{monitored_resource=\"cloud_run_revision\",service_name=\"scheduled-job\",scheduler_job=\"scheduled-job\",outcome=\"processed\"}[86970s])) or vector(0)) + (sum(increase(logging_googleapis_com:user_scheduled_job_outcomes{monitored_resource=\"cloud_run_job\",scheduler_job=\"scheduled-job\",outcome=\"processed\"}[86970s])) or vector(0)) > 0)"
    error_message = "It is missed when some run was done in the month before, by the function or by what it hands over to, and none since a day, the retries and five minutes."
  }
  assert {
    condition     = google_monitoring_alert_policy.missed["scheduled-job"].conditions[0].condition_prometheus_query_language[0].disable_metric_validation == true
    error_message = "The alert on missed runs can be made before its metric is there."
  }
  assert {
    condition     = google_monitoring_alert_policy.missed["scheduled-job"].conditions[0].condition_prometheus_query_language[0].evaluation_interval == "60s" && google_monitoring_alert_policy.missed["scheduled-job"].conditions[0].condition_prometheus_query_language[0].duration == "0s"
    error_message = "It is told within a minute or so."
  }
  assert {
    condition     = google_monitoring_alert_policy.missed["scheduled-job"].alert_strategy[0].auto_close == "604800s" && strcontains(google_monitoring_alert_policy.missed["scheduled-job"].documentation[0].content, "86970 seconds (schedule 30 2 * * *, Etc/UTC)")
    error_message = "It says what is missed, and stays open for a week."
  }

  assert {
    condition     = google_logging_metric.outcomes.name == "scheduled-job-outcomes" && google_logging_metric.take_overs.name == "scheduled-job-take-overs" && google_logging_metric.duration.name == "scheduled-job-duration"
    error_message = "The metrics are named after the function."
  }
  assert {
    condition     = alltrue([for metric in [google_logging_metric.outcomes, google_logging_metric.take_overs, google_logging_metric.duration] : metric.project == "my-project" && metric.metric_descriptor[0].metric_kind == "DELTA" && metric.label_extractors["scheduler_job"] == "EXTRACT(jsonPayload.job_name)" && contains(metric.metric_descriptor[0].labels[*].key, "scheduler_job")])
    error_message = "The metrics tell jobs apart."
  }
  assert {
    condition     = google_logging_metric.outcomes.filter == "jsonPayload.outcome:* AND ((resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"scheduled-job\" AND resource.labels.location=\"us-central1\") OR (resource.type=\"cloud_run_job\" AND resource.labels.location=\"us-central1\" AND jsonPayload.job_name=(\"scheduled-job\")))" && google_logging_metric.outcomes.metric_descriptor[0].value_type == "INT64" && google_logging_metric.outcomes.label_extractors["outcome"] == "EXTRACT(jsonPayload.outcome)" && contains(google_logging_metric.outcomes.metric_descriptor[0].labels[*].key, "outcome")
    error_message = "Deliveries are counted by outcome."
  }
  assert {
    condition     = endswith(google_logging_metric.take_overs.filter, " AND jsonPayload.outcome:* AND jsonPayload.attempt>1") && google_logging_metric.take_overs.metric_descriptor[0].value_type == "INT64"
    error_message = "Take-overs are counted."
  }
  assert {
    condition     = endswith(google_logging_metric.duration.filter, " AND jsonPayload.outcome=\"processed\"") && google_logging_metric.duration.value_extractor == "EXTRACT(jsonPayload.milliseconds)" && google_logging_metric.duration.metric_descriptor[0].value_type == "DISTRIBUTION" && google_logging_metric.duration.metric_descriptor[0].unit == "ms"
    error_message = "The time of runs that were done is measured."
  }
  assert {
    condition     = google_logging_metric.duration.bucket_options[0].exponential_buckets[0].scale * pow(google_logging_metric.duration.bucket_options[0].exponential_buckets[0].growth_factor, google_logging_metric.duration.bucket_options[0].exponential_buckets[0].num_finite_buckets) > 1800000
    error_message = "The buckets reach as far as the longest attempt, 30 minutes."
  }

  assert {
    condition     = [for tile in jsondecode(google_monitoring_dashboard.runs.dashboard_json).mosaicLayout.tiles : tile.widget.title] == ["Outcomes per minute", "Duration of a run, 99th percentile (ms)", "Duplicates per minute: done before, or in progress", "Take-overs per minute: runs of attempts that died", "What went wrong"]
    error_message = "The dashboard shows outcomes, duration, duplicates, take-overs, and what went wrong."
  }
  assert {
    condition     = [for tile in jsondecode(google_monitoring_dashboard.runs.dashboard_json).mosaicLayout.tiles : regex("logging.googleapis.com/user/([a-z-]+)", tile.widget.xyChart.dataSets[0].timeSeriesQuery.timeSeriesFilter.filter)[0] if can(tile.widget.xyChart)] == ["scheduled-job-outcomes", "scheduled-job-duration", "scheduled-job-outcomes", "scheduled-job-take-overs"]
    error_message = "Each chart shows the metric of its title."
  }
  assert {
    condition     = one([for tile in jsondecode(google_monitoring_dashboard.runs.dashboard_json).mosaicLayout.tiles : tile.widget.logsPanel.filter if can(tile.widget.logsPanel)]) == "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"scheduled-job\" AND resource.labels.location=\"us-central1\" AND severity>=WARNING"
    error_message = "What went wrong is shown as the function's own lines."
  }
  assert {
    condition     = google_monitoring_dashboard.runs.project == "my-project" && jsondecode(google_monitoring_dashboard.runs.dashboard_json).displayName == "scheduled-job: scheduled runs"
    error_message = "The dashboard is named after the function."
  }
}

run "alerts_go_to_channels_and_match_all_jobs" {
  command = plan

  variables {
    name                  = "reports"
    schedule              = "0 7 * * 1"
    scheduler_region      = "europe-west1"
    labels                = { team = "exports" }
    notification_channels = ["projects/my-project/notificationChannels/123"]
    jobs = {
      by-the-hour  = { schedule = "5 * * * *" }
      every-20-min = { schedule = "*/20 * * * *" }
      every-90-min = { schedule = "*/90 * * * *" } # which is hourly
      twice-a-day  = { schedule = "0 */12 * * *" }
      at-home      = { schedule = "30 2 * * *", time_zone = "Europe/Zurich" }
      on-weekdays  = { schedule = "0 9 * * 1-5" }
      in-the-day   = { schedule = "*/30 8-18 * * *" }
      is-paused    = { schedule = "5 * * * *", paused = true }
      says-so      = { schedule = "0 9 1 * *", missed_after_seconds = 2764800 }
      says-no      = { schedule = "5 * * * *", missed_after_seconds = 0 }
    }
  }

  assert {
    condition     = { for id, policy in google_monitoring_alert_policy.missed : id => policy.conditions[0].display_name } == { at-home = "no run done for 90570 s", by-the-hour = "no run done for 4170 s", every-20-min = "no run done for 1770 s", every-90-min = "no run done for 4170 s", says-so = "no run done for 2764800 s", twice-a-day = "no run done for 43770 s" }
    error_message = "A plain schedule tells when a run is missed, an hour later where clocks are put back; any other must say so."
  }
  assert {
    condition     = alltrue([for policy in concat(values(google_monitoring_alert_policy.log), values(google_monitoring_alert_policy.missed)) : policy.notification_channels == tolist(["projects/my-project/notificationChannels/123"]) && policy.user_labels == tomap({ team = "exports" })])
    error_message = "All alerts go to the channels, with the labels."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.log["attempt-failed"].conditions[0].condition_matched_log[0].filter, "resource.labels.location=\"europe-west1\" AND resource.labels.job_id=(\"at-home\" OR \"by-the-hour\" OR \"every-20-min\" OR \"every-90-min\" OR \"in-the-day\" OR \"is-paused\" OR \"on-weekdays\" OR \"reports\" OR \"says-no\" OR \"says-so\" OR \"twice-a-day\")")
    error_message = "The alert on Cloud Scheduler's attempts matches all jobs, where they are."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.missed["by-the-hour"].conditions[0].condition_prometheus_query_language[0].query, "user_reports_outcomes{monitored_resource=\"cloud_run_revision\",service_name=\"reports\",scheduler_job=\"by-the-hour\",outcome=\"processed\"}[4170s]")
    error_message = "Each job is missed by itself."
  }
}
