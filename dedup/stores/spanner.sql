-- The runs. `python -m dedup store create` makes this table, in the name that DEDUP_STORE gives it.
CREATE TABLE IF NOT EXISTS scheduler_runs (
    run_id STRING(64) NOT NULL,
    -- The commit's own time: the start of the lease, and the fencing token.
    updated_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),
    status STRING(64) NOT NULL,
    attempt_id STRING(64) NOT NULL,
    lease_seconds INT64,
    lease_expires TIMESTAMP,
    renewed_at TIMESTAMP OPTIONS (allow_commit_timestamp = true),
    expire_at TIMESTAMP,
    job_name STRING(500),
    schedule_time TIMESTAMP,
    scope STRING(MAX),
    attempts INT64,
    claimed_at TIMESTAMP OPTIONS (allow_commit_timestamp = true),
    finished_at TIMESTAMP OPTIONS (allow_commit_timestamp = true),
    result STRING(MAX),
    error STRING(MAX),
) PRIMARY KEY (run_id),
  ROW DELETION POLICY (OLDER_THAN(expire_at, INTERVAL 0 DAY))
