# The stores beside Firestore: what is made for each, who may use it, what the function opens, and what is refused. That the roles here are
# all of them is shown by tests/template/terraform/test_iam.py.

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
  source_dir = "./tests/other_stores"
}

run "firestore_needs_nothing_of_the_others" {
  command = plan

  variables {
    environment = { REDIS_CA = "the job's own" }
  }

  assert {
    condition     = length(google_firestore_database.runs) == 1 && length(google_spanner_instance.runs) + length(google_spanner_database.runs) + length(google_memorystore_instance.runs) == 0
    error_message = "Without a word on stores there is a Firestore database, and nothing of Spanner or Memorystore."
  }
  assert {
    condition     = length(google_spanner_database_iam_member.runtime_database_user) + length(google_project_iam_member.runtime_memorystore_user) == 0
    error_message = "Nobody is given a role on Spanner or Memorystore."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "firestore://my-project/scheduled-job-runs-beef?collection=scheduler_runs"
    error_message = "The function opens the Firestore database."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["REDIS_CA"] == "the job's own"
    error_message = "A name is free that only Memorystore needs."
  }
  assert {
    condition     = length(google_cloudfunctions2_function.job.service_config[0].direct_vpc_network_interface) == 0
    error_message = "The function is in no VPC."
  }
}

run "spanner_is_created" {
  command = plan

  variables {
    store = "spanner"
  }

  assert {
    condition     = length(google_firestore_database.runs) + length(google_firestore_field.expire_at) + length(google_firestore_field.unindexed) + length(google_firestore_field.schedule_time) + length(google_firestore_index.listed_by) + length(google_project_iam_member.runtime_datastore_user) == 0
    error_message = "There is nothing of Firestore."
  }
  assert {
    condition     = length(google_memorystore_instance.runs) + length(google_project_iam_member.runtime_memorystore_user) == 0
    error_message = "There is nothing of Memorystore."
  }
  assert {
    condition     = setsubtract(keys(google_project_service.api), ["firestore.googleapis.com", "memorystore.googleapis.com"]) == toset(keys(google_project_service.api)) && contains(keys(google_project_service.api), "spanner.googleapis.com")
    error_message = "Of the stores' APIs, Spanner's alone is enabled."
  }

  assert {
    condition     = google_spanner_instance.runs[0].name == "scheduled-job-runs-beef" && google_spanner_instance.runs[0].project == "my-project"
    error_message = "The instance ends in letters that are drawn anew with each deployment."
  }
  assert {
    condition     = google_spanner_instance.runs[0].config == "regional-us-central1" && google_spanner_instance.runs[0].edition == "STANDARD"
    error_message = "The instance is in the function's region, of the edition that needs no other."
  }
  assert {
    condition     = google_spanner_instance.runs[0].processing_units == 100
    error_message = "The instance is the smallest that there is."
  }
  assert {
    condition     = google_spanner_instance.runs[0].deletion_policy == "ABANDON" && google_spanner_instance.runs[0].force_destroy == false
    error_message = "Destroy leaves the instance."
  }
  assert {
    condition     = google_spanner_instance.runs[0].default_backup_schedule_type == "NONE"
    error_message = "No backups are made, which would keep the instance from being deleted."
  }
  assert {
    condition     = google_spanner_database.runs[0].instance == "scheduled-job-runs-beef" && google_spanner_database.runs[0].name == "scheduled-job-runs-beef" && google_spanner_database.runs[0].project == "my-project"
    error_message = "The database is on the instance."
  }
  assert {
    condition     = google_spanner_database.runs[0].database_dialect == "GOOGLE_STANDARD_SQL"
    error_message = "The database speaks the dialect of the statement."
  }
  assert {
    condition     = length(google_spanner_database.runs[0].ddl) == 1 && startswith(google_spanner_database.runs[0].ddl[0], "CREATE TABLE IF NOT EXISTS scheduler_runs (\n    run_id ") && endswith(google_spanner_database.runs[0].ddl[0], "ROW DELETION POLICY (OLDER_THAN(expire_at, INTERVAL 0 DAY))")
    error_message = "The table comes from dedup/stores/spanner.sql, with its row deletion policy."
  }
  assert {
    condition     = !strcontains(google_spanner_database.runs[0].ddl[0], "--")
    error_message = "The statement has no comments."
  }
  assert {
    condition     = google_spanner_database.runs[0].deletion_policy == "ABANDON" && google_spanner_database.runs[0].enable_drop_protection == true && google_spanner_database.runs[0].deletion_protection == false
    error_message = "Destroy leaves the database, protected from everybody, and isn't stopped by it."
  }

  assert {
    condition     = google_spanner_database_iam_member.runtime_database_user[0].role == "roles/spanner.databaseUser" && google_spanner_database_iam_member.runtime_database_user[0].member == "serviceAccount:runtime@my-project.iam.gserviceaccount.com"
    error_message = "The function's account reads and writes."
  }
  assert {
    condition     = google_spanner_database_iam_member.runtime_database_user[0].instance == "scheduled-job-runs-beef" && google_spanner_database_iam_member.runtime_database_user[0].database == "scheduled-job-runs-beef" && google_spanner_database_iam_member.runtime_database_user[0].project == "my-project"
    error_message = "The function's account gets at the database of the runs alone."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "spanner://my-project/scheduled-job-runs-beef/scheduled-job-runs-beef"
    error_message = "The function opens the database."
  }
  assert {
    condition     = output.database == "scheduled-job-runs-beef/scheduled-job-runs-beef"
    error_message = "The output names instance and database."
  }
}

