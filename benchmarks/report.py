"""The figures as tables. They are Markdown that lines up, so that a terminal and a page show the same."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import targets

PEERS = {"ours": "ours", "documented": "documented example", "limit": "two raw commits", "bare": "no deduplication"}
BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"

Result = dict[str, Any]


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpus = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.+)$", cpus.read_text(), re.MULTILINE) if cpus.exists() else None
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def today() -> str:
    """The date that goes with the figures."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def origin(result: Result) -> str:
    """Machine and date, for every table and picture."""
    of = result["machine"]
    return f"{result['date']}, {of['cores']} cores of {of['cpu']}, {of['system']}, Python {of['python']}"


def text(result: Result) -> str:
    """All tables, and what they must show."""
    measures = result["measures"]
    parts = [f"{origin(result)}{', quick: too few runs to be quoted' if result['quick'] else ''}."]
    parts += [section(measures) for names, section in _SECTIONS.items() if measures.keys() & set(names.split())]
    verdicts = targets.verdicts(measures)
    met, missed = (sum(verdict.met is wanted for verdict in verdicts) for wanted in (True, False))
    counts = f"{met} met, {missed} missed, {len(verdicts) - met - missed} not measured"
    parts.append("\n".join([f"What it must show: {counts}.", "", "```", *map(str, verdicts), "```"]))
    return "\n\n".join(parts) + "\n"


def into_page(page: str, result: Result) -> str:
    """A page with its figures exchanged for these."""
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{text(result)}\n{END}{rest.split(END, 1)[1]}"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; all but the first to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def row(cells: Sequence[str]) -> str:
        aligned = [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:]), ""])
    return "\n".join([f"**{title}**", "", row(lines[0]), rule, *map(row, lines[1:])])


def _round_trips(measures: Result) -> str:
    def cell(counted: dict[str, Any] | None) -> str:
        if counted is None:
            return ""
        parts = [f"{counted[what]} {what[0]}" for what in ("reads", "writes", "deletes") if counted[what]]
        return f"{counted['total']} ({', '.join(parts) or 'nothing billed'})"

    found = measures["round_trips"]
    return table(
        "Round trips to Firestore (billed: r reads, w writes, d deletes)",
        ["", *(PEERS[peer] for peer in found)],
        ([kind, *(cell(found[peer].get(kind)) for peer in found)] for kind in found["ours"]),
    )


def _latency(measures: Result) -> str:
    rows = []
    for delay, timed in measures["latency"].items():
        for kind in ("new run", "duplicate"):
            cells = [f"{t[kind]['median_ms']:.2f} / {t[kind]['p99_ms']:.2f}" if kind in t else "" for t in timed.values()]
            rows.append([f"{kind}, {delay} ms added", *cells])
    head = ["", *(PEERS[peer] for peer in next(iter(measures["latency"].values())))]
    return table("Milliseconds of a delivery, median / p99, by what is added to each round trip", head, rows)


def _bursts(measures: Result) -> str:
    found = measures["bursts"]

    def cells(peer: str, deliveries: str) -> list[str]:
        of = found[peer][deliveries]
        answers = ", ".join(f"{n} x {status if status != '0' else 'no answer'}" for status, n in of["statuses"].items())
        return [answers, str(of["executions"]), f"{of['slowest_seconds']:.2f}"]

    rows = []
    for deliveries, of in found["ours"].items():
        rows.append([f"{deliveries} at once, {of['bursts']} x", *(cell for peer in found for cell in cells(peer, deliveries))])
    return table(
        "Deliveries of one run at once, a job of 0.2 s, so many bursts each (lock waits are the emulator's)",
        ["", *(f"{PEERS[peer]}: {what}" for peer in found for what in ("answers", "jobs run", "slowest, s"))],
        rows,
    )


def _by_peer(measures: Result) -> str:
    """One line for each figure, blank for whom it was not measured."""
    rows: list[list[str]] = []

    def add(what: str, of: dict[str, Any], key: str, form: str = "{:.0f}") -> None:
        rows.append([what, *(form.format(of[peer][key]) if key in of.get(peer, {}) else "" for peer in PEERS)])

    if "throughput" in measures:
        add("distinct runs per second", measures["throughput"], "runs_per_second")
    for kind, of in measures.get("starts", {}).items():
        add(f"process start to first answer, ms, {kind}", of, "first_answer_ms")
        add(f"first delivery once the port is open, ms, {kind}", of, "first_delivery_ms")
    memory = measures.get("memory", {})
    for when in memory.get("ours", {}):
        add(f"memory {when.replace('_', ' ')}{' runs' if when != 'at_rest' else ''}, MiB", memory, when, "{:.1f}")
    if "silence" in measures:
        found = measures["silence"]
        cells = {
            peer: f"{of['seconds']:.1f}" if of["seconds"] is not None else f"none in {of['waited_seconds']:.0f}"
            for peer, of in found.items()
        }
        rows.append(["seconds to an answer, the store silent", *(cells.get(peer, "") for peer in PEERS)])
    return table("An instance of functions-framework at its default threads", ["", *PEERS.values()], rows)


def _growth(measures: Result) -> str:
    rows = ([f"{int(n):,}", f"{of['median_ms']:.2f}", f"{of['p99_ms']:.2f}"] for n, of in measures["growth"].items())
    return table("A new run of ours, by records there already", ["records", "median, ms", "p99, ms"], rows)


def _renewal(measures: Result) -> str:
    of = measures["renewal"]
    return (
        f"A job of {of['leases']} leases: {of['round_trips']} round trips for renewal, {of['per_lease']:.1f} a lease; "
        "a job shorter than a third of its lease: none."
    )


def _redis(measures: Result) -> str:
    found = measures["redis"]
    if "skipped" in found:
        return f"On Redis nothing was measured: {found['skipped']}."
    names = {"ours": "ours", "store": "our store alone", "powertools": "Powertools", "limit": "two raw commands"}
    head = ["", *(names[peer] for peer in found["round_trips"])]
    rows = [
        [f"round trips: {kind}", *(str(of[kind]["total"]) if kind in of else "" for of in found["round_trips"].values())]
        for kind in found["round_trips"]["powertools"]
    ]
    for delay, timed in found["latency"].items():
        for kind in ("new run", "duplicate"):
            cells = [f"{t[kind]['median_ms']:.2f} / {t[kind]['p99_ms']:.2f}" if kind in t else "" for t in timed.values()]
            rows.append([f"{kind}, {delay} ms added: ms, median / p99", *cells])
    return table("On Redis, where Powertools keeps its records", head, rows)


_SECTIONS = {
    "round_trips": _round_trips,
    "latency": _latency,
    "bursts": _bursts,
    "throughput starts memory silence": _by_peer,
    "growth": _growth,
    "renewal": _renewal,
    "redis": _redis,
}
