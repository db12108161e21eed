"""Each example, by its README's own commands: on the embedded store or the emulator, with no cloud project."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dedup.record import RunRecord, Status
from dedup.stores.sqlite import SQLiteRunStore
from tests.template import ROOT
from tests.template.e2e.conftest import run_id
from tests.template.e2e.server import START_SECONDS, inherited
from tests.template.emulator import free_port
from tests.template.size import WHOLE

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/README.md"))
TRIED = EXAMPLES if WHOLE else ["downstream_service", "long_job"]
SERVES = ("tests.template.apis", "make run", "functions-framework")
RUN_ID = run_id("nightly")


def commands(name: str) -> list[str]:
    """What an example's README says to type, to try it."""
    text = (ROOT / "examples" / name / "README.md").read_text()
    section = text.split("## Try it\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^    (\S.*)$", section, flags=re.MULTILINE)


@dataclass
class Tried:
    """An example whose servers run."""

    folder: Path
    calls: list[str]
    ports: dict[str, int]
    servers: list[subprocess.Popen[bytes]]

    @property
    def environ(self) -> dict[str, str]:
        """A clean one, a store in the test's folder, and a run that no minute's end divides."""
        store = f"sqlite:///{self.folder}/.local/runs.db"
        names = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        kept = {name: value for name, value in inherited().items() if name not in names}
        return {**kept, "DEDUP_STORE": store, "TIME": "2026-10-16T12:00:00Z", "PORT": str(self.ports["8080"])}

    def start(self, command: str) -> None:
        """Starts a server, and waits for nothing."""
        with (self.folder / "output").open("ab") as output:
            arguments = {"cwd": ROOT, "env": self.environ, "stdout": output, "stderr": output, "start_new_session": True}
            self.servers.append(subprocess.Popen(["sh", "-c", self._here(command)], **arguments))  # type: ignore[call-overload]

    def type(self, command: str) -> str:
        """Runs a command to its end, and gives its output."""
        done = subprocess.run(
            ["sh", "-c", self._here(command)],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.replace("\r\n", "\n")

    def _here(self, command: str) -> str:
        """The command with this test's ports and folder, and this Python."""
        for documented, free in self.ports.items():
            command = re.sub(rf"\b{documented}\b", str(free), command)
        command = command.replace("sqlite:///.local/", f"sqlite:///{self.folder}/.local/")
        return command.replace(".venv/bin/", f"{shlex.quote(str(Path(sys.executable).parent))}/")

    @property
    def record(self) -> RunRecord:
        """The run's record, which must be there."""
        record = SQLiteRunStore(self.folder / ".local/runs.db").get_run(RUN_ID)
        assert record is not None
        return record

    @property
    def output(self) -> str:
        """What the servers have written."""
        return (self.folder / "output").read_text(errors="replace")

    def await_output(self, text: str, times: int = 1) -> None:
        """Waits until the servers have written something so many times."""
        give_up_at = time.monotonic() + START_SECONDS
        while self.output.count(text) < times:
            assert time.monotonic() < give_up_at, f"no {text!r} in\n{self.output}"
            time.sleep(0.05)

    def end(self) -> None:
        """Ends the servers, and what they have started."""
        for server in self.servers:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
        for server in self.servers:
            with suppress(subprocess.TimeoutExpired):
                server.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.fixture(scope="module")
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tried]]:
    """Every example's servers, started at once."""
    firestore = int(request.getfixturevalue("emulator").host.rpartition(":")[2]) if "start_workflow" in TRIED else 0
    examples: dict[str, Tried] = {}
    try:
        for name in TRIED:
            folder = tmp_path_factory.mktemp(name)
            ports = {"8080": free_port(), "8090": free_port(), "8085": firestore}
            said = commands(name)
            examples[name] = Tried(folder, [one for one in said if not any(word in one for word in SERVES)], ports, [])
            for command in said:
                if any(word in command for word in SERVES):
                    examples[name].start(command)
        yield examples
    finally:
        for example in examples.values():
            example.end()


