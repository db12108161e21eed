"""Your job's tests. Replace these: they pass for the job that the template comes with. docs/testing.md has more to try."""

import pytest

from dedup import testing


@pytest.fixture
def scheduler():
    with testing.scheduler("main.py") as scheduler:
        yield scheduler


def test_a_run_is_done_once(scheduler):
    assert scheduler.deliver().text == "Run processed"
    assert scheduler.deliver().text == "Duplicate run skipped"


def test_a_run_whose_attempt_died_is_done_after_its_lease(scheduler):
    scheduler.crash()
    assert scheduler.deliver().status_code == 409
    scheduler.expire_lease()
    assert scheduler.deliver().text == "Run processed"
