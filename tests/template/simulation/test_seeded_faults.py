"""Faults sown into the real code: the simulation must find each of them."""

from __future__ import annotations

import pytest

from tests.template.simulation.code import load
from tests.template.simulation.explore import explore, explore_all, replay, told
from tests.template.simulation.mutants import MUTANTS, Mutant
from tests.template.simulation.world import simulated
from tests.template.size import WHOLE


@pytest.mark.parametrize("mutant", MUTANTS if WHOLE else MUTANTS[::3], ids=lambda mutant: mutant.fault)
def test_seeded_fault_is_found(mutant: Mutant) -> None:
    """Where the code has this fault, some schedule breaks a rule, and does so again when it is replayed."""
    code = load(mutant.changes)
    with simulated(code):
        found = explore(code, mutant.rules)
    assert found.violation is not None, f"{found.interleavings} interleavings, and none shows it"
    print("\n" + told(code, mutant.rules, found.violation))
    assert replay(code, mutant.rules, found.violation) != []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not WHOLE, reason="takes long: WHOLE=0")
def test_real_code_is_found_guilty_of_nothing() -> None:
    """Where the faults are looked for, the real code breaks no rule: it is they that were found."""
    worlds = list(dict.fromkeys(mutant.rules for mutant in MUTANTS))
    for rules, result in zip(worlds, explore_all(worlds), strict=True):
        assert result.violation is None, told(load(), rules, result.violation)


def test_seeded_faults_are_many() -> None:
    """There are at least sixteen, each another one."""
    assert len({mutant.fault for mutant in MUTANTS}) == len(MUTANTS) >= 16
