"""The official Firestore emulator: found, started, and ended by its process group."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOW_TO_GET_IT = "no Firestore emulator: install java and google-cloud-cli-firestore-emulator, or set FIRESTORE_EMULATOR_HOST"
START_SECONDS = 60

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

    def freeze(self) -> None:
        """Stops it in the middle of whatever it does: it goes on listening, and answers nothing."""
        assert self.pid is not None
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        assert self.pid is not None
        os.killpg(self.pid, signal.SIGCONT)


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    java, jar = shutil.which("java"), _jar()
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


def _jar() -> Path | None:
    gcloud = shutil.which("gcloud")
    sdks = [Path(gcloud).resolve().parent.parent] if gcloud else []
    sdks += [Path("/usr/lib/google-cloud-sdk"), Path.home() / "google-cloud-sdk"]
    return next((sdk / _JAR for sdk in sdks if (sdk / _JAR).exists()), None)


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
