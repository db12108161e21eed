"""Every store, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dedup.stores import RunStore
from tests.template.contract.harness import HARNESSES, TRANSACTIONAL, Harness


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.store(name)) for name in HARNESSES])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A fresh store with its harness."""
    made = HARNESSES[request.param](request)
    yield made
    made.close()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.store(name)) for name in TRANSACTIONAL])
def transactional(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """A fresh store, of those that take a job's own writes, with its harness."""
    made = HARNESSES[request.param](request)
    yield made
    made.close()


@pytest.fixture
def store(harness: Harness) -> RunStore:
    """A fresh store."""
    return harness.store


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What is logged as an error. The logger hands nothing on to the root's, where pytest listens."""
    handler = _Kept(logging.ERROR)
    log = logging.getLogger("dedup")
    log.addHandler(handler)
    yield handler.messages
    log.removeHandler(handler)


class _Kept(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
