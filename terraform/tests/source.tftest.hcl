# What is deployed, of folders that are these tests' own. That the archive holds what .gcloudignore lets through, byte for byte, is shown by
# tests/template/terraform/test_source.py.

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
  source_dir = "./tests/own_dedup"
}

run "a_folder_with_dedup_is_archived_as_it_is" {
  command = plan

  assert {
    condition     = data.archive_file.source.source_dir == abspath("./tests/own_dedup") && length(data.archive_file.source.source) == 0
    error_message = "The folder is archived as a whole: what it holds needn't be text."
  }
  assert {
    condition = data.archive_file.source.excludes == toset([
      "[!/./a/d]*", ".[!/]*", "a[!-/]*", "a-", "a-[!/b]*", "a-b[!/]*", "d", "d[!/e]*", "de", "de[!/d]*", "ded", "ded[!/u]*", "dedu", "dedu[!/p]*", "dedup[!/]*",
      "**/*/__pycache__/*", "**/*/*.t[!/]p", "**/*/*.t[!/]p/*", "dedup/raw/*", "old/raw", "old/raw/*", "**/*/old/raw", "**/*/old/raw/*",
    ])
    error_message = "Left out is every name at the top that isn't let through, and what a line leaves out below."
  }
  assert {
    condition     = data.archive_file.source.type == "zip" && data.archive_file.source.output_file_mode == "0644"
    error_message = "The archive is the same, whoever makes it."
  }
  assert {
    condition     = google_storage_bucket_object.source.name == "${data.archive_file.source.output_sha256}.zip"
    error_message = "The archive is named by its hash: other code is another object, and another build."
  }
  assert {
    condition     = google_storage_bucket_object.source.source == data.archive_file.source.output_path
    error_message = "The archive is what is uploaded."
  }
  assert {
    condition     = google_storage_bucket_object.source.bucket == "my-project-scheduled-job-source"
    error_message = "The archive is in the source's bucket."
  }
  assert {
    condition     = google_storage_bucket.source.name == "my-project-scheduled-job-source" && google_storage_bucket.source.project == "my-project" && google_storage_bucket.source.location == "us-central1"
    error_message = "The bucket is the deployment's own, in its region."
  }
  assert {
    condition     = google_storage_bucket.source.uniform_bucket_level_access == true
    error_message = "Who reads the bucket is said by IAM alone."
  }
  assert {
    condition     = google_storage_bucket.source.public_access_prevention == "enforced"
    error_message = "The bucket can't be made public."
  }
  assert {
    condition     = length(google_storage_bucket.source.lifecycle_rule) == 0
    error_message = "No rule by age deletes the archive that the function was built from."
  }
  assert {
    condition     = google_storage_bucket.source.force_destroy == true
    error_message = "The bucket goes with what it holds."
  }
}

run "another_folder_is_archived_with_this_dedup" {
  command = plan

  variables {
    source_dir = "./tests/another_job"
  }

  assert {
    condition     = data.archive_file.source.source_dir == null && data.archive_file.source.excludes == null
    error_message = "The archive is put together, file by file."
  }

  assert {
    condition     = one([for source in data.archive_file.source.source : source.content if source.filename == "main.py"]) == file("./tests/another_job/main.py")
    error_message = "main.py is the other folder's."
  }
  assert {
    condition     = one([for source in data.archive_file.source.source : source.content if source.filename == "requirements.txt"]) == file("./tests/another_job/requirements.txt")
    error_message = "requirements.txt is the other folder's."
  }
  assert {
    condition     = contains(data.archive_file.source.source[*].filename, "dedup/__init__.py")
    error_message = "dedup/ is this repository's."
  }
  assert {
    condition     = !contains(data.archive_file.source.source[*].filename, "notes.txt")
    error_message = "Nothing else of the other folder is deployed."
  }
}

run "the_bucket_of_a_project_that_belongs_to_a_domain" {
  command = plan

  variables {
    project_id = "example.com:my-project"
  }

  assert {
    condition     = google_storage_bucket.source.name == "example-com-my-project-scheduled-job-source"
    error_message = "A bucket's name has neither colons nor, without proof that the domain is one's own, dots."
  }
}
