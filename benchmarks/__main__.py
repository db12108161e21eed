"""Measures, judges and shows: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import chart, measures, report, targets
from benchmarks.repeat import agreement
from tests.template.emulator import EmulatorMissing, firestore_emulator

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LOCAL = ROOT / ".local" / "benchmarks"


def main() -> int:
    """Says 1 where a target is missed, or runs don't agree."""
    options = _options()
    results = []
    for number in range(1, options.repeat + 1):
        label = f"run {number} of {options.repeat}, " if options.repeat > 1 else ""
        results.append(run(measures.QUICK if options.quick else measures.WHOLE, options.only, label))
        write(results[-1], LOCAL / f"{'quick' if options.quick else 'whole'}-{number}")
        print(report.text(results[-1]))
    agreed = True
    if options.repeat > 1:
        told, agreed = agreement(results)
        print(f"The ratios of {options.repeat} runs lie this far apart:\n\n{told}\n")
    if options.publish:
        publish(results[-1])
    missed = [verdict for verdict in targets.verdicts(results[-1]["measures"]) if verdict.met is False]
    return 1 if missed or not agreed else 0


def run(size: measures.Size, only: list[str], label: str = "") -> dict[str, Any]:
    """Takes every measure once, peers in turn.

    Args:
        size: how much is measured.
        only: the names of the measures; none means all.
        label: begins the lines that tell of the progress.
    """
    chosen = {name: measure for name, measure in measures.MEASURES.items() if not only or name in only}
    result: dict[str, Any] = {
        "date": report.today(),
        "machine": report.machine(),
        "quick": size is measures.QUICK,
        "calibration_ms": [measures.calibration()],
        "measures": {},
    }
    began = time.monotonic()
    with firestore_emulator() as emulator, tempfile.TemporaryDirectory() as folder:
        environ = {"FIRESTORE_EMULATOR_HOST": emulator.host, "GOOGLE_CLOUD_PROJECT": "benchmarks"}
        with mock.patch.dict(os.environ, environ):

            def bench_of(name: str) -> measures.Bench:
                at = f"{label}{list(chosen).index(name) + 1} of {len(chosen)} {name}"
                return measures.Bench(
                    emulator, Path(folder), size, lambda what: tell(f"{time.monotonic() - began:5.0f} s  {at}: {what}")
                )

            with ThreadPoolExecutor() as pool:
                waiting = {name: pool.submit(chosen[name], bench_of(name)) for name in measures.WAITING if name in chosen}
                for name, measure in chosen.items():
                    result["measures"][name] = waiting[name].result() if name in waiting else measure(bench_of(name))
                    result["calibration_ms"].append(measures.calibration())
    tell("")
    result["seconds"] = time.monotonic() - began
    return result


def tell(line: str) -> None:
    """One line that the next one takes the place of; in a file, one after the other."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)


def write(result: dict[str, Any], stem: Path) -> None:
    """Writes the figures as JSON and, where all that it shows was measured, the picture."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    if {"round_trips", "latency", "bursts", "throughput"} <= result["measures"].keys():
        stem.with_suffix(".svg").write_text(chart.svg(result))


def publish(result: dict[str, Any]) -> None:
    """Puts the figures where the README and docs/benchmarks.md show them."""
    write(result, DOCS / "benchmarks")
    page = DOCS / "benchmarks.md"
    page.write_text(report.into_page(page.read_text(), result))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=measures.__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, in under a minute; not to be quoted")
    parser.add_argument("--only", nargs="+", default=[], choices=measures.MEASURES, metavar="MEASURE", help="of %(choices)s")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="N runs in a row, and whether they agree")
    parser.add_argument("--publish", action="store_true", help="write the figures into docs/")
    options = parser.parse_args()
    if options.publish and (options.quick or options.only):
        parser.error("--publish needs a whole run: it takes neither --quick nor --only")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EmulatorMissing as missing:
        sys.exit(str(missing))
