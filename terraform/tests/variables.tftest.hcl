# What variables refuse, and the nearest values that they take. What each refusal says is read by tests/template/terraform/test_refusals.py.

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

run "malformed_values_are_refused" {
  command = plan

  variables {
    project_id            = "123456789"
    region                = "us-central1-a"
    schedule              = "every 5 minutes"
    name                  = "My_Job"
    time_zone             = "UTC+1"
    environment           = { DEDUP_LEASE_SECOND = "1" } # misspelt
    timeout_seconds       = 1801
    lease_seconds         = 0
    retention_seconds     = 0
    retry_count           = 6
    scope                 = "X-Job-Project"
    manual_runs           = "skip"
    database_id           = "UPPER"
    runtime               = "python310"
    concurrency           = 10
    cpu                   = 0.5
    memory                = "512"
    min_instances         = -1
    ingress               = "all"
    log_level             = "TRACE"
    missed_after_seconds  = 59
    notification_channels = ["on-call"]
    scheduler_region      = "eu"
    callers               = ["operator"]
  }

  expect_failures = [
    var.project_id, var.region, var.schedule, var.name, var.time_zone, var.environment, var.timeout_seconds, var.lease_seconds, var.retention_seconds,
    var.retry_count, var.scope, var.manual_runs, var.database_id, var.runtime, var.concurrency, var.memory, var.min_instances,
    var.ingress, var.log_level, var.missed_after_seconds, var.notification_channels, var.scheduler_region,
    var.callers,
  ]
}

run "a_folder_without_the_job_is_refused" {
  command = plan

  variables {
    source_dir = "./tests"
  }

  expect_failures = [var.source_dir] # store and database_id aren't looked at after it
}

run "other_values_are_refused_too" {
  command = plan

  variables {
    schedule                     = "30 2 * *"
    jobs                         = { groc = { schedule = "every 5 minutes" } }
    create_database              = false
    secret_environment_variables = { API_KEY = { secret = "projects/my-project/secrets/api-key" } }
    cpu                          = 3
    min_instances                = 11
  }

  expect_failures = [
    var.schedule, var.jobs, var.database_id, var.secret_environment_variables, var.cpu, var.max_instances,
  ]
}

run "the_nearest_values_that_are_taken" {
  command = plan

  variables {
    project_id                   = "six-66"
    region                       = "northamerica-northeast1"
    schedule                     = "*/20,5 0-5/2,12 1 JAN-MAR MON"
    name                         = "exactly-twenty-chars"
    time_zone                    = "America/Argentina/Buenos_Aires"
    jobs                         = { another = { schedule = "30  */7 * * *", retry_count = 0, max_retry_duration_seconds = 20000 } }
    timeout_seconds              = 1
    lease_seconds                = 3600
    retention_seconds            = 1000000000
    retry_count                  = 1
    min_backoff_seconds          = 3612
    max_backoff_seconds          = 3612
    scope                        = "header:X-Job-Project, query:tenant,path"
    manual_runs                  = "refuse"
    database_id                  = "four"
    runtime                      = "python311"
    environment                  = { MY_DEDUP_ = "1" }
    secret_environment_variables = { API_KEY = { secret = "api_key-1" } }
    concurrency                  = 1000
    cpu                          = 8
    memory                       = "16Gi"
    min_instances                = 1
    max_instances                = 1
    ingress                      = "ALLOW_INTERNAL_AND_GCLB"
    log_level                    = "ERROR"
    missed_after_seconds         = 60
    notification_channels        = ["projects/another-project/notificationChannels/1"]
    scheduler_region             = "europe-west12"
  }

  assert {
    condition     = google_service_account.scheduler.account_id == "exactly-twenty-chars-scheduler" && length(google_service_account.scheduler.account_id) == 30
    error_message = "The longest name makes the longest account id that Google takes."
  }
  assert {
    condition     = google_cloud_scheduler_job.job["exactly-twenty-chars"].schedule == "*/20,5 0-5/2,12 1 JAN-MAR MON"
    error_message = "unix-cron is taken in all its forms."
  }
}

run "null_is_the_default" {
  command = plan

  variables {
    name                         = null
    time_zone                    = null
    paused                       = null
    jobs                         = null
    timeout_seconds              = null
    attempt_deadline_seconds     = null
    lease_seconds                = null
    renew_lease                  = null
    retention_seconds            = null
    retry_count                  = null
    allow_no_retries             = null
    max_retry_duration_seconds   = null
    min_backoff_seconds          = null
    max_backoff_seconds          = null
    max_doublings                = null
    scope                        = null
    manual_runs                  = null
    create_database              = null
    database_id                  = null
    database_location            = null
    delete_database              = null
    runtime                      = null
    environment                  = null
    secret_environment_variables = null
    concurrency                  = null
    cpu                          = null
    memory                       = null
    min_instances                = null
    max_instances                = null
    ingress                      = null
    log_level                    = null
    missed_after_seconds         = null
    notification_channels        = null
    scheduler_region             = null
    labels                       = null
  }

  assert {
    condition     = google_cloud_scheduler_job.job["scheduled-job"].time_zone == "Etc/UTC" && google_cloud_scheduler_job.job["scheduled-job"].paused == false && google_cloud_scheduler_job.job["scheduled-job"].retry_config[0].retry_count == 5
    error_message = "A module that hands null on gets the default."
  }
}
