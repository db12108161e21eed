"""The benchmark counts what it says, and its page, picture and tables are those of its figures."""

from __future__ import annotations

import copy
import json
import os
import re
import xml.etree.ElementTree as ET
from typing import Any
from unittest import mock

import pytest

from benchmarks import chart, report, scale, targets
from benchmarks.measures import count_kinds, summary, time_in_turn
from benchmarks.peers import Bare, Documented, Limit, Ours
from benchmarks.repeat import agreement
from benchmarks.wire import Wire
from tests.template import ROOT
from tests.template.emulator import Emulator

DOCS = ROOT / "docs"
PUBLISHED: dict[str, Any] = json.loads((DOCS / "benchmarks.json").read_text())


@pytest.fixture
def project(emulator: Emulator, request: pytest.FixtureRequest) -> Any:
    """A project of the test's own."""
    name = f"bench-{request.node.name[:20].replace('_', '-').replace('[', '-').rstrip(']')}"
    with mock.patch.dict(os.environ, {"FIRESTORE_EMULATOR_HOST": emulator.host, "GOOGLE_CLOUD_PROJECT": name}):
        yield name


@pytest.mark.parametrize("peer", ["ours", "documented"])
def test_round_trips(project: str, peer: str) -> None:
    """A new run, its duplicates, a failure and a take-over cost the round trips that docs/outcomes.md names, and no more."""
    wire = Wire()
    counted = count_kinds(Ours.on_firestore(project, wire) if peer == "ours" else Documented(project, wire), wire)

    expected = targets.ROUND_TRIPS[peer]
    assert {kind: counted[kind]["total"] for kind in expected} == expected


def test_what_is_billed(project: str) -> None:
    """A new run is billed two writes, a duplicate one read, a failure a write and a delete: what docs/scale.md reckons with."""
    wire = Wire()
    counted = count_kinds(Ours.on_firestore(project, wire), wire)

    billed = {kind: scale.Cost(of["reads"], of["writes"], of["deletes"]) for kind, of in counted.items()}
    assert billed["new run"] == scale.NEW_RUN == scale.Cost(writes=2)
    assert billed["duplicate, completed"] == billed["duplicate, in progress"] == scale.DUPLICATE == scale.Cost(reads=1)
    assert billed["failure"] == scale.FAILURE == scale.Cost(writes=1, deletes=1)


def test_a_delay_is_added_to_each_round_trip(project: str) -> None:
    """Two round trips of 20 ms more make a run at least 40 ms longer."""
    timed = time_in_turn({"limit": Limit(project, Wire(0.02)), "bare": Bare()}, 3)

    assert timed["limit"]["new run"]["median_ms"] >= 40
    assert timed["bare"]["new run"]["median_ms"] < 20


def test_median_and_percentile() -> None:
    """Seconds become a median and a 99th percentile in milliseconds."""
    assert summary([number / 1000 for number in range(101)]) == {"median_ms": 50, "p99_ms": pytest.approx(99), "runs": 101}


def test_published_figures_meet_the_targets() -> None:
    """What the README's picture shows was a whole run, and it met every target."""
    assert not PUBLISHED["quick"]
    judged = targets.verdicts(PUBLISHED["measures"])
    assert len(judged) >= 34
    assert [str(verdict) for verdict in judged if not verdict.met] == []


def test_published_page_is_that_of_the_figures() -> None:
    """docs/benchmarks.md has the tables of docs/benchmarks.json, and docs/benchmarks.svg draws them."""
    page = (DOCS / "benchmarks.md").read_text()

    assert report.into_page(page, PUBLISHED) == page
    assert chart.svg(PUBLISHED) == (DOCS / "benchmarks.svg").read_text()


def test_tables_and_picture_name_machine_and_date() -> None:
    """Whoever sees a figure sees where and when it was measured."""
    for shown in (report.text(PUBLISHED), chart.svg(PUBLISHED)):
        assert PUBLISHED["date"] in shown
        assert f"{PUBLISHED['machine']['cores']} cores" in shown


