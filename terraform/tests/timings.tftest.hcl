# The timings that follow from timeout_seconds, and those that may be set by hand. Every run here also shows that no check fails.
# That a retry is left when an attempt dies is shown by tests/template/terraform/test_timings.py, on the function's own rule.

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

run "an_attempt_of_120_s_is_the_default" {
  command = plan

  variables {
    schedule = "*/5 * * * *" # as close as ticks may come
  }

  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].attempt_deadline == "120s"
    error_message = "The attempt deadline is the timeout."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].retry_count == 5
    error_message = "There are five retries."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].max_retry_duration == "0s"
    error_message = "No time limit ends them."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].min_backoff_duration == "10s"
    error_message = "The first comes after 10 s."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].max_backoff_duration == "3600s"
    error_message = "None is more than an hour after the one before."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].max_doublings == 5
    error_message = "The wait doubles five times."
  }
  assert {
    condition = jsonencode(output.timings["scheduled-job"]) == jsonencode({
      attempt_deadline = 120, lease = 120, max_backoff = 3600, max_doublings = 5, max_retry_duration = 0, min_backoff = 10
      retention        = 86400, retries = [10, 30, 70, 150, 310], retry_count = 5, timeout = 120
    })
    error_message = "The output timings says it all."
  }
}

run "an_attempt_of_15_s" {
  command = plan

  variables {
    timeout_seconds = 15
    schedule        = "* * * * *"
  }

  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].attempt_deadline == "15s" && output.timings["scheduled-job"].lease == 15
    error_message = "Attempt deadline and lease are the timeout."
  }
  assert {
    condition     = output.timings["scheduled-job"].retries == [3, 9, 21, 45, 93]
    error_message = "The fourth retry comes after the lease, the fifth after timeout and lease."
  }
}

run "an_attempt_of_540_s" {
  command = plan

  variables {
    timeout_seconds = 540
    schedule        = "*/20 * * * *"
  }

  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].attempt_deadline == "540s" && output.timings["scheduled-job"].lease == 540
    error_message = "Attempt deadline and lease are the timeout."
  }
  assert {
    condition     = output.timings["scheduled-job"].retries == [38, 114, 266, 570, 1178]
    error_message = "The fourth retry comes after the lease, the fifth after timeout and lease."
  }
}

run "an_attempt_of_1800_s" {
  command = plan

  variables {
    timeout_seconds = 1800
  }

  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].attempt_deadline == "1800s" && output.timings["scheduled-job"].lease == 1800
    error_message = "Attempt deadline and lease are the timeout."
  }
  assert {
    condition     = output.timings["scheduled-job"].retries == [122, 366, 854, 1830, 3782]
    error_message = "The fourth retry comes after the lease, the fifth after timeout and lease."
  }
}

run "what_is_set_for_all_jobs_or_for_one" {
  command = plan

  variables {
    timeout_seconds            = 10
    attempt_deadline_seconds   = 60
    lease_seconds              = 90
    retention_seconds          = 604800
    retry_count                = 4
    max_retry_duration_seconds = 600
    min_backoff_seconds        = 20
    max_backoff_seconds        = 100
    max_doublings              = 2
    jobs = {
      its-own = {
        schedule                   = "0 * * * *"
        attempt_deadline_seconds   = 15
        retry_count                = 3
        max_retry_duration_seconds = 0
        min_backoff_seconds        = 40
        max_backoff_seconds        = 50
        max_doublings              = 1
      }
    }
  }

  assert {
    condition = jsonencode(output.timings["scheduled-job"]) == jsonencode({
      attempt_deadline = 60, lease = 90, max_backoff = 100, max_doublings = 2, max_retry_duration = 600, min_backoff = 20
      retention        = 604800, retries = [20, 60, 140, 240, 340, 440, 540], retry_count = 4, timeout = 10
    })
    error_message = "What is set rules, and retries go on until both limits are reached."
  }
  assert {
    condition = jsonencode(output.timings["its-own"]) == jsonencode({
      attempt_deadline = 15, lease = 90, max_backoff = 50, max_doublings = 1, max_retry_duration = 0, min_backoff = 40
      retention        = 604800, retries = [40, 90, 140], retry_count = 3, timeout = 10
    })
    error_message = "A job has timings of its own; the lease is the function's."
  }
  assert {
    condition = {
      for id, job in google_cloud_scheduler_job.job : id => "${job.attempt_deadline} ${job.retry_config[0].retry_count} ${job.retry_config[0].max_retry_duration} ${job.retry_config[0].min_backoff_duration} ${job.retry_config[0].max_backoff_duration} ${job.retry_config[0].max_doublings}"
      } == {
      scheduled-job = "60s 4 600s 20s 100s 2"
      its-own       = "15s 3 0s 40s 50s 1"
    }
    error_message = "Cloud Scheduler is told so."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_LEASE_SECONDS"] == "90" && google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_RETENTION_SECONDS"] == "604800"
    error_message = "The function is told so."
  }
}

