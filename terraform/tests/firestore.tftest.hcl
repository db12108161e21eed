# The database of the runs: whose it is, what is indexed, and what destroy leaves.

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

run "a_database_of_its_own_is_created" {
  command = plan

  assert {
    condition     = google_firestore_database.runs[0].name == "scheduled-job-runs-beef"
    error_message = "The database's id ends in letters that are drawn anew with each deployment."
  }
  assert {
    condition     = google_firestore_database.runs[0].project == "my-project"
    error_message = "The database is in the project."
  }
  assert {
    condition     = google_firestore_database.runs[0].location_id == "us-central1"
    error_message = "The database is in the function's region."
  }
  assert {
    condition     = google_firestore_database.runs[0].type == "FIRESTORE_NATIVE"
    error_message = "The database is in native mode."
  }
  assert {
    condition     = google_firestore_database.runs[0].deletion_policy == "ABANDON"
    error_message = "Destroy leaves the database: others may keep documents in it."
  }
  assert {
    condition     = google_firestore_database.runs[0].delete_protection_state == "DELETE_PROTECTION_ENABLED"
    error_message = "Nobody else deletes the database by mistake."
  }
  assert {
    condition     = random_id.database[0].byte_length == 2
    error_message = "Two bytes are drawn."
  }
  assert {
    condition     = output.database == "scheduled-job-runs-beef"
    error_message = "The output names the database."
  }

  assert {
    condition     = google_firestore_field.expire_at[0].field == "expire_at" && length(google_firestore_field.expire_at[0].ttl_config) == 1
    error_message = "Records expire by expire_at."
  }
  assert {
    condition     = length(google_firestore_field.expire_at[0].index_config) == 1 && length(google_firestore_field.expire_at[0].index_config[0].indexes) == 0
    error_message = "expire_at is not indexed."
  }
  assert {
    condition     = google_firestore_field.unindexed[0].field == "*" && length(google_firestore_field.unindexed[0].index_config) == 1 && length(google_firestore_field.unindexed[0].index_config[0].indexes) == 0
    error_message = "No field is indexed that isn't named."
  }
  assert {
    condition     = length(google_firestore_field.unindexed[0].ttl_config) == 0 && length(google_firestore_field.schedule_time[0].ttl_config) == 0
    error_message = "Records expire by one field alone."
  }
  assert {
    condition     = google_firestore_field.schedule_time[0].field == "schedule_time" && [for index in google_firestore_field.schedule_time[0].index_config[0].indexes : "${index.order} ${index.query_scope}"] == ["DESCENDING COLLECTION"]
    error_message = "All runs are listed newest first."
  }
  assert {
    condition = { for by, index in google_firestore_index.listed_by : by => [for field in index.fields : "${field.field_path} ${field.order}"] } == {
      job_name = ["job_name ASCENDING", "schedule_time DESCENDING"]
      status   = ["status ASCENDING", "schedule_time DESCENDING"]
    }
    error_message = "Runs of one job, and of one status, are listed newest first."
  }
  assert {
    condition     = alltrue([for index in google_firestore_index.listed_by : index.query_scope == "COLLECTION" && index.collection == "scheduler_runs" && index.database == "scheduled-job-runs-beef" && index.project == "my-project"])
    error_message = "The indexes are of the runs' collection."
  }
  assert {
    condition     = alltrue([for field in [google_firestore_field.expire_at[0], google_firestore_field.unindexed[0], google_firestore_field.schedule_time[0]] : field.collection == "scheduler_runs" && field.database == "scheduled-job-runs-beef" && field.project == "my-project"])
    error_message = "The fields are of the runs' collection."
  }
}

run "a_database_that_is_there_is_used" {
  command = plan

  variables {
    create_database = false
    database_id     = "(default)"
  }

  assert {
    condition     = length(google_firestore_database.runs) == 0
    error_message = "No database is created."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "firestore://my-project/(default)?collection=scheduler_runs"
    error_message = "The function uses the database that is there."
  }
  assert {
    condition     = alltrue([for field in [google_firestore_field.expire_at[0], google_firestore_field.unindexed[0], google_firestore_field.schedule_time[0]] : field.database == "(default)"]) && alltrue([for index in google_firestore_index.listed_by : index.database == "(default)"])
    error_message = "TTL and indexes are those of the database that is there."
  }
  assert {
    condition     = google_project_iam_member.runtime_datastore_user[0].condition[0].expression == "resource.name == \"projects/my-project/databases/(default)\""
    error_message = "The function's account reads and writes that database, and no other."
  }
  assert {
    condition     = output.database == "(default)"
    error_message = "The output names the database that is there."
  }
}

run "a_database_may_be_deleted_with_the_rest" {
  command = plan

  variables {
    database_id       = "export-runs"
    database_location = "nam5"
    delete_database   = true
  }

  assert {
    condition     = google_firestore_database.runs[0].name == "export-runs"
    error_message = "database_id names the database that is created."
  }
  assert {
    condition     = google_firestore_database.runs[0].location_id == "nam5"
    error_message = "database_location says where it keeps its data."
  }
  assert {
    condition     = google_firestore_database.runs[0].deletion_policy == "DELETE" && google_firestore_database.runs[0].delete_protection_state == "DELETE_PROTECTION_DISABLED"
    error_message = "Destroy deletes it."
  }
}