def deliver(example: Tried, times: int) -> list[str]:
    """Types the README's own calls, as often, and gives each answer's status and body."""
    give_up_at = time.monotonic() + START_SECONDS
    answers: list[str] = []
    while len(answers) < times * len(example.calls):
        try:
            text = example.type(example.calls[len(answers) % len(example.calls)])
        except AssertionError:  # not listening yet
            assert time.monotonic() < give_up_at, example.output
            time.sleep(0.1)
            continue
        status = re.search(r"^HTTP/1.1 (\d+)", text, flags=re.MULTILINE)
        assert status is not None, text
        answers.append(f"{status[1]} {text.strip().splitlines()[-1]}")
    return answers


def is_started_once(example: Tried) -> None:
    """Delivered twice, the run starts one execution, whose name is kept with it."""
    assert deliver(example, 2) == ["200 Run processed", "200 Duplicate run skipped"]
    example.await_output("started projects/")
    assert example.output.count("started projects/") == 1
    assert f"started {example.record.result}\n" in example.output


def start_workflow(example: Tried) -> None:
    """The workflow runs to its end in the emulator."""
    is_started_once(example)
    example.await_output("the workflow returned done")


def run_cloud_run_job(example: Tried) -> None:
    """The job finds the run's id in its environment."""
    is_started_once(example)
    example.await_output(f"Idempotency-Key: {RUN_ID}")


def long_job(example: Tried) -> None:
    """The answer is 202, and the run is done when the job's process is."""
    first, second = deliver(example, 2)
    assert first == "202 Run handed over"
    assert second in ("409 Run in progress", "200 Duplicate run skipped")
    example.await_output("nightly: Run processed")
    assert deliver(example, 1) == ["200 Duplicate run skipped"]
    assert example.record.status is Status.COMPLETED
    assert example.output.count("part 1 of 3") == example.output.count("started projects/") == 1


def app_engine(example: Tried) -> None:
    """Nobody gets in without App Engine's own header."""
    without, with_it = deliver(example, 1)
    assert without.startswith("403 error: X-Appengine-Cron is missing")
    assert with_it == "200 Run processed"


def downstream_service(example: Tried) -> None:
    """Two calls with one key charge once, and nothing else is taken for a key."""
    assert deliver(example, 1) == ["200 Run processed", "200 Duplicate run skipped"]
    assert example.output.count("charged 100") == 1
    url = f"localhost:{example.ports['8080']}"
    for key, status in [("a" * 5000, "400"), ("a" * 10240, "431")]:  # the server's own limit is 8 KB
        text = example.type(f"curl -s -o /dev/null -w '%{{http_code}}' -X POST {url} -H 'Idempotency-Key: {key}'")
        assert text == status


def cloud_run_service(example: Tried) -> None:
    """What the container runs is what `make run` runs."""
    assert deliver(example, 2) == ["200 Run processed", "200 Duplicate run skipped"]


CHECKS = {
    check.__name__: check
    for check in (start_workflow, run_cloud_run_job, long_job, app_engine, downstream_service, cloud_run_service)
} | {"run_build_trigger": is_started_once}


@pytest.mark.parametrize("name", TRIED)
def test_an_example_runs_by_its_readme(tried: dict[str, Tried], name: str) -> None:
    """Typing what the README says, an example does what it says."""
    CHECKS[name](tried[name])


def test_a_container_holds_what_is_there() -> None:
    """The examples' containers copy files that exist, and run main.py or the job."""
    for name, command in [("cloud_run_service", '"functions-framework", "--target"'), ("long_job", '"python", "job.py"')]:
        text = (ROOT / "examples" / name / "Dockerfile").read_text()
        copied = re.findall(r"^COPY (\S+) ", text, flags=re.MULTILINE)
        assert len(copied) == 3
        assert [source for source in copied if not (ROOT / source).exists()] == []
        assert f"CMD [{command}" in text


def test_every_example_is_tried() -> None:
    """Each folder of examples/ has a README that says how to try it, and how to deploy it."""
    folders = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__")
    assert folders == EXAMPLES
    assert set(EXAMPLES) <= set(CHECKS)
    for name in EXAMPLES:
        assert len(commands(name)) >= 2
        assert "## Deploy it" in (ROOT / "examples" / name / "README.md").read_text()