run "spanner_may_be_deleted_with_the_rest" {
  command = plan

  variables {
    store             = "spanner"
    database_id       = "export_runs"
    database_location = "europe-west1"
    delete_database   = true
    labels            = { team = "exports" }
  }

  assert {
    condition     = google_spanner_database.runs[0].name == "export_runs" && google_spanner_instance.runs[0].name == "scheduled-job-runs-beef" && google_spanner_instance.runs[0].display_name == "scheduled-job-runs-beef"
    error_message = "database_id names the database."
  }
  assert {
    condition     = google_spanner_instance.runs[0].config == "regional-europe-west1" && google_spanner_instance.runs[0].labels == tomap({ team = "exports" })
    error_message = "database_location and labels are the instance's."
  }
  assert {
    condition     = google_spanner_instance.runs[0].deletion_policy == "DELETE" && google_spanner_instance.runs[0].force_destroy == true
    error_message = "Destroy deletes the instance."
  }
  assert {
    condition     = google_spanner_database.runs[0].deletion_policy == "DELETE" && google_spanner_database.runs[0].enable_drop_protection == false
    error_message = "Destroy deletes the database."
  }
}

run "a_spanner_instance_that_is_there_gets_a_database" {
  command = plan

  variables {
    store            = "spanner"
    spanner_instance = "main"
  }

  assert {
    condition     = length(google_spanner_instance.runs) == 0 && google_spanner_database.runs[0].instance == "main"
    error_message = "The database is made on the instance that is there."
  }
  assert {
    condition     = output.database == "main/scheduled-job-runs-beef"
    error_message = "The output names the instance that is there."
  }
}

run "a_spanner_database_that_is_there_is_used" {
  command = plan

  variables {
    store            = "spanner"
    create_database  = false
    spanner_instance = "main"
    database_id      = "orders"
  }

  assert {
    condition     = length(google_spanner_instance.runs) + length(google_spanner_database.runs) == 0
    error_message = "Nothing is created."
  }
  assert {
    condition     = google_spanner_database_iam_member.runtime_database_user[0].instance == "main" && google_spanner_database_iam_member.runtime_database_user[0].database == "orders"
    error_message = "The function's account reads and writes that database, and no other."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "spanner://my-project/main/orders"
    error_message = "The function opens the database that is there."
  }
}

