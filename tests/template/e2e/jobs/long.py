"""A Cloud Run job's program, told for each attempt at its task how that ends: "work", "raise" or "hang"."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dedup


def main() -> None:
    """Goes on with the run, and writes down each attempt that has it."""
    told = os.environ["TOLD"].split(",")
    number = int(os.environ["CLOUD_RUN_TASK_ATTEMPT"])
    with dedup.resume(os.environ["RUN_ID"], os.environ["ATTEMPT_ID"], timeout_seconds=60, max_retries=len(told) - 1) as run:
        with Path(os.environ["LEDGER"]).open("a") as ledger:
            ledger.write(f"{run.id} {run.attempt_id} {number}\n")
        if told[number] == "raise":
            raise RuntimeError(f"attempt {number} fails, as it was told")
        if told[number] == "hang":
            time.sleep(60)


if __name__ == "__main__":
    main()
