"""Every interleaving of two attempts at one run, whatever befalls them, and a sample of those of three.

Whole, this takes minutes; `make test` sets WHOLE=0 and runs a smaller part. A violation is printed as a trace, to be replayed:

    from tests.template.simulation.code import load
    replay(load(), Rules(...), ["A:ok", ...]) == []
"""

from __future__ import annotations

import dataclasses
import random
import time

import pytest

from tests.template.simulation.code import load
from tests.template.simulation.explore import Result, explore, explore_all, replay, sample_all, told
from tests.template.simulation.world import CODES, COUNTER, MERGED, Rules, World, simulated
from tests.template.size import WHOLE

OTHERS = tuple(code for code in CODES if code not in MERGED)
DONE = ("returns", "raises")
LOOKED = ("returns", "raises", "looks")
SHORT = Rules(lease_seconds=5, waits_are_time=True, codes=(*MERGED, "DEADLINE_EXCEEDED"), counts=("time",))
"""A lease hardly longer than a time-out, where waiting counts."""

WORLDS = {
    "two faults, of which time may be one": Rules(
        faults=2, passes=1, together=2, outcomes=("returns", "raises", "permanent", "looks")
    ),
    "one error, each other code": Rules(faults=1, passes=0, codes=OTHERS, kinds=("lost", "refused", "late"), counts=("fault",)),
    "time twice, by a little or a lot": Rules(
        faults=0, passes=2, jumps=("expiry", "part"), outcomes=("returns", "looks"), counts=("pass",)
    ),
    "a renewal and a fault": Rules(faults=1, passes=0, ticks=1, outcomes=DONE, counts=("renewal",)),
    "two renewals and time": Rules(faults=0, passes=1, ticks=2, outcomes=("returns", "looks"), counts=("renewal",)),
    "effects, a fault and time": Rules(faults=1, passes=1, effects=True, outcomes=("returns",), counts=("transaction",)),
    "effects, each other code": Rules(
        faults=1,
        passes=0,
        effects=True,
        outcomes=DONE,
        codes=OTHERS,
        kinds=("lost", "refused", "late"),
        counts=("fault", "transaction"),
    ),
    "a short lease and a fault": dataclasses.replace(SHORT, faults=1, passes=0, outcomes=DONE),
    "a short lease, a renewal, a fault, one attempt": dataclasses.replace(
        SHORT, attempts=1, faults=1, passes=1, ticks=1, jumps=("part",), outcomes=LOOKED
    ),
}
SMALL = {
    "one fault": Rules(faults=1, passes=0, outcomes=DONE),
    "time": Rules(faults=0, passes=1, outcomes=LOOKED, counts=("pass",)),
    "a renewal": Rules(faults=0, passes=0, ticks=1, outcomes=DONE, counts=("renewal",)),
    "effects and a fault": Rules(faults=1, passes=0, effects=True, outcomes=("returns",), counts=("transaction",)),
}
THREE = Rules(attempts=3, faults=3, passes=2, ticks=1, jumps=("expiry", "part"))
THREE_WITH_EFFECTS = dataclasses.replace(THREE, effects=True)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_interleaving_of_two_attempts() -> None:
    """Whatever happens to two attempts at one run, no promise is broken; no interleaving is counted twice."""
    worlds = WORLDS if WHOLE else SMALL
    began = time.monotonic()
    results = explore_all(list(worlds.values()))
    seconds = time.monotonic() - began
    print()
    for name, result in zip(worlds, results, strict=True):
        print(f"{result.interleavings:>10,} {name}")
    pairs = sum(result.interleavings for result, rules in zip(results, worlds.values(), strict=True) if rules.attempts == 2)
    print(f"{pairs:,} interleavings of two attempts, exhaustive, in {seconds:.0f} s")
    for rules, result in zip(worlds.values(), results, strict=True):
        assert_none_violates(rules, result)
    assert pairs >= (100_000 if WHOLE else 1_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sample_of_three_attempts() -> None:
    """Nor is one in a sample of what three attempts can do, with more faults at once."""
    each = 2_000 if WHOLE else 200
    for rules, what in ((THREE, ""), (THREE_WITH_EFFECTS, ", with effects")):
        result = sample_all(rules, each, seed=20261016)
        print(f"\n{result.interleavings:,} interleavings of three attempts, sampled{what}")
        assert_none_violates(rules, result)
        assert result.interleavings > each * 0.6  # what two workers have both found is counted once


def assert_none_violates(rules: Rules, result: Result) -> None:
    """Fails with the trace of the schedule that broke a rule."""
    if result.violation is not None:
        pytest.fail("a promise is broken:\n" + told(load(), rules, result.violation), pytrace=False)


def test_schedule_is_replayed() -> None:
    """A schedule says all there is to say: the same options give the same run, here a take-over from the dead."""
    schedule = ["A:crash after", "time:expiry", "B:ok", "B:ok", "B:ok", "B:ok", "B:returns", "B:ok"]
    rules = Rules()
    assert replay(load(), rules, schedule) == []
    trace = told(load(), rules, schedule)
    assert trace == told(load(), rules, schedule)
    assert "B processed" in trace


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            Rules(faults=1, passes=0, kinds=("lost", "late") if WHOLE else ("lost",), outcomes=("returns",)), id="a fault"
        ),
        pytest.param(
            Rules(faults=0, passes=1, outcomes=("returns",)),
            id="time",
            marks=pytest.mark.skipif(not WHOLE, reason="takes 3 s: WHOLE=0"),
        ),
    ],
)
def test_no_interleaving_is_left_out_or_counted_twice(rules: Rules) -> None:
    """Of all the orders that steps can have, each one that makes a difference is explored, and once."""
    code = load()
    with simulated(code):
        every = explore(code, rules, reduced=False)
        reduced = explore(code, rules)
    print(f"\n{every.interleavings:,} schedules are {reduced.interleavings:,} interleavings")
    assert reduced.interleavings == len(every.seen) < every.interleavings


def test_renewal_held_up_until_after_the_finish() -> None:
    """A renewal whose thread is held up for longer than the end of the job waits for it writes nothing over the completion."""
    rules = Rules(attempts=1, faults=1, ticks=1)
    schedule = ["A:ok", "A:renewal due", "A:returns", "A:impatient", "A:ok", "A+1:ok"]
    assert replay(load(), rules, schedule) == []


@pytest.mark.timeout(300)
def test_effects_of_a_hundred_runs() -> None:
    """With lost acknowledgements and take-overs all along, the effects of each run are there exactly once."""
    code, chance, runs = load(), random.Random(20261016), 100
    rules = Rules(faults=2, passes=1, effects=True, outcomes=DONE)
    world, lost, taken_over = None, 0, 0
    with simulated(code):
        for _ in range(runs):
            world = World(code, rules, after=world)
            while options := world.options():
                faults = [
                    option for option in options if option.partition(":")[2].startswith(("lost", "crash", "late", "expiry"))
                ]
                option = chance.choice(faults if faults and chance.random() < 0.5 else options)
                lost += ":lost" in option
                world.take(option)
            world.watch.ended(always=True)
            world.end()
            assert world.watch.violations == []
            taken_over += world.watch.taken_over
    assert world is not None
    counter = next(document for name, document in world.service.documents.items() if name.endswith(COUNTER))
    total = counter.fields["n"].integer_value
    print(f"\n{runs} runs with effects, {lost} lost acknowledgements, {taken_over} take-overs: counter {total}")
    assert total == runs
    assert lost >= runs / 10
    assert taken_over >= runs / 10
