"""The Cloud Run job's own program: works for hours on the run that was handed over to it."""

import os
import time

import dedup

PARTS = 3


def work(run: dedup.Run) -> None:
    """Your work. Each part begins with the question whether the run is still this job's."""
    for part in range(PARTS):
        run.ensure_held()
        print(f"part {part + 1} of {PARTS} of {run.job_name}, due {run.schedule_time:%Y-%m-%d %H:%M} UTC")
        time.sleep(0.1)


def main() -> None:
    """Goes on with the run. What `work` raises ends this attempt at the task, and Cloud Run starts the next one."""
    try:
        with dedup.resume(
            os.environ["RUN_ID"],
            os.environ["ATTEMPT_ID"],
            timeout_seconds=int(os.environ.get("TASK_TIMEOUT_SECONDS", "600")),
            max_retries=int(os.environ.get("TASK_MAX_RETRIES", "3")),
        ) as run:
            work(run)
    except dedup.LeaseLost as lost:
        print(lost)  # and end well: a retry of this task would find the same


if __name__ == "__main__":
    main()
