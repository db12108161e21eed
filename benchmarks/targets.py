"""What a run must show. A figure that was not measured is not met, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

Measures = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether one thing was shown.

    Args:
        what: in words, with its bound.
        figure: what was measured; None where it wasn't.
        met: whether that is within the bound; None where it wasn't measured.
    """

    what: str
    figure: float | None
    met: bool | None

    def __str__(self) -> str:
        mark = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        figure = f"{self.figure:.2f}".rstrip("0").rstrip(".") if self.figure is not None else "-"
        return f"{mark:12}  {figure:>8}  {self.what}"


def verdicts(measures: Measures) -> list[Verdict]:
    """Judges a whole run or a quick one: what the latter leaves out is judged by what it has."""
    return [
        Verdict(what, figure, None if figure is None else (figure == bound if exact else figure <= bound))
        for what, figure, bound, exact in _judged(measures)
    ]


def ratios(measures: Measures) -> dict[str, float]:
    """Every ratio that is published, by name: what two runs must agree on."""
    found = {name: _or_none(compute, measures) for name, compute in RATIOS.items()}
    for delay in _at(measures, "redis", "latency") or ():
        found[f"{ON_REDIS}, {delay} ms"] = _or_none(partial(_ratio_on_redis, delay=delay), measures)
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def added_ms(measures: Measures, delay: str, peer: str) -> float:
    """Milliseconds that a peer adds to a new run, at this delay of a round trip."""
    timed = measures["latency"][delay]
    return float(timed[peer]["new run"]["median_ms"] - timed["bare"]["new run"]["median_ms"])


def slowest(measures: Measures, peer: str, deliveries: str) -> float:
    """Seconds until the last answer of a burst."""
    return float(measures["bursts"][peer][deliveries]["slowest_seconds"])


def errors(statuses: dict[str, int]) -> int:
    """Answers that are neither 200 nor 409; none at all is status 0."""
    return sum(number for status, number in statuses.items() if status not in ("200", "409"))


def rate(measures: Measures, peer: str) -> float:
    """Distinct runs per second."""
    return float(measures["throughput"][peer]["runs_per_second"])


def _start(measures: Measures, what: str) -> float:
    by_peer = measures["starts"]["all compiled"]
    return float(by_peer["ours"][what] / by_peer["documented"][what])


def _growth(measures: Measures) -> float:
    medians = [timed["median_ms"] for timed in measures["growth"].values()]
    return float(medians[-1] / medians[0])


def _memory_growth(measures: Measures) -> float:
    *_, before, after = [mib for name, mib in measures["memory"]["ours"].items() if name != "at_rest"]
    return float(after / before)


RATIOS: dict[str, Callable[[Measures], float]] = {
    "time added to a run, ours / documented, 10 ms": lambda m: added_ms(m, "10", "ours") / added_ms(m, "10", "documented"),
    "time added to a run, ours / documented, 2 ms": lambda m: added_ms(m, "2", "ours") / added_ms(m, "2", "documented"),
    "time added to a run, ours / documented, 0 ms": lambda m: added_ms(m, "0", "ours") / added_ms(m, "0", "documented"),
    "time added to a run, ours / two raw commits, 10 ms": lambda m: added_ms(m, "10", "ours") / added_ms(m, "10", "limit"),
    "slowest answer of 8 at once, ours / documented": lambda m: slowest(m, "ours", "8") / slowest(m, "documented", "8"),
    "slowest answer of 50 at once, ours / documented": lambda m: slowest(m, "ours", "50") / slowest(m, "documented", "50"),
    "runs per second, documented / ours": lambda m: rate(m, "documented") / rate(m, "ours"),
    "process start to first answer, ours / documented": lambda m: _start(m, "first_answer_ms"),
    "first delivery once the port is open, ours / documented": lambda m: _start(m, "first_delivery_ms"),
    "memory at rest, ours / documented": lambda m: m["memory"]["ours"]["at_rest"] / m["memory"]["documented"]["at_rest"],
    "new run, largest collection / empty one": _growth,
    "memory after all runs / after half of them": _memory_growth,
}

ON_REDIS = "time added to a run on Redis, our store / Powertools'"

