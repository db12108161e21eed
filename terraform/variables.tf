# What a fork must say: three values. Everything else has a default that is safe, and where it is a timing, one that is derived from
# timeout_seconds (see timings.tf).

variable "project_id" {
  description = "The Google Cloud project that everything is created in."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id is the project's id, such as my-project-123: neither its number nor its display name."
  }
}

variable "region" {
  description = "Where the function runs, such as us-central1."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is a region such as us-central1, not a zone or a multi-region."
  }
}

variable "schedule" {
  description = "When the job runs, as unix-cron: minute, hour, day of month, month, day of week, such as \"30 2 * * *\"."
  type        = string
  nullable    = false

  validation {
    condition     = !can(regex(local.groc, var.schedule))
    error_message = "schedule \"${var.schedule}\" is in groc format (App Engine's cron syntax). Its schedule time is not the same in each attempt, so a retry would pass for a new run. Say it in unix-cron: \"*/5 * * * *\" for every 5 minutes, \"0 9 * * 1-5\" for 9:00 on weekdays."
  }
  validation {
    condition     = can(regex(local.groc, var.schedule)) || can(regex(local.unix_cron, var.schedule))
    error_message = "schedule \"${var.schedule}\" is not unix-cron: five fields, separated by a blank (minute, hour, day of month, month, day of week), such as \"30 2 * * *\"."
  }
}

# The job

variable "name" {
  description = "What the function, the Scheduler job and all that belongs to them are called. Two deployments in one project need two names."
  type        = string
  default     = "scheduled-job"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([a-z0-9]|-[a-z0-9])*$", var.name)) && length(var.name) <= 20
    error_message = "name is kebab-case, such as nightly-export: lower-case letters, digits and single hyphens, a letter first, at most 20 characters (it becomes a part of service accounts' ids, which end at 30)."
  }
}

variable "time_zone" {
  description = "The zone that the schedule is meant in, from the tz database. In one with daylight saving time, an hour is skipped or comes twice."
  type        = string
  default     = "Etc/UTC"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z]+(/[A-Za-z0-9_+-]+)*$", var.time_zone))
    error_message = "time_zone is a name of the tz database, such as Etc/UTC or Europe/Zurich."
  }
}

variable "body" {
  description = "What the job is given as run.body, such as jsonencode({ table = \"orders\" }). Null: nothing."
  type        = string
  default     = null
}

variable "paused" {
  description = "Whether the Scheduler jobs are made, but don't run. They can still be forced to."
  type        = bool
  default     = false
  nullable    = false
}

variable "jobs" {
  description = "More Scheduler jobs on the same function, by id. The job tells them apart by run.job_name. What is null is as in the variable of the same name; a body is each job's own."
  type = map(object({
    schedule                   = string
    time_zone                  = optional(string)
    body                       = optional(string)
    paused                     = optional(bool)
    attempt_deadline_seconds   = optional(number)
    retry_count                = optional(number)
    max_retry_duration_seconds = optional(number)
    min_backoff_seconds        = optional(number)
    max_backoff_seconds        = optional(number)
    max_doublings              = optional(number)
    missed_after_seconds       = optional(number)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for id in keys(var.jobs) : can(regex("^[a-z]([a-z0-9]|-[a-z0-9])*$", id)) && length(id) <= 100])
    error_message = "The ids of jobs are kebab-case, such as hourly-report: lower-case letters, digits and single hyphens, a letter first, at most 100 characters."
  }
  validation {
    condition     = !contains(keys(var.jobs), var.name)
    error_message = "\"${var.name}\" is the job that the other variables describe; jobs holds more of them, by other ids."
  }
  validation {
    condition     = !anytrue([for job in values(var.jobs) : can(regex(local.groc, job.schedule))])
    error_message = "A schedule of jobs is in groc format: ${join(", ", [for id, job in var.jobs : "${id}: \"${job.schedule}\"" if can(regex(local.groc, job.schedule))])}. Its schedule time is not the same in each attempt, so a retry would pass for a new run. Say it in unix-cron, such as \"*/5 * * * *\"."
  }
  validation {
    condition     = alltrue([for job in values(var.jobs) : can(regex(local.groc, job.schedule)) || can(regex(local.unix_cron, job.schedule))])
    error_message = "A schedule of jobs is not unix-cron: ${join(", ", [for id, job in var.jobs : "${id}: \"${job.schedule}\"" if !can(regex(local.unix_cron, job.schedule))])}. It has five fields (minute, hour, day of month, month, day of week), such as \"30 2 * * *\"."
  }
  validation {
    condition     = alltrue([for job in values(var.jobs) : job.retry_count == null ? true : contains([0, 1, 2, 3, 4, 5], job.retry_count)])
    error_message = "A retry_count of jobs is not 0 to 5: Cloud Scheduler takes no more. For more retries, set max_retry_duration_seconds."
  }
}

