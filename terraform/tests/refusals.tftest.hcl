# Timings by which a run could be lost, each refused in the plan. The nearest timings that are taken are in timings.tftest.hcl;
# tests/template/terraform/test_refusals.py reads what each refusal says, and sees that nothing else refuses it.

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

run "an_attempt_deadline_of_1801_s_is_refused" {
  command = plan

  variables {
    timeout_seconds          = 1800
    attempt_deadline_seconds = 1801
  }

  expect_failures = [google_cloud_scheduler_job.job]
}

run "a_lease_below_the_deadline_is_refused_without_renewal" {
  command = plan

  variables {
    renew_lease              = false
    lease_seconds            = 60
    attempt_deadline_seconds = 180
  }

  expect_failures = [google_cloud_scheduler_job.job]
}

run "no_retries_are_refused_unless_they_are_allowed" {
  command = plan

  variables {
    retry_count = 0
  }

  expect_failures = [google_cloud_scheduler_job.job]
}

run "five_retries_of_5_s_are_refused_with_a_lease_of_300_s" {
  command = plan

  variables {
    lease_seconds       = 300
    min_backoff_seconds = 5
  }

  expect_failures = [google_cloud_scheduler_job.job]
}

run "a_retention_that_ends_with_the_retries_is_refused" {
  command = plan

  variables {
    retention_seconds = 1270 # 310 s of waits, 6 attempts of 120 s, and timeout and lease
  }

  expect_failures = [google_cloud_scheduler_job.job]
}

run "the_shortest_gap_between_ticks_counts" {
  command = plan

  variables {
    schedule = "*/7 * * * *" # it comes at 56, and again at 0
  }

  expect_failures = [check.retries_end_before_the_next_tick]
}