run "what_is_left_open_follows_from_what_is_set" {
  command = plan

  variables {
    schedule = "0 */2 * * *"
    jobs = {
      one-retry     = { schedule = "0 */2 * * *", retry_count = 1 }
      two-retries   = { schedule = "0 */2 * * *", retry_count = 2 }
      three-retries = { schedule = "0 */2 * * *", retry_count = 3 }
      four-retries  = { schedule = "0 */2 * * *", retry_count = 4 }
      one-doubling  = { schedule = "0 */2 * * *", max_doublings = 1 }
      long-deadline = { schedule = "0 */2 * * *", attempt_deadline_seconds = 1800 }
    }
  }

  assert {
    condition     = alltrue([for timings in output.timings : timings.lease == 1800])
    error_message = "The function's lease is that of the job that is waited for longest."
  }
  assert {
    condition     = { for id, timings in output.timings : id => timings.min_backoff } == { four-retries = 260, long-deadline = 122, one-doubling = 141, one-retry = 1931, scheduled-job = 122, three-retries = 602, two-retries = 1802 }
    error_message = "The first wait follows from the number of retries and of doublings."
  }
  assert {
    condition     = alltrue([for timings in output.timings : timings.retries[timings.retry_count - 1] > 120 + 1800 + 10])
    error_message = "The last retry comes after timeout and lease."
  }
  assert {
    condition     = alltrue([for timings in output.timings : timings.retry_count == 1 ? true : timings.retries[timings.retry_count - 2] > 1800])
    error_message = "The last but one comes after the lease."
  }
}

run "the_nearest_timings_that_are_taken" {
  command = plan

  variables {
    lease_seconds     = 300
    retention_seconds = 14042 # the retries of deadline-1800 may go on for 13621 s, and an attempt for 420 s
    allow_no_retries  = true
    jobs = {
      backoffs-of-434 = { schedule = "0 * * * *", min_backoff_seconds = 14 }
      all-alike       = { schedule = "0 * * * *", min_backoff_seconds = 87, max_backoff_seconds = 87 }
      deadline-1800   = { schedule = "0 0 * * *", attempt_deadline_seconds = 1800, min_backoff_seconds = 91 }
      deadline-120    = { schedule = "0 * * * *", attempt_deadline_seconds = 120 }
      one-doubling    = { schedule = "0 * * * *", max_doublings = 1 }
      no-retries      = { schedule = "0 * * * *", retry_count = 0 }
      by-time-alone   = { schedule = "0 * * * *", retry_count = 0, max_retry_duration_seconds = 800, max_backoff_seconds = 300 }
    }
  }

  assert {
    condition     = output.timings["backoffs-of-434"].retries[4] == 434 && output.timings["all-alike"].retries[4] == 435
    error_message = "Retries that go on for more than timeout, lease and 10 s are taken."
  }
  assert {
    condition     = output.timings["no-retries"].retries == []
    error_message = "A job has no retries where that is said twice."
  }
  assert {
    condition     = output.timings["by-time-alone"].retries == [5, 15, 35, 75, 155, 315, 615]
    error_message = "A time limit alone makes retries."
  }
}

run "without_renewal_the_retries_outlast_the_lease_alone" {
  command = plan

  variables {
    renew_lease         = false
    lease_seconds       = 184
    min_backoff_seconds = 13
    retry_count         = 4 # 13 + 26 + 52 + 104 = 195
    jobs                = { for-two-days = { schedule = "0 0 1 * *", max_retry_duration_seconds = 172800, max_backoff_seconds = 3600.5 } }
  }

  assert {
    condition     = output.timings["scheduled-job"].lease == 184 && output.timings["scheduled-job"].retries[3] == 195
    error_message = "An attempt that dies holds its run for its lease, and no longer."
  }
  assert {
    condition     = output.timings["scheduled-job"].retention == 172800 + 3601 + 120 + 120 + 184 + 1
    error_message = "Where retries go on for more than a day, so do the records, for whole seconds."
  }
}
