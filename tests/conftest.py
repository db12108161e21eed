"""What the tests of every tier share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator import Emulator, EmulatorMissing, firestore_emulator


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """The Firestore emulator, started once; tests keep apart by a project id of their own."""
    try:
        with firestore_emulator() as running:
            yield running
    except EmulatorMissing as missing:
        pytest.skip(str(missing))