run "memorystore_is_created" {
  command = plan

  variables {
    store   = "memorystore"
    network = "default"
    labels  = { team = "exports" }
  }

  assert {
    condition     = length(google_firestore_database.runs) + length(google_firestore_field.expire_at) + length(google_firestore_field.unindexed) + length(google_firestore_field.schedule_time) + length(google_firestore_index.listed_by) + length(google_project_iam_member.runtime_datastore_user) == 0
    error_message = "There is nothing of Firestore."
  }
  assert {
    condition     = length(google_spanner_instance.runs) + length(google_spanner_database.runs) + length(google_spanner_database_iam_member.runtime_database_user) == 0
    error_message = "There is nothing of Spanner."
  }
  assert {
    condition     = setsubtract(keys(google_project_service.api), ["firestore.googleapis.com", "spanner.googleapis.com"]) == toset(keys(google_project_service.api)) && contains(keys(google_project_service.api), "memorystore.googleapis.com")
    error_message = "Of the stores' APIs, Memorystore's alone is enabled."
  }

  assert {
    condition     = google_memorystore_instance.runs[0].instance_id == "scheduled-job-runs-beef" && google_memorystore_instance.runs[0].location == "us-central1" && google_memorystore_instance.runs[0].project == "my-project" && google_memorystore_instance.runs[0].labels == tomap({ team = "exports" })
    error_message = "The instance is in the function's region, and its name is drawn anew with each deployment."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].mode == "CLUSTER_DISABLED" && google_memorystore_instance.runs[0].shard_count == 1
    error_message = "The instance is no cluster: the store follows no redirection."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].replica_count == 1 && google_memorystore_instance.runs[0].node_type == "STANDARD_SMALL"
    error_message = "A replica takes over from the server, on nodes with a service level."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].persistence_config[0].mode == "AOF" && google_memorystore_instance.runs[0].persistence_config[0].aof_config[0].append_fsync == "ALWAYS"
    error_message = "What was acknowledged is on disk."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].engine_configs == tomap({ maxmemory-policy = "noeviction" })
    error_message = "A full server forgets no run."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].authorization_mode == "IAM_AUTH" && google_memorystore_instance.runs[0].transit_encryption_mode == "SERVER_AUTHENTICATION"
    error_message = "One gets in by IAM, and over TLS."
  }
  assert {
    condition     = [for endpoint in google_memorystore_instance.runs[0].desired_auto_created_endpoints : "${endpoint.network} ${endpoint.project_id}"] == ["projects/my-project/global/networks/default my-project"]
    error_message = "The instance is reached from the network."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].deletion_policy == "ABANDON" && google_memorystore_instance.runs[0].deletion_protection_enabled == true
    error_message = "Destroy leaves the instance, protected from everybody."
  }

  assert {
    condition     = google_project_iam_member.runtime_memorystore_user[0].role == "roles/memorystore.dbConnectionUser" && google_project_iam_member.runtime_memorystore_user[0].member == "serviceAccount:runtime@my-project.iam.gserviceaccount.com" && google_project_iam_member.runtime_memorystore_user[0].project == "my-project"
    error_message = "The function's account may connect."
  }
  assert {
    condition     = google_project_iam_member.runtime_memorystore_user[0].condition[0].expression == "resource.name == \"projects/my-project/locations/us-central1/instances/scheduled-job-runs-beef\""
    error_message = "The function's account gets at the instance of the runs alone."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "rediss://10.128.0.2:6379/0?ca=env:REDIS_CA&auth=iam"
    error_message = "The function opens the primary, by TLS and IAM."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["REDIS_CA"] == "root\nnew\nchain"
    error_message = "The function is given all certificates of the instance's authority."
  }
  assert {
    condition     = [for interface in google_cloudfunctions2_function.job.service_config[0].direct_vpc_network_interface : interface.network] == ["default"] && google_cloudfunctions2_function.job.service_config[0].direct_vpc_egress == "VPC_EGRESS_PRIVATE_RANGES_ONLY"
    error_message = "The function reaches the network, and the internet as before."
  }
  assert {
    condition     = output.database == "scheduled-job-runs-beef"
    error_message = "The output names the instance."
  }
}

run "memorystore_may_be_deleted_with_the_rest" {
  command = plan

  variables {
    store           = "memorystore"
    database_id     = "export-runs"
    delete_database = true
    network         = "projects/net-project/global/networks/shared"
    subnetwork      = "functions"
  }

  assert {
    condition     = google_memorystore_instance.runs[0].instance_id == "export-runs" && google_memorystore_instance.runs[0].deletion_policy == "DELETE" && google_memorystore_instance.runs[0].deletion_protection_enabled == false
    error_message = "Destroy deletes the instance, which database_id names."
  }
  assert {
    condition     = google_memorystore_instance.runs[0].desired_auto_created_endpoints[0].network == "projects/net-project/global/networks/shared"
    error_message = "The network may be another project's."
  }
  assert {
    condition     = [for interface in google_cloudfunctions2_function.job.service_config[0].direct_vpc_network_interface : "${interface.network} ${interface.subnetwork}"] == ["projects/net-project/global/networks/shared functions"]
    error_message = "The function is in the subnetwork."
  }
}

