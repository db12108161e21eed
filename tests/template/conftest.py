"""What the tests of every tier share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tests.template import ROOT
from tests.template.emulator import Emulator, EmulatorMissing, RedisServer, firestore_emulator, redis_server, spanner_emulator
from tests.template.shipped import SHIPPED
from tests.template.size import WHOLE

# A fork may delete these folders; what is about them then isn't collected.
ABOUT = {
    "benchmarks": ["test_benchmarks.py"],
    "docs": ["test_benchmarks.py", "test_docs.py", "test_docs_facts.py", "test_readme.py"],
    "examples": ["e2e/test_examples.py", "e2e/test_long_job.py", "e2e/test_workflow.py"],
}
OF_A_FORK = ["test_readme.py", "test_shipped.py"]
"""They look into what a fork owns."""

collect_ignore = ["shipped", *(test for folder, tests in ABOUT.items() if not (ROOT / folder).is_dir() for test in tests)]
collect_ignore += [] if SHIPPED else OF_A_FORK


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """The Firestore emulator, started once; tests keep apart by a project id of their own."""
    try:
        with firestore_emulator() as running:
            yield running
    except EmulatorMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spanner() -> Iterator[Emulator]:
    """The Spanner emulator, started once; tests keep apart by their tables or databases."""
    try:
        with spanner_emulator() as running:
            yield running
    except EmulatorMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis server, started once; tests keep apart by their prefixes."""
    try:
        with redis_server() as running:
            yield running
    except EmulatorMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """A Valkey server, the same way."""
    try:
        with redis_server(valkey=True) as running:
            yield running
    except EmulatorMissing as missing:
        pytest.skip(str(missing))


# How long an example takes says more of the machine.
hypothesis.settings.register_profile("busy", deadline=None, max_examples=100 if WHOLE else 30)
hypothesis.settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Names the marker by which the last line counts."""
    config.addinivalue_line("markers", "store(name): runs on this store; the last line of a run counts them")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Hands a test's store on to its report."""
    marker = item.get_closest_marker("store")
    if marker is not None:
        item.user_properties.append(("store", marker.args[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Takes lone surrogates out of what a test has printed: workers can't hand them on."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "replace").decode()) for title, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own summary: the line before the totals
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Says how many tests ran on which store, and why others didn't: a store that was skipped must not pass for tested."""
    yield
    ran: Counter[str] = Counter()
    skipped: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in ("passed", "failed", "error", "xfailed", "xpassed", "skipped"):
        for report in terminalreporter.getreports(outcome):
            for name, store in getattr(report, "user_properties", ()):
                if name == "store" and outcome == "skipped":
                    skipped[store][report.longrepr[-1].removeprefix("Skipped: ")] += 1
                elif name == "store" and report.when != "teardown":
                    ran[store] += 1
    counts = [
        f"{store} {ran[store]}" + "".join(f" ({n} skipped: {reason})" for reason, n in skipped[store].items())
        for store in dict.fromkeys([*ran, *skipped])
    ]
    if counts:
        terminalreporter.write_line(f"stores: {', '.join(counts)}")
    if not SHIPPED:
        terminalreporter.write_line(
            f"not run, since a fork owns what they look into (SHIPPED=1 runs them): {', '.join(OF_A_FORK)}"
        )
