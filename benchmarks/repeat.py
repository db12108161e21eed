"""Whether runs agree: how far their ratios lie apart, and what to blame where they don't."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks import targets

AGREE_WITHIN = 0.15
STEADY_WITHIN = 0.10
"""What a machine's own speed may differ by before it explains what a ratio differs by."""
NEAR_NOTHING = 0.05
"""Of a ratio: where all are smaller, 15 % of it is less than a timer and a scheduler of tasks are good for."""


def agreement(results: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """Compares runs, ratio by ratio.

    Args:
        results: of runs of one size on one machine.

    Returns:
        A line for each ratio, and whether all agree within 15 %.
    """
    of_runs = [targets.ratios(result["measures"]) for result in results]
    lines, agreed = [], True
    for name in of_runs[0]:
        values = [ratios[name] for ratios in of_runs if name in ratios]
        apart = max(values) / min(values) - 1
        within = apart <= AGREE_WITHIN
        agreed = agreed and within
        why = "" if within else f": {_reason(results, name, values)}"
        lines.append(f"{apart:6.1%}  {' '.join(f'{value:.3f}' for value in values)}  {name}{why}")
    return "\n".join(lines), agreed


def _reason(results: Sequence[dict[str, Any]], name: str, values: Sequence[float]) -> str:
    if max(values) < NEAR_NOTHING:
        return f"the ratio is near nothing, they differ by {max(values) - min(values):.3f}"
    if burst := re.match(r"slowest answer of (\d+) at once", name):
        waits = [targets.slowest(result["measures"], "documented", burst[1]) for result in results]
        if max(waits) / min(waits) - 1 > AGREE_WITHIN:
            return f"whether the example's transactions meet is chance, its slowest took {min(waits):.1f} to {max(waits):.1f} s"
    speeds = [ms for result in results for ms in result["calibration_ms"]]
    apart = max(speeds) / min(speeds) - 1
    if apart > STEADY_WITHIN:
        return f"the machine was not steady, a fixed piece of work took {min(speeds):.1f} to {max(speeds):.1f} ms"
    if any(result["quick"] for result in results):
        return "a quick run has too few turns"
    return "more turns are needed, or the peers don't take them evenly"