# Timings, in seconds. Null: derived. See timings.tf for how, and for what is refused.

variable "timeout_seconds" {
  description = "How long one attempt at a run may take. The other timings follow from it."
  type        = number
  default     = 120
  nullable    = false

  validation {
    condition     = var.timeout_seconds >= 1 && var.timeout_seconds <= 1800 && floor(var.timeout_seconds) == var.timeout_seconds
    error_message = "timeout_seconds is 1 to 1800: Cloud Scheduler waits for an answer for at most 30 minutes. Hand longer work over to something else (run.hand_over), and let it finish the run."
  }
}

variable "attempt_deadline_seconds" {
  description = "How long Cloud Scheduler waits for an answer before it delivers again. Null: timeout_seconds, at least 15."
  type        = number
  default     = null
}

variable "lease_seconds" {
  description = "How soon the run of an attempt that crashed may be taken over. Null: the attempt deadline."
  type        = number
  default     = null

  validation {
    condition     = var.lease_seconds == null ? true : var.lease_seconds >= 1 && var.lease_seconds <= 3600 && floor(var.lease_seconds) == var.lease_seconds
    error_message = "lease_seconds is 1 to 3600 whole seconds. A longer job renews its lease; the length only says how long a crashed attempt blocks its run."
  }
}

variable "renew_lease" {
  description = "Whether the lease is renewed while the job runs. If not, it must outlast the job."
  type        = bool
  default     = true
  nullable    = false
}

variable "retention_seconds" {
  description = "How long a record is kept, so that a late delivery finds it. Null: a day, or longer than all retries where that is more."
  type        = number
  default     = null

  validation {
    condition     = var.retention_seconds == null ? true : var.retention_seconds >= 1 && var.retention_seconds <= 1000000000 && floor(var.retention_seconds) == var.retention_seconds
    error_message = "retention_seconds is a number of whole seconds, such as 86400."
  }
}

variable "retry_count" {
  description = "How often Cloud Scheduler retries, 0 to 5. Null: 5."
  type        = number
  default     = null

  validation {
    condition     = var.retry_count == null ? true : contains([0, 1, 2, 3, 4, 5], var.retry_count)
    error_message = "retry_count is 0 to 5: Cloud Scheduler takes no more. For more retries, set max_retry_duration_seconds."
  }
}

variable "allow_no_retries" {
  description = "Whether a job may have no retries at all: a run whose attempt fails or dies is then lost."
  type        = bool
  default     = false
  nullable    = false
}

variable "max_retry_duration_seconds" {
  description = "For how long Cloud Scheduler retries, counted from the first attempt; it goes on until both this and retry_count are used up. Null or 0: retry_count alone decides."
  type        = number
  default     = null
}

variable "min_backoff_seconds" {
  description = "The wait before the first retry. Null: so long that the retries outlast the lease of an attempt that crashed."
  type        = number
  default     = null
}

variable "max_backoff_seconds" {
  description = "The longest wait between two retries. Null: 3600, or more where the doublings need it."
  type        = number
  default     = null
}

variable "max_doublings" {
  description = "How often the wait doubles, before it grows by as much each time. Null: 5."
  type        = number
  default     = null
}

# What is deduplicated, and where

variable "scope" {
  description = "What tells jobs of one id apart, as in DEDUP_SCOPE. Empty: the job's id alone, as the documented example has it."
  type        = string
  default     = "header:X-Job-Project,header:X-Job-Location"
  nullable    = false

  validation {
    condition     = var.scope == "" || alltrue([for part in split(",", var.scope) : can(regex("^ *(header:[A-Za-z0-9-]+|query:[^ ,]+|path) *$", part))])
    error_message = "scope is a comma list of header:NAME, query:NAME and path, or empty."
  }
}

variable "manual_runs" {
  description = "What a run forced by hand stands for: share (the next tick, which is then skipped), separate (itself) or refuse."
  type        = string
  default     = "share"
  nullable    = false

  validation {
    condition     = contains(["share", "separate", "refuse"], var.manual_runs)
    error_message = "manual_runs is share, separate or refuse."
  }
}

