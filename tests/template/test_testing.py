"""What a fork tests its own job with. It is also the example that docs/testing.md shows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup import testing
from dedup.record import Status
from tests.template import ROOT

JOB = """
import dedup

done, held = [], []

def run_job_logic(run):
    done.append((run.job_name, run.attempt, run.body))
    if run.body == b"fail once" and len(done) == 1:
        raise RuntimeError("not yet")
    for hook in held:
        hook()
        run.ensure_held()
    return f"{len(done)} done"

def handle_scheduled_job(request):
    return dedup.handle(request, run_job_logic)
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[testing.Scheduler]:
    """Cloud Scheduler, for a job of our own."""
    with testing.scheduler(main_py(tmp_path)) as scheduler:
        yield scheduler


def main_py(folder: Path) -> Path:
    """A fork's file."""
    file = folder / "main.py"
    file.write_text(JOB)
    return file


def test_the_forks_own_function_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word about it, the folder's main.py is loaded and called, with a store that is gone afterwards."""
    monkeypatch.chdir(main_py(tmp_path).parent)
    with testing.scheduler() as scheduler:
        assert scheduler.deliver().text == "Run processed"
        assert scheduler.deliver().text == "Duplicate run skipped"
        path = scheduler.store.path
        assert path.exists()
    assert not path.exists()


def test_each_test_has_a_store_of_its_own(tmp_path: Path) -> None:
    """A run that one store has is new to the next."""
    for _ in range(2):
        with testing.scheduler(main_py(tmp_path)) as scheduler:
            assert scheduler.deliver().text == "Run processed"


def test_a_failed_run_is_delivered_again(scheduler: testing.Scheduler) -> None:
    """A delivery that fails can be repeated, as a retry."""
    assert scheduler.deliver(body="fail once").status_code == 500
    assert scheduler.record() is None
    assert scheduler.deliver(body="fail once").status_code == 200
    record = scheduler.record()
    assert record is not None
    assert (record.status, record.result) == (Status.COMPLETED, "2 done")


def test_a_lost_reply_is_followed_by_a_duplicate(scheduler: testing.Scheduler) -> None:
    """Whoever loses the answer delivers again, and the run isn't done twice."""
    scheduler.lose_reply()
    answer = scheduler.deliver()
    assert answer.text == "Duplicate run skipped"
    assert answer.headers["Idempotent-Replayed"] == "true"


def test_deliveries_at_once_run_it_once(scheduler: testing.Scheduler) -> None:
    """Of eight deliveries at the same moment one runs the job."""
    answers = [answer.text for answer in scheduler.deliver_at_once(8)]
    assert answers.count("Run processed") == 1


def test_a_crashed_attempt_is_taken_over_after_its_lease(scheduler: testing.Scheduler) -> None:
    """A run whose attempt died is refused until its lease is over, and is then run as a second attempt."""
    scheduler.crash()
    assert scheduler.deliver().status_code == 409
    scheduler.expire_lease()
    assert scheduler.deliver().text == "Run processed"
    record = scheduler.record()
    assert record is not None
    assert record.attempts == 2


def test_a_run_that_is_done_cannot_crash(scheduler: testing.Scheduler) -> None:
    """A test that lets a finished run crash has a mistake, and is told."""
    scheduler.deliver()
    with pytest.raises(RuntimeError, match="completed"):
        scheduler.crash()


def test_a_job_can_lose_its_lease_in_the_middle(scheduler: testing.Scheduler) -> None:
    """A lease that expires while the job works makes ensure_held raise there; nothing is written, and the run is done again."""
    held = sys.modules["main"].held
    held.append(scheduler.expire_lease)
    assert scheduler.deliver().status_code == 500
    record = scheduler.record()
    assert record is not None
    assert record.status is Status.IN_PROGRESS
    held.clear()
    assert scheduler.deliver().text == "Run processed"


@pytest.mark.parametrize("jobs", ["run_job_logic", '{"nightly": run_job_logic}', '{"hourly": run_job_logic}'])
def test_another_job_takes_the_place_of_the_forks(tmp_path: Path, jobs: str) -> None:
    """With `job`, all of a function but its own jobs is tried, however many it has and whatever they are called."""
    file = main_py(tmp_path)
    file.write_text(JOB.replace("(request, run_job_logic)", f"(request, {jobs})"))
    with testing.scheduler(file, job=lambda run: "another") as scheduler:
        assert [scheduler.deliver().text for _ in range(2)] == ["Run processed", "Duplicate run skipped"]
        record = scheduler.record()
    assert record is not None
    assert record.result == "another"
    assert sys.modules["main"].done == []


@pytest.mark.parametrize("spelled", ["dedup.handle", "handle", "handler.handle"])
def test_a_store_of_the_functions_own_is_not_used(tmp_path: Path, spelled: str) -> None:
    """A function that opens its store itself is tested on the throw-away one all the same: what it has is production's."""
    file = main_py(tmp_path)
    own = f"""
from dedup import handle, handler
from dedup.stores import open_store

OWN = open_store("sqlite:///{tmp_path}/own.db")

def handle_scheduled_job(request):
    return {spelled}(request, run_job_logic, store=OWN)
"""
    file.write_text(JOB + own)
    with testing.scheduler(file) as scheduler:
        assert scheduler.deliver().text == "Run processed"
        assert scheduler.record() is not None
    assert not (tmp_path / "own.db").exists()


def test_variables_of_the_process_have_no_influence(tmp_path: Path) -> None:
    """A shell that is set up for production tests a job as any other does."""
    main_py(tmp_path)
    production = {
        "DEDUP_STORE": "firestore://prod",
        "DEDUP_AUTH": "oidc",
        "DEDUP_AUDIENCE": "https://a.run.app",
        "DEDUP_CALLERS": "a@example.com",
        "DEDUP_MANUAL_RUNS": "refuse",
        "DEDUP_SCOPE": "path",
    }
    code = "from dedup import testing\nwith testing.scheduler() as scheduler: print(scheduler.deliver().text)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**production, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "Run processed", done.stderr


def test_the_process_is_as_before(tmp_path: Path) -> None:
    """After the `with`, the handler has its own store, settings and clock again."""
    from dedup import handler

    def now() -> tuple[object, ...]:
        return handler._store, handler._settings, handler._clock, handler._auth, handler._choose_job, handler.handle

    before = now()
    with testing.scheduler(main_py(tmp_path), job=lambda run: None):
        assert not set(map(id, now())) & set(map(id, before))
    assert now() == before