_BOUNDS = {
    "time added to a run, ours / documented, 10 ms": 0.40,
    "time added to a run, ours / documented, 0 ms": 0.50,
    "time added to a run, ours / two raw commits, 10 ms": 1.25,
    "slowest answer of 8 at once, ours / documented": 0.15,
    "slowest answer of 50 at once, ours / documented": 0.15,
    "runs per second, documented / ours": 0.50,
    "process start to first answer, ours / documented": 1.05,
    "first delivery once the port is open, ours / documented": 1.00,
    "memory at rest, ours / documented": 1.01,
    "new run, largest collection / empty one": 1.10,
    "memory after all runs / after half of them": 1.03,
}
"""At most. Of memory, 1 % is what two instances of one peer differ by, and 3 % what one differs by from itself under load."""

ROUND_TRIPS = {
    "ours": {"new run": 2, "duplicate, completed": 2, "duplicate, in progress": 2, "failure": 2, "take-over": 4},
    "documented": {"new run": 6, "duplicate, completed": 3, "failure": 6},
}


def _judged(measures: Measures) -> Iterator[tuple[str, float | None, float, bool]]:
    for peer, kinds in ROUND_TRIPS.items():
        for kind, expected in kinds.items():
            found = _at(measures, "round_trips", peer, kind, "total")
            yield f"round trips of a {kind}, {peer}: {expected}", found, expected, True
    for what, expected in (("reads", 0), ("writes", 2)):
        found = _at(measures, "round_trips", "ours", "new run", what)
        yield f"billed {what} of a new run, ours: {expected}", found, expected, True
    for name, bound in _BOUNDS.items():
        yield f"{name}: at most {bound:g}", _or_none(RATIOS[name], measures), bound, False
    for deliveries in ("8", "50"):
        statuses = _at(measures, "bursts", "ours", deliveries, "statuses")
        number = None if statuses is None else errors(statuses)
        yield f"answers other than 200 and 409, {deliveries} at once, ours: 0", number, 0, True
        runs = _at(measures, "bursts", "ours", deliveries, "bursts")
        executions = _at(measures, "bursts", "ours", deliveries, "executions")
        yield f"executions of a run, {deliveries} at once, ours: 1", None if runs is None else executions / runs, 1, True
    until_answer = _at(measures, "silence", "ours", "seconds")
    yield "seconds to an answer where the store is silent, ours: at most 10", until_answer, 10, False
    if _at(measures, "redis", "round_trips", "ours") is not None:
        yield from _judged_on_redis(measures)


def _judged_on_redis(measures: Measures) -> Iterator[tuple[str, float | None, float, bool]]:
    counted = measures["redis"]["round_trips"]
    for kind, of in counted["powertools"].items():
        what = f"round trips of a {kind} on Redis, ours: at most Powertools' {of['total']}"
        yield what, counted["ours"][kind]["total"], of["total"], False
    for delay in measures["redis"]["latency"]:
        # Of 10 ms twice, 0.5 % is less than a sleep is late by. Where nothing is added, it is the processor's time alone.
        ratio, bound = _or_none(partial(_ratio_on_redis, delay=delay), measures), 1.1 if delay == "0" else 1.0
        told = f"{ON_REDIS}, {delay} ms: at most {bound:.2f}, to two digits"
        yield told, None if ratio is None else round(ratio, 2), bound, False


def _ratio_on_redis(measures: Measures, *, delay: str) -> float:
    return _added_on_redis(measures, delay, "store") / _added_on_redis(measures, delay, "powertools")


def _added_on_redis(measures: Measures, delay: str, peer: str) -> float:
    bare = measures["latency"][delay]["bare"]["new run"]["median_ms"]
    return float(measures["redis"]["latency"][delay][peer]["new run"]["median_ms"] - bare)


def _at(measures: Measures, *path: str) -> Any:
    """What is there; None where the run has left it out."""
    found: Any = measures
    for name in path:
        if found is None or name not in found:
            return None
        found = found[name]
    return found


def _or_none(compute: Callable[[Measures], float], measures: Measures) -> float | None:
    """None where the run has left out what it is computed from."""
    try:
        return compute(measures)
    except KeyError:
        return None