variable "store" {
  description = "Where the runs are kept: firestore, spanner or memorystore. What each promises is in docs/choosing-a-store.md."
  type        = string
  default     = "firestore"
  nullable    = false

  validation {
    condition     = contains(["firestore", "spanner", "memorystore"], var.store)
    error_message = "store is firestore, spanner or memorystore."
  }
  validation {
    condition     = lookup(local.has_library, var.store, true)
    error_message = "store = \"${var.store}\" needs a package that ${local.uploaded_requirements} doesn't list. Add this line to it: -r ${lookup(local.store_requirements, var.store, "")}"
  }
}

variable "create_database" {
  description = "Whether a database (on Memorystore an instance) is created for the runs. If not, database_id names one that is there, on Spanner with spanner_instance; on Memorystore, memorystore does."
  type        = bool
  default     = true
  nullable    = false
}

variable "database_id" {
  description = "The database, or the Memorystore instance that is created. Null: a new one, NAME-runs-XXXX. The suffix is drawn with each new deployment, since a deleted Firestore database's id can't be used again for minutes, and one that is left behind keeps its own."
  type        = string
  default     = null

  validation {
    condition     = var.create_database || var.database_id != null || var.store == "memorystore"
    error_message = "create_database = false needs database_id, the id of the database to use${var.store == "firestore" ? ": \"(default)\" or a name" : ""}."
  }
  validation {
    condition     = var.create_database || var.database_id == null || var.store != "memorystore"
    error_message = "database_id names a Memorystore instance that is created. With create_database = false, leave it out: memorystore says where the server is."
  }
  validation {
    condition     = var.database_id == null || var.store != "firestore" ? true : var.database_id == "(default)" || can(regex("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.database_id))
    error_message = "database_id is \"(default)\", or 4 to 63 lower-case letters, digits and hyphens, a letter first."
  }
  validation {
    condition     = var.database_id == null || var.store != "spanner" ? true : can(regex("^[a-z][a-z0-9_-]{0,28}[a-z0-9]$", var.database_id))
    error_message = "database_id of a Spanner database is 2 to 30 lower-case letters, digits, hyphens and underscores, a letter first."
  }
  validation {
    condition     = var.database_id == null || var.store != "memorystore" ? true : can(regex("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.database_id))
    error_message = "database_id of a Memorystore instance is 4 to 63 lower-case letters, digits and hyphens, a letter first."
  }
}

variable "database_location" {
  description = "Where a database that is created keeps its data: on Firestore such as nam5, on Spanner a region. Null: the function's region, in which a Memorystore instance always is."
  type        = string
  default     = null

  validation {
    condition     = var.database_location == null || var.store != "spanner" ? true : can(regex("^[a-z]+-[a-z]+[0-9]+$", var.database_location))
    error_message = "database_location of a Spanner database is a region such as us-central1. For several regions, make the instance yourself, and name it in spanner_instance."
  }
  validation {
    condition     = var.database_location == null || var.store != "memorystore"
    error_message = "A Memorystore instance is in the function's region: leave database_location out."
  }
}

variable "delete_database" {
  description = "Whether terraform destroy deletes what was created to keep the runs in, with all that anybody keeps in it. If not, it is left behind, protected from deletion: on Spanner and Memorystore at its full price."
  type        = bool
  default     = false
  nullable    = false
}

variable "spanner_instance" {
  description = "The Spanner instance to keep the database on. Null: a new one of 100 processing units."
  type        = string
  default     = null

  validation {
    condition     = var.store == "spanner" || var.spanner_instance == null
    error_message = "spanner_instance is of store = \"spanner\" alone, and store is \"${var.store}\"."
  }
  validation {
    condition     = var.store != "spanner" || var.create_database || var.spanner_instance != null
    error_message = "create_database = false needs spanner_instance, the id of the instance that the database is on."
  }
  validation {
    condition     = var.spanner_instance == null ? true : can(regex("^[a-z][a-z0-9-]{0,62}[a-z0-9]$", var.spanner_instance))
    error_message = "spanner_instance is the instance's id, such as my-instance, not its whole resource name."
  }
}

variable "memorystore" {
  description = "A server that is there, Redis or Valkey with cluster mode disabled: its host and port, its certificate authority as PEM where it speaks TLS, and where it is signed in to by IAM (Valkey) the instance's whole name. Where it wants a password, in place of all that but ca: the id of a secret that holds the whole DEDUP_STORE (with ca, it ends in ?ca=env:REDIS_CA)."
  type = object({
    host     = optional(string)
    port     = optional(number, 6379)
    ca       = optional(string)
    instance = optional(string)
    secret   = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = (var.store == "memorystore" && !var.create_database) || alltrue([for name in ["host", "ca", "instance", "secret"] : var.memorystore[name] == null])
    error_message = "memorystore says where a server is that is there already: set store = \"memorystore\" and create_database = false, or leave it out."
  }
  validation {
    condition     = var.store != "memorystore" || var.create_database || (var.memorystore.host == null) != (var.memorystore.secret == null)
    error_message = "create_database = false needs memorystore, with the server's host, or with the secret that holds its URL; not with both."
  }
  validation {
    condition     = var.memorystore.instance == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/instances/[^/]+$", var.memorystore.instance)) && var.memorystore.ca != null && var.memorystore.secret == null
    error_message = "memorystore.instance is an instance's whole name, such as projects/my-project/locations/us-central1/instances/my-instance. It goes with host and ca: an access token isn't sent in clear."
  }
}

variable "network" {
  description = "The VPC network that the function reaches besides the internet, by its name or, where it is another project's, as projects/PROJECT/global/networks/NAME. Memorystore needs it. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.store != "memorystore" || var.network != null
    error_message = "store = \"memorystore\" needs network, the VPC network by which the server is reached, such as \"default\"."
  }
  validation {
    condition     = var.network == null ? true : can(regex("^(projects/[^/]+/global/networks/)?[a-z]([a-z0-9-]*[a-z0-9])?$", var.network))
    error_message = "network is a name such as default, or projects/PROJECT/global/networks/NAME."
  }
}

variable "subnetwork" {
  description = "The subnetwork, in the function's region, that instances take their addresses from. Null: the one that is called as the network is."
  type        = string
  default     = null

  validation {
    condition     = var.subnetwork == null || var.network != null
    error_message = "subnetwork needs network, the VPC network that it is a part of."
  }
}

# The function

variable "source_dir" {
  description = "A folder with a main.py and a requirements.txt to deploy instead of this repository's. One with a dedup/ of its own, a copy or a link, is deployed as it is; any other with this repository's, and text alone. What of it is deployed, its .gcloudignore says, or this repository's where it has none."
  type        = string
  default     = null

  validation {
    condition     = var.source_dir == null ? true : fileexists("${var.source_dir}/main.py") && fileexists("${var.source_dir}/requirements.txt")
    error_message = "source_dir needs a main.py and a requirements.txt. Give an absolute path, such as \"$${path.module}/job\"."
  }
}

variable "runtime" {
  description = "The Python that the function runs on."
  type        = string
  default     = "python313"
  nullable    = false

  validation {
    condition     = can(regex("^python3(1[1-9]|[2-9][0-9])$", var.runtime))
    error_message = "runtime is python311 or newer."
  }
}

variable "environment" {
  description = "More environment variables of the function."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = !anytrue([for name in keys(var.environment) : can(regex(local.decided, name))])
    error_message = "environment has names that other variables decide, all of DEDUP_ among them: ${join(", ", [for name in keys(var.environment) : name if can(regex(local.decided, name))])}."
  }
  validation {
    condition     = length(setintersection(keys(var.environment), keys(var.secret_environment_variables))) == 0
    error_message = "In environment and in secret_environment_variables at once: ${join(", ", setintersection(keys(var.environment), keys(var.secret_environment_variables)))}."
  }
}

variable "secret_environment_variables" {
  description = "Environment variables out of Secret Manager, by name. The function's account may read just these secrets, which must be there already."
  type = map(object({
    secret     = string
    version    = optional(string, "latest")
    project_id = optional(string)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = !anytrue([for name in keys(var.secret_environment_variables) : can(regex(local.decided, name))])
    error_message = "secret_environment_variables has names that other variables decide, all of DEDUP_ among them: ${join(", ", [for name in keys(var.secret_environment_variables) : name if can(regex(local.decided, name))])}."
  }
  validation {
    condition     = alltrue([for secret in values(var.secret_environment_variables) : can(regex("^[A-Za-z0-9_-]+$", secret.secret))])
    error_message = "secret is the secret's id, such as api-key, not its whole resource name."
  }
}

variable "concurrency" {
  description = "How many requests one instance takes at once, each on a thread of its own. With 1, a retry that comes while the job runs needs an instance of its own."
  type        = number
  default     = 8
  nullable    = false

  validation {
    condition     = var.concurrency >= 1 && var.concurrency <= 1000 && floor(var.concurrency) == var.concurrency
    error_message = "concurrency is 1 to 1000."
  }
  validation {
    condition     = var.concurrency == 1 || var.cpu >= 1
    error_message = "concurrency ${var.concurrency} needs a whole CPU, and cpu is ${var.cpu}: Cloud Run refuses it. Set cpu to 1 or more, or concurrency to 1."
  }
}

variable "cpu" {
  description = "CPUs of an instance; a part of one is enough for concurrency 1."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = (var.cpu >= 0.08 && var.cpu <= 1) || contains([2, 4, 6, 8], var.cpu)
    error_message = "cpu is 0.08 to 1, or 2, 4, 6 or 8."
  }
}

variable "memory" {
  description = "Memory of an instance, such as 512Mi."
  type        = string
  default     = "512Mi"
  nullable    = false

  validation {
    condition     = can(regex("^[0-9]+(M|Mi|G|Gi)$", var.memory))
    error_message = "memory is a number and M, Mi, G or Gi, such as 512Mi."
  }
}

variable "min_instances" {
  description = "How many instances are kept warm."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.min_instances >= 0 && floor(var.min_instances) == var.min_instances
    error_message = "min_instances is 0 or more."
  }
}

variable "max_instances" {
  description = "How many instances there may be at once."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.max_instances >= max(1, var.min_instances)
    error_message = "max_instances is at least 1, and no less than min_instances."
  }
}

variable "ingress" {
  description = "Who reaches the function at all, before IAM is asked. Cloud Scheduler jobs of the same project count as internal; for one of another project, ALLOW_ALL."
  type        = string
  default     = "ALLOW_INTERNAL_ONLY"
  nullable    = false

  validation {
    condition     = contains(["ALLOW_INTERNAL_ONLY", "ALLOW_INTERNAL_AND_GCLB", "ALLOW_ALL"], var.ingress)
    error_message = "ingress is ALLOW_INTERNAL_ONLY, ALLOW_INTERNAL_AND_GCLB or ALLOW_ALL."
  }
}

variable "callers" {
  description = "Who else may call, beside the Scheduler's account: e-mail addresses of accounts that you give roles/run.invoker on the function."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for caller in var.callers : can(regex("^[^@, ]+@[^@, ]+$", caller))])
    error_message = "callers holds e-mail addresses, such as deployer@my-project.iam.gserviceaccount.com."
  }
}

