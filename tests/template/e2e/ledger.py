"""What jobs/ledger.py has written down, read by the tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any


@dataclass
class Execution:
    """One call of the job, from its first line to its last; one that was killed ends with no word."""

    id: str
    run_id: str
    attempt: int
    pid: int
    started_at: float
    """On the machine's monotonic clock, which all its processes share."""
    last_seen_at: float = 0.0
    held_at: float = float("-inf")
    """The last time that it knew the run to be its own alone."""
    ended: str | None = None
    """`done`, the name of what was raised, or None."""
    lines: list[dict[str, Any]] = field(default_factory=list)


class Ledger:
    """The file that all instances of a test append to.

    Args:
        path: of the file; the environment variable LEDGER names it to the job.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def executions(self, run_id: str | None = None) -> list[Execution]:
        """Those of one run, or all, in the order of their starts."""
        return read(line for line in self._lines() if run_id in (None, line["run"]))

    def await_start(self, run_id: str, number: int = 1, *, within: float = 15) -> Execution:
        """Waits until a run's job has been started so many times; gives the last of them."""
        give_up_at = time.monotonic() + within
        while len(found := self.executions(run_id)) < number:
            assert time.monotonic() < give_up_at, f"run {run_id} was started {len(found)} times, not {number}, in {within} s"
            time.sleep(0.02)
        return found[number - 1]

    def await_end(self, execution: Execution, *, within: float = 15) -> Execution:
        """Waits until an execution has ended."""
        give_up_at = time.monotonic() + within
        while True:
            found = next(one for one in self.executions(execution.run_id) if one.id == execution.id)
            if found.ended is not None:
                return found
            assert time.monotonic() < give_up_at, f"execution {execution.id} did not end in {within} s"
            time.sleep(0.02)

    def _lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        text = self.path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def read(lines: Iterable[dict[str, Any]]) -> list[Execution]:
    """Puts a ledger's lines together."""
    executions: dict[str, Execution] = {}
    for line in lines:
        if line["what"] == "start":
            executions[line["execution"]] = Execution(line["execution"], line["run"], line["attempt"], line["pid"], line["at"])
        execution = executions[line["execution"]]
        execution.lines.append(line)
        execution.last_seen_at = line["at"]
        if line["held"]:
            execution.held_at = line["at"]
        if line["what"] in ("done", "raised"):
            execution.ended = line.get("kind", "done")
    return sorted(executions.values(), key=lambda execution: execution.started_at)


def overlaps(executions: Iterable[Execution]) -> list[tuple[Execution, Execution]]:
    """Pairs of executions of one run, the later of which began while the earlier one still knew the run to be its own.

    One that goes on after its lease is beside its successor by design: it has been told, by `run.lost`.
    """
    by_run: dict[str, list[Execution]] = {}
    for execution in executions:
        by_run.setdefault(execution.run_id, []).append(execution)
    return [
        (first, second)
        for of_one_run in by_run.values()
        for first, second in combinations(sorted(of_one_run, key=lambda one: one.started_at), 2)
        if first.held_at >= second.started_at
    ]
