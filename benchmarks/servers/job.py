"""The job of every peer: it waits, and leaves a mark."""

from __future__ import annotations

import os
import time
from pathlib import Path

SECONDS = float(os.environ.get("JOB_SECONDS", "0"))
MARKS = os.environ.get("JOB_MARKS")


def work() -> None:
    """Takes JOB_SECONDS, and adds a line to the file JOB_MARKS where that is set."""
    if MARKS is not None:
        with Path(MARKS).open("a") as marks:
            marks.write("executed\n")
    time.sleep(SECONDS)
