"""The headline as a picture: an SVG that is read on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks import targets
from benchmarks.report import PEERS, origin

WIDTH, PANEL_WIDTH, BAR_HEIGHT, LABEL_WIDTH, VALUE_WIDTH, MARGIN = 880, 420, 22, 144, 116, 20
HEAD = 58

_STYLE = """
  text { font: 12px -apple-system, BlinkMacSystemFont, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif }
  .headline { font-size: 16px; font-weight: 600 }
  .title { font-size: 13px; font-weight: 600 }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .ink { fill: #1f2328 }
  .pale { fill: #59636e }
  .ours { fill: #0969da }
  .other { fill: #afb8c1 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .ink { fill: #f0f6fc }
    .pale { fill: #9198a1 }
    .ours { fill: #4493f8 }
    .other { fill: #565d67 }
  }
"""


@dataclass(frozen=True)
class Panel:
    """Bars that compare the peers in one respect.

    Args:
        title: what is compared, and whether more is better.
        bars: name of the peer, figure, and the figure as it is printed.
    """

    title: str
    bars: Sequence[tuple[str, float, str]]


def panels(result: dict[str, Any]) -> list[Panel]:
    """What the picture shows, of what was measured."""
    measures = result["measures"]
    trips = {peer: of["new run"]["total"] for peer, of in measures["round_trips"].items()}
    added = {peer: targets.added_ms(measures, "10", peer) for peer in trips}
    largest = list(measures["bursts"]["ours"])[-1]
    slowest = {peer: targets.slowest(measures, peer, largest) for peer in measures["bursts"]}
    errors = {peer: targets.errors(of[largest]["statuses"]) for peer, of in measures["bursts"].items()}
    rates = {peer: targets.rate(measures, peer) for peer in trips}
    return [
        Panel(
            "Round trips to Firestore for a new run",
            [(PEERS[peer], number, f"{number}") for peer, number in trips.items()],
        ),
        Panel(
            "Time added to a run, round trips 10 ms longer",
            [(PEERS[peer], milliseconds, f"{milliseconds:.0f} ms") for peer, milliseconds in added.items()],
        ),
        Panel(
            f"Slowest answer to {largest} deliveries at once, job of 0.2 s *",
            [(PEERS[peer], late, f"{late:.1f} s, {errors[peer] or 'no'} errors") for peer, late in slowest.items()],
        ),
        Panel(
            "Distinct runs per second, more is better",
            [(PEERS[peer], runs, f"{runs:.0f}") for peer, runs in rates.items()],
        ),
    ]


def svg(result: dict[str, Any]) -> str:
    """Draws it.

    Args:
        result: of a run that measured round trips, latency, bursts and throughput.
    """
    drawn = panels(result)
    rows = [drawn[first : first + 2] for first in range(0, len(drawn), 2)]
    body: list[str] = []
    y = HEAD
    for row in rows:
        for column, panel in enumerate(row):
            body += _panel(panel, MARGIN + column * (WIDTH // 2), y)
        y += 40 + BAR_HEIGHT * max(len(panel.bars) for panel in row)
    height = y + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {_size(height)} viewBox="0 0 {WIDTH} {height}">',
            f"<title>{escape(_told(drawn))}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" {_size(height - 1, WIDTH - 1)} rx="8"/>',
            _text(MARGIN, 32, "What it costs to run each scheduled run once", "ink headline"),
            *body,
            _text(
                MARGIN,
                height - 30,
                "* how long locks are waited for is the emulator's; an answer is an error that is neither 200 nor 409",
                "pale",
            ),
            _text(MARGIN, height - 12, f"Firestore emulator, peers in turn, {origin(result)}", "pale"),
            "</svg>",
            "",
        ]
    )


def _panel(panel: Panel, x: int, y: int) -> list[str]:
    longest = max(figure for _, figure, _ in panel.bars)
    room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH
    lines = [_text(x, y + 12, panel.title, "ink title")]
    for number, (peer, figure, printed) in enumerate(panel.bars):
        top = y + 22 + number * BAR_HEIGHT
        length = max(2.0, room * figure / longest)
        kind = "ours" if peer == PEERS["ours"] else "other"
        lines += [
            _text(x, top + 14, peer, "ink" if kind == "ours" else "pale"),
            f'<rect class="{kind}" x="{x + LABEL_WIDTH}" y="{top + 3}" width="{length:.1f}" height="{BAR_HEIGHT - 7}" rx="2"/>',
            _text(x + LABEL_WIDTH + length + 6, top + 14, printed, "ink"),
        ]
    return lines


def _size(height: float, width: float = WIDTH) -> str:
    return f'width="{width}" height="{height}"'


def _text(x: float, y: float, words: str, kinds: str) -> str:
    return f'<text class="{kinds}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _told(drawn: Sequence[Panel]) -> str:
    """The picture in words, for those who don't see it."""
    lists = (", ".join(f"{peer} {printed}" for peer, _, printed in panel.bars) for panel in drawn)
    return ". ".join(f"{panel.title}: {bars}" for panel, bars in zip(drawn, lists, strict=True))
