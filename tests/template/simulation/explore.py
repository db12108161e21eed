"""Finds every schedule of a world, each once.

A schedule is the list of options that were taken. Two that differ only in the order of steps which don't touch each other are
one interleaving: sleep sets (Godefroid 1996) leave out all but one. A step touches its own attempt, and the documents that its
RPC reads or writes; time touches everything.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.template.simulation.code import Changes, load
from tests.template.simulation.world import LONGEST, Rules, World, simulated

Touched = tuple[str, tuple[tuple[str, bool], ...], bool]
"""What a step has touched: its attempt, documents and whether they were changed, time."""
Sleeping = dict[str, Touched]

FAULTY = 0.15
"""How often a sample takes a fault, where it may."""
SPLIT_AT = 4
"""How many steps in the work is handed out to the workers."""


class Violation(AssertionError):
    """A schedule that breaks a rule. Its message is the trace, and how to replay it."""


@dataclass
class _Fork:
    """A point on the way, and what is left to try there."""

    options: list[str]
    sleeping: Sleeping
    at: int = 0
    touched: Touched | None = None

    @property
    def taken(self) -> str:
        return self.options[self.at]


@dataclass
class Result:
    """What an exploration has found."""

    interleavings: int = 0
    elsewhere: int = 0
    """Found, and counted in another world."""
    cut_short: int = 0
    """Begun, and found to be another order of one that is counted."""
    violation: list[str] | None = None
    seen: set[bytes] = field(default_factory=set)
    """Of a sample, or where every order was run: each interleaving's normal form."""


def explore(
    code: SimpleNamespace, rules: Rules, prefix: Sequence[str] = (), sleeping: Sleeping | None = None, *, reduced: bool = True
) -> Result:
    """Runs every interleaving that begins with a prefix; stops at the first that breaks a rule.

    Args:
        code: the modules under test.
        rules: what may happen.
        prefix: what has happened.
        sleeping: what need not be tried after it.
        reduced: False runs each order of steps, those too that make no difference.
    """
    result = Result()
    for _ in _walk(code, rules, prefix, sleeping or {}, LONGEST + 1, result, reduced):
        if result.violation is not None:
            break
    return result


def _walk(
    code: SimpleNamespace,
    rules: Rules,
    prefix: Sequence[str],
    sleeping: Sleeping,
    deepest: int,
    result: Result,
    reduced: bool = True,
) -> Iterator[tuple[list[str], Sleeping | None]]:
    """Yields each complete schedule, and each that has become as deep as it may, with what sleeps there."""
    forks: list[_Fork] = []
    while True:
        world = World(code, rules)
        for option in prefix:
            world.take(option)
        asleep = sleeping
        for number, fork in enumerate(forks):
            world.take(fork.taken)
            if number == len(forks) - 1:
                fork.touched = _touched(world, fork.taken)
                asleep = _still_asleep(fork)
        while True:
            if world.watch.violations:
                result.violation = [*prefix, *(fork.taken for fork in forks)]
                world.end()
                yield result.violation, None
                return
            options = world.options()
            if not options:
                assert not any(task.pending for attempt in world.attempts for task in attempt.tasks), "a task is stuck"
                world.watch.ended()
                if world.is_counted():
                    result.interleavings += 1
                    if not reduced:
                        result.seen.add(_normal_form([fork.taken for fork in forks], [fork.touched for fork in forks]))
                else:
                    result.elsewhere += 1
                if world.watch.violations:
                    result.violation = [*prefix, *(fork.taken for fork in forks)]
                yield [*prefix, *(fork.taken for fork in forks)], None
                break
            if len(prefix) + len(forks) >= deepest:
                yield [*prefix, *(fork.taken for fork in forks)], asleep
                break
            awake = [option for option in options if option not in asleep]
            if not awake:
                result.cut_short += 1
                break
            fork = _Fork(awake, asleep)
            forks.append(fork)
            world.take(fork.taken)
            fork.touched = _touched(world, fork.taken)
            asleep = _still_asleep(fork)
        world.end()
        while forks:
            fork = forks[-1]
            assert fork.touched is not None
            if reduced:
                fork.sleeping = {**fork.sleeping, fork.taken: fork.touched}
            fork.at += 1
            if fork.at < len(fork.options):
                break
            forks.pop()
        if not forks:
            return


def _touched(world: World, option: str) -> Touched:
    who = "" if option.startswith(("late", "time")) else option[0]
    return who, tuple(world.touched.items()), world.took_time


def _still_asleep(fork: _Fork) -> Sleeping:
    assert fork.touched is not None
    return {option: touched for option, touched in fork.sleeping.items() if _independent(touched, fork.touched)}


