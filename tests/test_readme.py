"""The README says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dedup.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README)))


@pytest.mark.parametrize(("file", "test"), NAMED_TESTS, ids=lambda name: name)
def test_a_guarantee_names_a_test_that_exists(file: str, test: str) -> None:
    """Each test that holds a guarantee is where the README says."""
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_every_guarantee_names_its_test() -> None:
    """No guarantee stands without a test that holds it."""
    guarantees = re.split(r"^\d+\. ", section("Guarantees"), flags=re.MULTILINE)[1:]
    assert guarantees
    assert [guarantee for guarantee in guarantees if "`tests/" not in guarantee] == []


def test_every_setting_is_described() -> None:
    """The table of settings has a row for each field of Settings, and no other."""
    described = re.findall(r"^\| `(DEDUP_\w+)`", section("Settings"), flags=re.MULTILINE)
    assert described == [f"DEDUP_{name.upper()}" for name in Settings.__dataclass_fields__]


def section(title: str) -> str:
    """The text under a heading, up to the next heading."""
    return README.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]
