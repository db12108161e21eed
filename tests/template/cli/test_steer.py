"""What `release` and `rerun` do, and when they don't."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dedup.delivery import Delivery
from dedup.record import Decision, Ending
from dedup.stores import StoreUnavailable
from tests.template.cli.conftest import AT_NOON, NOON, House
from tests.template.contract.harness import a_claim

REFUSED = 4
UNREACHABLE = 3


def runs_again(house: House, run_id: str) -> bool:
    """Whether the next delivery of a run is given it."""
    return house.harness.store.claim_run(a_claim(run_id)) is Decision.CLAIM


def test_a_stuck_run_is_released(house: House) -> None:
    """A run whose attempt is dead is freed once somebody has seen who held it and said yes."""
    run_id = house.abandoned()
    done = house("release", "nightly", NOON, typed="y\n")
    assert done.exit_code == 0
    assert "d" * 32 in done.stderr
    assert house.harness.raw(run_id) is None
    assert "X-CloudScheduler-ScheduleTime: 2026-10-16T12:00:00Z" in done.stdout


def test_a_live_lease_is_not_released(house: House) -> None:
    """A run whose lease is live is refused, with the holder's name and how long yet; --yes alone changes nothing."""
    claim = house.claim()
    for options in ((), ("--yes",)):
        done = house("release", claim.run_id, *options, typed="y\n")
        assert (done.exit_code, done.stdout) == (REFUSED, "")
        assert claim.attempt_id in done.stderr
        assert "--force" in done.stderr
    assert house.harness.record(claim.run_id).is_held_by(claim.attempt_id)


def test_force_releases_a_live_lease(house: House) -> None:
    """With --force a live lease is released, and its attempt can finish nothing any more."""
    claim = house.claim()
    assert house("release", claim.run_id, "--force", "--yes").exit_code == 0
    assert not house.harness.store.finish_run(claim, Ending.COMPLETED)
    assert runs_again(house, claim.run_id)


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED], ids=["completed", "failed"])
def test_a_run_that_is_over_runs_again(house: House, ending: Ending) -> None:
    """`rerun` lets a run that is completed, or failed for good, run at its next delivery."""
    run_id = house.finished(ending=ending)
    assert not runs_again(house, run_id)
    assert house("rerun", "nightly", NOON, typed="yes\n").exit_code == 0
    assert runs_again(house, run_id)


@pytest.mark.parametrize("command", ["release", "rerun"])
@pytest.mark.parametrize("typed", ["n\n", "\n", "what?\n", ""], ids=["no", "enter", "what", "nobody"])
def test_nothing_is_done_without_a_yes(local: House, command: str, typed: str) -> None:
    """Any answer but yes, and none at all, leaves the run as it was."""
    run_id = local.abandoned() if command == "release" else local.finished()
    before = local.harness.raw(run_id)
    done = local(command, run_id, typed=typed)
    assert (done.exit_code, done.stdout) == (REFUSED, "")
    assert local.harness.raw(run_id) == before
    if typed == "":
        assert "--yes" in done.stderr


@pytest.mark.parametrize(
    ("command", "prepare", "other"),
    [("release", House.finished, "rerun"), ("rerun", House.claim, "release"), ("rerun", House.abandoned, "release")],
    ids=["completed", "held", "stuck"],
)
def test_the_wrong_command_names_the_right_one(
    local: House, command: str, prepare: Callable[[House], object], other: str
) -> None:
    """`release` is for what is in progress, `rerun` for what is over; each refuses the other's runs."""
    prepare(local)
    done = local(command, "nightly", NOON, "--yes")
    assert done.exit_code == REFUSED
    assert other in done.stderr