def test_the_picture_is_an_image_with_a_text() -> None:
    """The SVG is well-formed, its bars stay within it, and its title tells what it shows to those who don't see it."""
    root = ET.fromstring(chart.svg(PUBLISHED))
    width = float(root.attrib["width"])
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.attrib["class"] in ("ours", "other")]

    assert len(bars) == 11
    assert all(float(bar.attrib["x"]) + float(bar.attrib["width"]) < width for bar in bars)
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert "Round trips to Firestore for a new run: ours 2, documented example 6" in (title.text or "")


def test_a_missed_target_is_named() -> None:
    """A figure beyond its bound is MISSED, with the figure; one that wasn't measured is neither met nor missed."""
    worse = copy.deepcopy(PUBLISHED["measures"])
    worse["round_trips"]["ours"]["new run"]["total"] = 3
    worse.pop("memory", None)

    told = [str(verdict) for verdict in targets.verdicts(worse)]

    assert "MISSED               3  round trips of a new run, ours: 2" in told
    assert any(line.startswith("not measured") and "memory at rest" in line for line in told)


def test_runs_that_agree_and_runs_that_do_not() -> None:
    """Runs whose ratios lie more than 15 % apart don't agree, and the ratio and a reason are named."""
    apart = copy.deepcopy(PUBLISHED)
    for of in apart["measures"]["throughput"].values():
        of["runs_per_second"] *= 1.5  # all alike: no ratio moves
    assert agreement([PUBLISHED, apart])[1]

    apart["measures"]["throughput"]["ours"]["runs_per_second"] *= 2
    told, agreed = agreement([PUBLISHED, apart])
    assert not agreed
    assert re.search(r"^100\.0%  .* runs per second, documented / ours: \w+", told, re.MULTILINE)


def test_why_bursts_do_not_agree() -> None:
    """Where the example's transactions met in one run and not in the other, that is the reason; near nothing, that is."""
    apart = copy.deepcopy(PUBLISHED)
    of_example = apart["measures"]["bursts"]["documented"]
    for deliveries, by in (("8", 0.2), ("50", 0.5)):
        of_example[deliveries]["slowest_seconds"] *= by

    told, agreed = agreement([PUBLISHED, apart])

    assert not agreed
    assert re.search(r"slowest answer of 8 at once, .*: whether the example's transactions meet is chance", told)
    assert re.search(r"slowest answer of 50 at once, .*: the ratio is near nothing", told)


def test_a_small_difference_of_a_ratio_that_counts_is_not_near_nothing() -> None:
    """0.30 and 0.26 are more than 15 % apart: that they differ by little explains nothing."""
    results = [copy.deepcopy(PUBLISHED), copy.deepcopy(PUBLISHED)]
    for result, ratio in zip(results, (0.30, 0.26), strict=True):
        rates = result["measures"]["throughput"]
        rates["documented"]["runs_per_second"] = ratio * rates["ours"]["runs_per_second"]

    told, agreed = agreement(results)

    assert not agreed
    assert re.search(r"runs per second, documented / ours: .", told)
    assert "near nothing" not in told


def test_scale_page_is_computed() -> None:
    """The tables of docs/scale.md are those that the script computes."""
    assert scale.page() == scale.PAGE.read_text()


def test_a_day_at_a_store_that_is_fast_enough_waits_for_nothing() -> None:
    """Where the busiest second fits, no claim waits; where it doesn't, the wait is what the backlog takes to drain."""
    assert sum(scale.due(1_000_000)) == pytest.approx(1_000_000)
    busiest = scale.simulate(1_000_000, float("inf")).busiest_second
    assert scale.simulate(1_000_000, 2 * busiest).longest_wait == 0
    slow = scale.simulate(1_000_000, 2 * busiest / 4)
    assert slow.longest_wait == pytest.approx(4 * scale.SPREAD_SECONDS - scale.SPREAD_SECONDS, abs=1)


def test_the_ramp_of_new_traffic() -> None:
    """500 operations a second need no ramp; 750 take one step of 5 minutes, and a little more takes two."""
    assert [scale.minutes_to_ramp_to(rate) for rate in (500, 750, 751)] == [0, 5, 10]
