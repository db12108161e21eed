"""`make mutants`: mutmut sows small faults into the code, one at a time, and the quick tests must catch them.

What survives is explained in docs/mutants.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from hypothesis import Phase, settings
from mutmut.stats import status_by_exit_code

from tests.template.emulator import EmulatorMissing, firestore_emulator

WANTED = 0.95
CAUGHT = ("killed", "timeout", "caught by type check")
COULD_NOT_RUN = 255
"""Pytest couldn't even begin, which mutmut counts as a time-out.

A backslash in a test's id does that: mutmut collects twice in one process, and pytest escapes it once more each time.
"""
WORK = Path("mutants")

# pytest loads this module as a plugin in mutmut's runs: the same examples each time, and no search for smaller ones.
settings.register_profile("mutants", settings.get_profile("ci"), max_examples=50, phases=(Phase.explicit, Phase.generate))


def main(names: list[str]) -> int:
    """Runs all mutants from the start, or those with these names again, and says how many were caught."""
    if not names:
        shutil.rmtree(WORK, ignore_errors=True)  # mutmut keeps a verdict when only a test has changed
    try:
        with firestore_emulator() as emulator:
            ran = _run_mutmut(names, emulator.host)
    except EmulatorMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    return ran or _report()


def _run_mutmut(names: list[str], emulator: str) -> int:
    tools = Path(sys.executable).parent
    path = os.pathsep.join([str(tools), os.environ.get("PATH", "")])  # mutmut starts mypy by its name
    environ = {**os.environ, "PATH": path, "FIRESTORE_EMULATOR_HOST": emulator}
    return subprocess.run([tools / "mutmut", "run", *names], env=environ, check=False).returncode


def _report() -> int:
    """Lists what survived, counts by file, and fails where too much did."""
    verdicts = {
        str(meta.relative_to(WORK).with_suffix("")): json.loads(meta.read_text())["exit_code_by_key"]
        for meta in sorted(WORK.rglob("*.py.meta"))
    }
    counts: defaultdict[str, list[bool]] = defaultdict(list)
    for file, exit_codes in verdicts.items():
        for name, exit_code in exit_codes.items():
            verdict = status_by_exit_code[exit_code] if exit_code != COULD_NOT_RUN else "could not run"
            counts[file].append(verdict in CAUGHT)
            if verdict not in CAUGHT:
                print(f"{verdict}: {name}")
    for file, caught in counts.items():
        print(f"{file}: {_score(caught)}")
    every = [one for caught in counts.values() for one in caught]
    print(f"mutants: {_score(every)}")
    return 0 if every and sum(every) >= WANTED * len(every) else 1


def _score(caught: list[bool]) -> str:
    return f"{sum(caught):,} of {len(caught):,} killed ({sum(caught) / max(1, len(caught)):.1%})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