variable "log_level" {
  description = "What is logged: DEBUG, INFO, WARNING or ERROR. The dashboard and the alert on missed runs count INFO lines."
  type        = string
  default     = "INFO"
  nullable    = false

  validation {
    condition     = contains(["DEBUG", "INFO", "WARNING", "ERROR"], var.log_level)
    error_message = "log_level is DEBUG, INFO, WARNING or ERROR."
  }
}

# Monitoring

variable "missed_after_seconds" {
  description = "After how long without a run that was done an alert says so. Null: where the schedule is plain (every n minutes, hourly, daily), its gap, the retries and five minutes; for any other schedule no alert. 0: no alert."
  type        = number
  default     = null

  validation {
    condition     = var.missed_after_seconds == null ? true : var.missed_after_seconds == 0 || (var.missed_after_seconds >= 60 && var.missed_after_seconds <= 31536000)
    error_message = "missed_after_seconds is 60 to 31536000 (a year), or 0 for no alert."
  }
}


variable "notification_channels" {
  description = "Who is told of alerts: ids of monitoring notification channels. With none, the alerts are only to be seen in the console."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for channel in var.notification_channels : can(regex("^projects/[^/]+/notificationChannels/[0-9]+$", channel))])
    error_message = "notification_channels holds whole ids, such as projects/my-project/notificationChannels/123, as gcloud beta monitoring channels list shows them."
  }
}

# The rest

variable "scheduler_region" {
  description = "Where the Scheduler jobs are, if not in the function's region."
  type        = string
  default     = null

  validation {
    condition     = var.scheduler_region == null ? true : can(regex("^[a-z]+-[a-z]+[0-9]+$", var.scheduler_region))
    error_message = "scheduler_region is a region such as us-central1, not a zone or a multi-region."
  }
}

variable "labels" {
  description = "Labels of all that can carry some."
  type        = map(string)
  default     = {}
  nullable    = false
}
