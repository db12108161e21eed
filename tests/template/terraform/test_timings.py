"""The timings that the plan derives: when an attempt dies, a retry is left that takes its run over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest

from dedup.record import Decision, RunRecord, Status, decide
from tests.template.e2e.scheduler import RetryPolicy
from tests.template.terraform.deployments import DEPLOYMENTS, TIMEOUTS, Planned

TICK = datetime(2026, 10, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_retries_come_as_cloud_scheduler_counts_them(deployment: str, planned: Planned) -> None:
    """The output `timings` says when each retry comes, by the arithmetic of Cloud Scheduler's documented example."""
    for timings in planned.timings(deployment).values():
        assert timings["retries"] == retries(timings)


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_crash_at_once_is_mended_with_a_retry_to_spare(timeout: int, planned: Planned) -> None:
    """The attempt dies right after its claim, and Cloud Scheduler sees it at once: a retry takes over, and one more is left."""
    timings = planned.timings(f"timeout_{timeout}")[f"timeout-{timeout}"]

    assert take_overs(timings, failed_at=0, died_at=0)[-2:] == retries(timings)[-2:]


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_dropped_connection_is_mended(timeout: int, planned: Planned) -> None:
    """The connection drops right after the claim, while the attempt renews its lease until its time is over, and dies there."""
    timings = planned.timings(f"timeout_{timeout}")[f"timeout-{timeout}"]

    assert take_overs(timings, failed_at=0, died_at=timeout)[-1:] == retries(timings)[-1:]


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_an_attempt_that_hangs_is_mended(timeout: int, planned: Planned) -> None:
    """Cloud Scheduler waits for its whole deadline, while the attempt renews its lease to the end: some retry takes over."""
    timings = planned.timings(f"timeout_{timeout}")[f"timeout-{timeout}"]

    assert take_overs(timings, failed_at=timings["attempt_deadline"], died_at=timeout) != []


def test_cloud_schedulers_own_backoff_would_lose_the_run(planned: Planned) -> None:
    """With Google's defaults, 5 s that double five times, no retry is left when the lease of a crashed attempt ends."""
    timings = planned.timings("timeout_120")["timeout-120"] | {"min_backoff": 5, "lease": 300}

    assert take_overs(timings, failed_at=0, died_at=0) == []


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_no_check_fails(deployment: str, planned: Planned) -> None:
    """What is derived passes every condition of the plan, the check on the next tick included."""
    checked = {
        check["address"]["to_display"]: check["status"]
        for check in planned.plan["checks"]
        if check["address"].get("module") == f"module.{deployment}" and check["address"]["kind"] in ("check", "resource")
    }

    assert checked == {
        f"module.{deployment}.data.archive_file.source": "pass",
        f"module.{deployment}.check.retries_end_before_the_next_tick": "pass",
        f"module.{deployment}.google_cloud_scheduler_job.job": "pass",
    }


def retries(timings: dict[str, int]) -> list[float]:
    """When retries come, in seconds after the failure of the first attempt."""
    policy = RetryPolicy(
        attempt_deadline=timings["attempt_deadline"],
        min_backoff=timings["min_backoff"],
        max_backoff=timings["max_backoff"],
        max_doublings=timings["max_doublings"],
        retry_count=timings["retry_count"],
    )
    return list(accumulate(policy.backoff(retry) for retry in range(policy.retry_count)))


def take_overs(timings: dict[str, int], *, failed_at: float, died_at: float) -> list[float]:
    """Which retries are given the run of an attempt that died, each as if it came alone.

    Args:
        timings: of the job.
        failed_at: when Cloud Scheduler counts the attempt as failed, in seconds after its claim.
        died_at: when it last renewed its lease, in seconds after its claim.
    """
    left_behind = RunRecord(
        updated_at=TICK + timedelta(seconds=died_at),
        status=Status.IN_PROGRESS,
        attempt_id="a" * 32,
        lease_seconds=timings["lease"],
    )
    return [
        retry
        for retry in retries(timings)
        if decide(left_behind, "b" * 32, TICK + timedelta(seconds=failed_at + retry)) is Decision.CLAIM
    ]
