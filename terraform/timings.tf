# All timings follow from timeout_seconds, in seconds, so that a run whose attempt dies is done by a retry that is left. What is set by
# hand is checked where it is used, in scheduler.tf.
#
# Cloud Scheduler waits min_backoff before its first retry, twice as long before each next one for max_doublings times, then longer by
# the same amount each time, and never longer than max_backoff:
# https://docs.cloud.google.com/scheduler/docs/configuring/retry-jobs

locals {
  groc      = "^ *(?i:every|first|second|third|fourth|fifth|[1-5](st|nd|rd|th))\\b"
  unix_cron = "^[0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}$"

  # The job that the top-level variables describe, and the others. What they leave open is as at the top.
  jobs = {
    for id, job in merge(var.jobs, { (var.name) = {
      schedule                   = var.schedule
      time_zone                  = null
      body                       = var.body
      paused                     = null
      attempt_deadline_seconds   = null
      retry_count                = null
      max_retry_duration_seconds = null
      min_backoff_seconds        = null
      max_backoff_seconds        = null
      max_doublings              = null
      missed_after_seconds       = null
      } }) : id => {
      schedule           = job.schedule
      time_zone          = coalesce(job.time_zone, var.time_zone)
      body               = job.body
      paused             = coalesce(job.paused, var.paused)
      attempt_deadline   = coalesce(job.attempt_deadline_seconds, var.attempt_deadline_seconds, max(15, var.timeout_seconds))
      retry_count        = coalesce(job.retry_count, var.retry_count, 5)
      max_retry_duration = coalesce(job.max_retry_duration_seconds, var.max_retry_duration_seconds, 0)
      max_doublings      = coalesce(job.max_doublings, var.max_doublings, 5)
      # -1: to be derived.
      min_backoff  = coalesce(job.min_backoff_seconds, var.min_backoff_seconds, -1)
      max_backoff  = coalesce(job.max_backoff_seconds, var.max_backoff_seconds, -1)
      missed_after = coalesce(job.missed_after_seconds, var.missed_after_seconds, -1)
    }
  }

  # A function has one lease, whatever job calls it.
  lease = coalesce(var.lease_seconds, max(values(local.jobs)[*].attempt_deadline...))

  # How long after its claim an attempt that died may hold its run: it may have renewed its lease until its time was over.
  held = (var.renew_lease ? var.timeout_seconds : 0) + local.lease

  # Each wait as a multiple of the first, for as many retries as are looked at.
  growth = {
    for id, job in local.jobs : id => [
      for retry in range(100) : pow(2, min(retry, max(0, job.max_doublings))) * max(1, retry - job.max_doublings + 1)
    ]
  }

  # The retry before the last comes after the lease, the last one after timeout and lease: whenever the first attempt died.
  min_backoff = {
    for id, job in local.jobs : id => job.min_backoff >= 0 ? job.min_backoff : job.retry_count < 1 ? 5 : ceil(max(
      job.retry_count < 2 ? 0 : local.lease / sum(slice(local.growth[id], 0, job.retry_count - 1)) + 2,
      (var.timeout_seconds + local.lease + 11) / sum(slice(local.growth[id], 0, job.retry_count)),
    ))
  }
  max_backoff = {
    for id, job in local.jobs : id => job.max_backoff >= 0 ? job.max_backoff : max(
      3600, ceil(local.min_backoff[id] * local.growth[id][max(0, job.retry_count - 1)])
    )
  }
  backoffs = {
    for id, job in local.jobs : id => [for growth in local.growth[id] : min(local.min_backoff[id] * growth, local.max_backoff[id])]
  }
  waited = {
    for id, backoffs in local.backoffs : id => [for retry in range(100) : sum(slice(backoffs, 0, retry + 1))]
  }

  # When the retries come, counted from the failure of the first attempt. They go on until both limits are reached. The time limit
  # counts from the start of the first attempt, which may take its whole deadline.
  retries = {
    for id, job in local.jobs : id => [
      for retry, waited in local.waited[id] : waited if retry < job.retry_count || waited <= job.max_retry_duration - job.attempt_deadline
    ]
  }

  # The last retry comes no earlier than this. With a time limit that 100 retries don't fill, there is one within the last max_backoff.
  last_retry = {
    for id, job in local.jobs : id => max(concat(
      [0, job.max_retry_duration - job.attempt_deadline - local.max_backoff[id]], local.retries[id]
    )...)
  }
  # And no later than this, where every attempt hangs.
  end_of_retries = {
    for id, job in local.jobs : id => max(
      sum(concat([0], slice(local.backoffs[id], 0, max(0, job.retry_count)))) + (job.retry_count + 1) * job.attempt_deadline,
      job.max_retry_duration == 0 ? 0 : job.max_retry_duration + local.max_backoff[id] + job.attempt_deadline,
    )
  }

  longest_history = ceil(max(values(local.end_of_retries)...)) + var.timeout_seconds + local.lease
  retention       = coalesce(var.retention_seconds, max(86400, local.longest_history + 1))

  # The time between two ticks, where the schedule tells it without a calendar; else null. The n of "*/n" is the longest; the shortest is
  # what is left at the end: */7 comes at 56, and again at 0.
  fields = { for id, job in local.jobs : id => split(" ", replace(trimspace(job.schedule), "/ +/", " ")) }
  # The n of "*" and "*/n" as minute and as hour, no longer than what they divide; null for all else.
  every = {
    for id, fields in local.fields : id => [
      for place, whole in [60, 24] :
      fields[place] == "*" ? 1 : can(regex("^\\*/[1-9][0-9]*$", fields[place])) ? min(tonumber(trimprefix(fields[place], "*/")), whole) : null
    ]
  }
  gap = {
    for id, every in local.every : id => (
      every[0] != null ? { shortest = 60 * min(every[0], 60 - floor(59 / every[0]) * every[0]), longest = 60 * every[0] } :
      !can(tonumber(local.fields[id][0])) ? null :
      every[1] != null ? { shortest = 3600 * min(every[1], 24 - floor(23 / every[1]) * every[1]), longest = 3600 * every[1] } :
      can(tonumber(local.fields[id][1])) ? { shortest = 86400, longest = 86400 } : null
    )
  }

  # When a run whose first attempt crashed has been done again at the latest, if all goes well then.
  recovered = {
    for id, retries in local.retries : id => var.timeout_seconds + min(concat([local.last_retry[id]], [for retry in retries : retry if retry > local.lease])...)
  }
}

check "retries_end_before_the_next_tick" {
  assert {
    condition = alltrue([for id, gap in local.gap : gap == null ? true : local.recovered[id] < gap.shortest])
    error_message = join("\n", [
      for id, gap in local.gap :
      "${id} (${local.jobs[id].schedule}): a run whose attempt crashes is done again only ${local.recovered[id]} s after its tick, and the next tick comes after ${gap.shortest} s. Google's pages disagree whether retries then end or the tick is skipped; either loses a run. Set timeout_seconds or lease_seconds lower, or the schedule wider."
      if gap == null ? false : local.recovered[id] >= gap.shortest
    ])
  }
}