def _independent(one: Touched, other: Touched) -> bool:
    if one[2] or other[2] or (one[0] and one[0] == other[0]):
        return False
    return not any(name == same and (changed or changed_too) for name, changed in one[1] for same, changed_too in other[1])


# On several cores.


def explore_all(spaces: Sequence[Rules], workers: int = 2, changes: Changes | None = None) -> list[Result]:
    """Explores whole spaces, handing out their parts; stops at the first violation."""
    code = load(changes)
    totals = [Result() for _ in spaces]
    parts = []
    with simulated(code):
        for number, rules in enumerate(spaces):
            for schedule, sleeping in _walk(code, rules, (), {}, SPLIT_AT, totals[number]):
                if totals[number].violation is not None:
                    return totals
                if sleeping is not None:
                    parts.append((number, rules, schedule, sleeping))
    with multiprocessing.get_context("fork").Pool(workers, _begin, (changes,)) as pool:
        for number, found in pool.imap_unordered(_part, parts):
            totals[number].interleavings += found.interleavings
            totals[number].elsewhere += found.elsewhere
            totals[number].cut_short += found.cut_short
            if found.violation is not None:
                totals[number].violation = found.violation
                break
    return totals


_worker: list[SimpleNamespace] = []


def _begin(changes: Changes | None) -> None:
    code = load(changes)
    context = simulated(code)
    context.__enter__()
    gc.freeze()
    gc.set_threshold(20_000)  # a world is one big cycle, and there are many
    _worker[:] = [code, context]  # type: ignore[list-item]


def _part(part: tuple[int, Rules, list[str], Sleeping]) -> tuple[int, Result]:
    number, rules, schedule, sleeping = part
    return number, explore(_worker[0], rules, schedule, sleeping)


# At random, and again.


def sample(code: SimpleNamespace, rules: Rules, count: int, seed: int) -> Result:
    """Runs so many different interleavings, chosen by a seed."""
    chance = random.Random(seed)
    result = Result()
    while len(result.seen) < count and result.violation is None:
        world = World(code, rules)
        schedule: list[str] = []
        steps: list[Touched] = []
        while options := world.options():
            plain = [option for option in options if not _is_fault(option)]
            option = chance.choice(options if not plain or chance.random() < FAULTY else plain)
            schedule.append(option)
            world.take(option)
            steps.append(_touched(world, option))
            if world.watch.violations:
                break
        else:
            world.watch.ended()
        if world.watch.violations:
            result.violation = schedule
        result.seen.add(_normal_form(schedule, steps))
        world.end()
    return result


def sample_all(rules: Rules, count: int, seed: int, workers: int = 2) -> Result:
    """The same on several cores; what two of them have found is counted once."""
    parts = 4 * workers
    total = Result()
    with multiprocessing.get_context("fork").Pool(workers, _begin, (None,)) as pool:
        for found in pool.imap_unordered(_sample_part, [(rules, count // parts, seed + part) for part in range(parts)]):
            total.seen |= found.seen
            total.violation = total.violation or found.violation
    total.interleavings = len(total.seen)
    return total


def _sample_part(part: tuple[Rules, int, int]) -> Result:
    return sample(_worker[0], *part)


def _normal_form(schedule: Sequence[str], steps: Sequence[Any]) -> bytes:
    """The same for all orders of steps that make no difference (Foata's), shortened to a hash."""
    levels: list[int] = []
    for number, step in enumerate(steps):
        before = [levels[earlier] for earlier in range(number) if not _independent(steps[earlier], step)]
        levels.append(1 + max(before, default=0))
    return hashlib.blake2b(repr(sorted(zip(levels, schedule, strict=True))).encode(), digest_size=16).digest()


def _is_fault(option: str) -> bool:
    what = option.partition(":")[2]
    return what.startswith(
        ("crash", "lost", "refused", "late", "cut", "struck", "empty", "impatient", "expiry", "part", "withheld")
    )


def replay(code: SimpleNamespace, rules: Rules, schedule: Sequence[str]) -> list[str]:
    """Runs one schedule, and returns the rules that it breaks."""
    with simulated(code):
        world = World(code, rules)
        for option in schedule:
            world.take(option)
        if not world.options() and not world.watch.violations:
            world.watch.ended()
        world.end()
        return world.watch.violations


def told(code: SimpleNamespace, rules: Rules, schedule: Sequence[str]) -> str:
    """A schedule as a person reads it: a line a step, what it breaks, and how to replay it."""
    lines = []
    with simulated(code):
        world = World(code, rules)
        for option in schedule:
            world.take(option)
            lines.append(f"  {option:24}{world.told()}")
        if not world.options() and not world.watch.violations:
            world.watch.ended()
        broken = [f"  BROKEN: {violation}" for violation in world.watch.violations]
        world.end()
    return "\n".join([*lines, *broken, f"  replay(load(), {rules}, {list(schedule)})"])
