# What the log lines say, counted: one line a delivery, with its outcome. The dashboard shows nothing for the first minutes of a metric.

locals {
  charts = [
    {
      title   = "Outcomes per minute"
      metric  = google_logging_metric.outcomes.name
      type    = "STACKED_BAR"
      reducer = "REDUCE_SUM"
      by      = ["metric.label.outcome"]
      where   = ""
    },
    {
      title   = "Duration of a run, 99th percentile (ms)"
      metric  = google_logging_metric.duration.name
      type    = "LINE"
      reducer = "REDUCE_PERCENTILE_99"
      by      = ["metric.label.scheduler_job"]
      where   = ""
    },
    {
      title   = "Duplicates per minute: done before, or in progress"
      metric  = google_logging_metric.outcomes.name
      type    = "STACKED_BAR"
      reducer = "REDUCE_SUM"
      by      = ["metric.label.scheduler_job", "metric.label.outcome"]
      where   = " AND metric.label.outcome=one_of(\"duplicate_skipped\", \"failed_before\", \"in_progress\")"
    },
    {
      title   = "Take-overs per minute: runs of attempts that died"
      metric  = google_logging_metric.take_overs.name
      type    = "STACKED_BAR"
      reducer = "REDUCE_SUM"
      by      = ["metric.label.scheduler_job"]
      where   = ""
    },
  ]
}

resource "google_logging_metric" "outcomes" {
  project     = var.project_id
  name        = "${var.name}-outcomes"
  description = "Deliveries to ${var.name}, by job and outcome."
  filter      = "jsonPayload.outcome:* AND ((${local.of_function}) OR (${local.of_work}))"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    labels {
      key = "scheduler_job"
    }
    labels {
      key = "outcome"
    }
  }
  label_extractors = {
    scheduler_job = "EXTRACT(jsonPayload.job_name)"
    outcome       = "EXTRACT(jsonPayload.outcome)"
  }

  depends_on = [google_project_service.api]
}

resource "google_logging_metric" "take_overs" {
  project     = var.project_id
  name        = "${var.name}-take-overs"
  description = "Runs of ${var.name} that were taken over from an attempt that died, by job."
  filter      = "${local.of_function} AND jsonPayload.outcome:* AND jsonPayload.attempt>1"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    labels {
      key = "scheduler_job"
    }
  }
  label_extractors = {
    scheduler_job = "EXTRACT(jsonPayload.job_name)"
  }

  depends_on = [google_project_service.api]
}

resource "google_logging_metric" "duration" {
  project     = var.project_id
  name        = "${var.name}-duration"
  description = "How long runs of ${var.name} took from request to answer, by job."
  filter      = "${local.of_function} AND jsonPayload.outcome=\"processed\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "ms"
    labels {
      key = "scheduler_job"
    }
  }
  value_extractor = "EXTRACT(jsonPayload.milliseconds)"
  label_extractors = {
    scheduler_job = "EXTRACT(jsonPayload.job_name)"
  }
  bucket_options {
    exponential_buckets {
      num_finite_buckets = 48
      growth_factor      = 1.5
      scale              = 1
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_dashboard" "runs" {
  project = var.project_id
  dashboard_json = jsonencode({
    displayName = "${var.name}: scheduled runs"
    mosaicLayout = {
      columns = 12
      tiles = concat(
        [
          for place, chart in local.charts : {
            xPos   = place % 2 * 6
            yPos   = floor(place / 2) * 4
            width  = 6
            height = 4
            widget = {
              title = chart.title
              xyChart = {
                dataSets = [{
                  plotType = chart.type
                  timeSeriesQuery = {
                    timeSeriesFilter = {
                      filter = "metric.type=\"logging.googleapis.com/user/${chart.metric}\" AND resource.type=\"cloud_run_revision\"${chart.where}"
                      aggregation = {
                        alignmentPeriod    = "60s"
                        perSeriesAligner   = "ALIGN_DELTA"
                        crossSeriesReducer = chart.reducer
                        groupByFields      = chart.by
                      }
                    }
                  }
                }]
              }
            }
          }
        ],
        [{
          xPos   = 0
          yPos   = 8
          width  = 12
          height = 4
          widget = {
            title     = "What went wrong"
            logsPanel = { filter = "${local.of_function} AND severity>=WARNING" }
          }
        }],
      )
    }
  })

  depends_on = [google_project_service.api]
}
