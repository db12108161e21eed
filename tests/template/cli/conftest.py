"""The command line, in this process, on each store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dedup.cli import cli
from dedup.delivery import Delivery
from dedup.record import Ending
from dedup.stores import Claim
from tests.template.contract.harness import A_RUN, HARNESSES, Harness, SQLiteHarness, a_claim

NOON = "2026-10-16T12:00:00Z"
AT_NOON = datetime(2026, 10, 16, 12, tzinfo=UTC)


@dataclass
class House:
    """A store, and the command line that is pointed at it."""

    harness: Harness
    environ: Mapping[str, str]

    def __call__(self, *arguments: str, typed: str | None = None) -> Result:
        """Runs a command; `typed` is what somebody answers."""
        return CliRunner().invoke(cli, arguments, input=typed, env=self.environ, prog_name="python -m dedup")

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        """What a command prints with --json: each line of it must be an object, and nothing else may come."""
        done = self(*arguments, "--json")
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def claim(self, job: str = "nightly", time: datetime = AT_NOON, **other: Any) -> Claim:
        """A run that an attempt holds."""
        claim = a_claim(Delivery(job, time).run_id, job_name=job, schedule_time=time, **other)
        assert self.harness.store.claim_run(claim).name == "CLAIM"
        return claim

    def finished(
        self, job: str = "nightly", time: datetime = AT_NOON, ending: Ending = Ending.COMPLETED, **what: str | None
    ) -> str:
        """A run that is over; gives its id."""
        claim = self.claim(job, time)
        assert self.harness.store.finish_run(claim, ending, result=what.get("result"), error=what.get("error"))
        return claim.run_id

    def abandoned(self, job: str = "nightly", time: datetime = AT_NOON) -> str:
        """A run whose attempt has died, and whose lease is over; gives its id."""
        now = self.harness.now()
        run_id = Delivery(job, time).run_id
        fields = {"status": "in_progress", "attempt_id": "d" * 32, "lease_seconds": 0, "lease_expires": now, "attempts": 2}
        times = {"claimed_at": now - timedelta(minutes=1), "expire_at": now + timedelta(days=1), "schedule_time": time}
        self.harness.put(run_id, {**fields, **times, "job_name": job})
        return run_id


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.store(name)) for name in HARNESSES])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """A house with a fresh store of each kind."""
    harness = HARNESSES[request.param](request)
    yield House(harness, environ_of(harness))
    harness.close()


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[House]:
    """A house whose store is a file, for what doesn't depend on the store."""
    harness = SQLiteHarness(request)
    yield House(harness, environ_of(harness))
    harness.close()


def environ_of(harness: Harness) -> dict[str, str]:
    """What points the command line at a harness's store."""
    harness.store.get_run(A_RUN)  # makes SQLite's file
    return {"DEDUP_STORE": harness.url}