@pytest.mark.parametrize("command", ["release", "rerun"])
def test_a_run_that_changes_meanwhile_is_left_alone(house: House, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """What was shown is what is deleted: a run that an attempt has written to since is refused, and stays."""
    run_id = house.abandoned() if command == "release" else house.finished()

    kind = type(house.harness.store)
    delete = kind.delete_run

    def raced(store: Any, *arguments: Any) -> bool:
        house.abandoned("nightly", AT_NOON)  # another write, whatever it says
        return delete(store, *arguments)

    monkeypatch.setattr(kind, "delete_run", raced)
    done = house(command, run_id, "--yes")
    assert done.exit_code == REFUSED
    assert "since it was shown" in done.stderr
    assert house.harness.raw(run_id) is not None


@pytest.mark.parametrize("command", ["release", "rerun"])
def test_it_leaves_a_trace_in_the_log(house: House, command: str) -> None:
    """One structured log line says what was done, by whom, and how the record was; with --json, that is the output."""
    run_id = house.abandoned() if command == "release" else house.finished(result="7 rows")
    done = house(command, run_id, "--yes")
    [line] = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert (line["severity"], line["run_id"], line["job_name"]) == ("WARNING", run_id, "nightly")
    assert "by hand" in line["message"]
    assert "@" in line["by"]
    run_id = house.abandoned() if command == "release" else house.finished(result="7 rows")
    [told] = house.json(command, run_id, "--yes")
    assert told["action"] == line["action"] == ("released" if command == "release" else "rerun")
    assert told["result"] == line.get("result") == (None if command == "release" else "7 rows")


@pytest.mark.parametrize("command", ["release", "rerun"])
def test_json_asks_nothing(local: House, command: str) -> None:
    """--json without --yes is exit code 2: a question would stand among the data."""
    run_id = local.abandoned() if command == "release" else local.finished()
    done = local(command, run_id, "--json", typed="y\n")
    assert done.exit_code == 2
    assert local.harness.raw(run_id) is not None


@pytest.mark.parametrize("command", ["release", "rerun"])
def test_an_unknown_run_is_not_steered(local: House, command: str) -> None:
    """A run that isn't there is exit code 1."""
    assert local(command, "nightly", NOON, "--yes").exit_code == 1


@pytest.mark.parametrize(
    ("delivery", "told"),
    [
        (Delivery("nightly", AT_NOON), "ScheduleTime: 2026-10-16T12:00:00Z"),
        (Delivery("nightly", AT_NOON, ("prod", "eu/1")), "the headers of its scope"),
        (Delivery("nightly", AT_NOON + timedelta(milliseconds=250), (), "25"), "ScheduleTime: 2026-10-16T12:00:00.250000Z"),
        (Delivery("nightly", AT_NOON, manual=True), None),
        (Delivery("nightly", AT_NOON, (), "000000001"), None),
        (Delivery("billing", AT_NOON, idempotency_key="k"), None),
    ],
    ids=["tick", "scope", "fraction", "forced", "nanoseconds", "idempotency key"],
)
def test_the_delivery_that_is_told_is_the_runs_own(local: House, delivery: Delivery, told: str | None) -> None:
    """The command that is printed sends this run and no other; where the record doesn't say how, that is told."""
    claim = a_claim(
        delivery.run_id,
        job_name=delivery.job_name,
        schedule_time=delivery.schedule_time,
        scope="/".join(delivery.scope_parts),
    )
    assert local.harness.store.claim_run(claim) is Decision.CLAIM
    assert local.harness.store.finish_run(claim, Ending.COMPLETED)
    done = local("rerun", delivery.run_id, "--yes")
    assert done.exit_code == 0
    assert ("curl" in done.stdout) is (told is not None)
    assert (told or "no command can be told") in done.stdout


@pytest.mark.parametrize("command", ["release", "rerun"])
def test_an_unclear_delete_is_told(local: House, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Where it isn't known whether the record is deleted, that is said, with a trace, and is not exit code 4."""

    def unclear(*_: object) -> bool:
        raise StoreUnavailable("no answer")

    run_id = local.abandoned() if command == "release" else local.finished()
    monkeypatch.setattr(type(local.harness.store), "delete_run", unclear)
    done = local(command, run_id, "--yes")
    assert done.exit_code == UNREACHABLE
    trace, error = done.stderr.splitlines()
    assert json.loads(trace)["message"].startswith("perhaps")
    assert "may have been deleted all the same" in error