run "a_redis_server_that_is_there_is_used" {
  command = plan

  variables {
    store           = "memorystore"
    create_database = false
    memorystore     = { host = "10.0.0.3" }
    network         = "default"
  }

  assert {
    condition     = length(google_memorystore_instance.runs) + length(google_project_iam_member.runtime_memorystore_user) == 0 && !contains(keys(google_project_service.api), "memorystore.googleapis.com")
    error_message = "Nothing is created, and no role is given on a server that knows none."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "redis://10.0.0.3:6379/0"
    error_message = "The function opens the server."
  }
  assert {
    condition     = !contains(keys(google_cloudfunctions2_function.job.service_config[0].environment_variables), "REDIS_CA")
    error_message = "There is no certificate authority to give."
  }
  assert {
    condition     = output.database == "10.0.0.3:6379"
    error_message = "The output says where the server is."
  }
}

run "a_valkey_instance_that_is_there_is_used" {
  command = plan

  variables {
    store           = "memorystore"
    create_database = false
    memorystore     = { host = "10.0.0.3", port = 6380, ca = "PEM", instance = "projects/data-project/locations/us-central1/instances/main" }
    network         = "default"
  }

  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["DEDUP_STORE"] == "rediss://10.0.0.3:6380/0?ca=env:REDIS_CA&auth=iam"
    error_message = "The function opens the instance by TLS and IAM."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["REDIS_CA"] == "PEM"
    error_message = "The function is given the certificate authority."
  }
  assert {
    condition     = google_project_iam_member.runtime_memorystore_user[0].project == "data-project" && google_project_iam_member.runtime_memorystore_user[0].condition[0].expression == "resource.name == \"projects/data-project/locations/us-central1/instances/main\""
    error_message = "The function's account gets at that instance alone, in its project."
  }
  assert {
    condition     = output.database == "main"
    error_message = "The output names the instance."
  }
}

run "a_server_with_a_password_is_used" {
  command = plan

  variables {
    store           = "memorystore"
    create_database = false
    memorystore     = { secret = "redis-url", ca = "PEM" }
    network         = "default"
  }

  assert {
    condition     = !contains(keys(google_cloudfunctions2_function.job.service_config[0].environment_variables), "DEDUP_STORE")
    error_message = "No URL stands in clear."
  }
  assert {
    condition     = [for secret in google_cloudfunctions2_function.job.service_config[0].secret_environment_variables : "${secret.key} ${secret.secret} ${secret.version} ${secret.project_id}"] == ["DEDUP_STORE redis-url latest my-project"]
    error_message = "The URL comes out of Secret Manager."
  }
  assert {
    condition     = { for name, grant in google_secret_manager_secret_iam_member.runtime_accessor : name => "${grant.project}/${grant.secret_id}" } == { DEDUP_STORE = "my-project/redis-url" }
    error_message = "The function's account reads that secret."
  }
  assert {
    condition     = contains(keys(google_project_service.api), "secretmanager.googleapis.com")
    error_message = "Secret Manager's API is enabled."
  }
  assert {
    condition     = google_cloudfunctions2_function.job.service_config[0].environment_variables["REDIS_CA"] == "PEM"
    error_message = "The function is given the certificate authority, which the URL names."
  }
}

run "a_store_whose_library_isnt_uploaded_is_refused" {
  command = plan

  variables {
    store      = "spanner"
    source_dir = "./tests/another_job"
  }

  expect_failures = [var.store]
}

run "the_variable_of_the_authority_is_taken" {
  command = plan

  variables {
    store           = "memorystore"
    create_database = false
    memorystore     = { host = "10.0.0.3", ca = "PEM" }
    network         = "default"
    environment     = { REDIS_CA = "another" }
  }

  expect_failures = [var.environment]
}

run "what_doesnt_belong_together_is_refused" {
  command = plan

  variables {
    store            = "memorystore" # and no network
    spanner_instance = "main"
    memorystore      = { host = "10.0.0.3" } # and one that is created
  }

  expect_failures = [var.network, var.spanner_instance, var.memorystore]
}
