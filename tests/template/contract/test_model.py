"""Three attempts at one run, in any order, beside a model of what should come of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from dedup.record import Decision, Ending
from dedup.stores import Claim
from tests.template.contract.harness import Harness, a_claim

ATTEMPTS = 3
STEPS = 15

attempts = st.integers(0, ATTEMPTS - 1)
run_ids = (f"{n:064x}" for n in itertools.count())


@dataclass
class Expected:
    """What the record of the run should say."""

    status: str
    owner: int
    attempts: int
    live: bool
    result: str | None = None


def machine_of(harness: Harness) -> type[RuleBasedStateMachine]:
    """The state machine of one store; each of its examples is about a run of its own."""

    class Attempts(RuleBasedStateMachine):  # its rules are the store's methods, by their own names
        run_id: str
        claims: list[Claim]
        expected: Expected | None

        @initialize()
        def begin(self) -> None:
            self.run_id = next(run_ids)
            self.claims = [a_claim(self.run_id) for _ in range(ATTEMPTS)]
            self.expected = None

        @rule(who=attempts)
        def claim(self, who: int) -> None:
            was = self.expected
            decision = harness.store.claim_run(self.claims[who])
            if was is None:
                assert decision is Decision.CLAIM
                self.expected = Expected("in_progress", who, 1, live=True)
            elif was.status != "in_progress":
                assert decision.value == was.status
            elif was.live and was.owner != who:
                assert decision is Decision.IN_PROGRESS
            else:
                assert decision is Decision.CLAIM
                self.expected = Expected("in_progress", who, was.attempts if was.live else was.attempts + 1, live=True)
            if decision is Decision.CLAIM:
                assert self.expected is not None
                assert self.claims[who].attempts == self.expected.attempts

        @precondition(lambda self: any(claim.token for claim in self.claims))
        @rule(who=attempts)
        def renew(self, who: int) -> None:
            held = self._is_held_by(who)
            if self.claims[who].token is not None:  # nobody renews what he hasn't claimed
                assert harness.store.renew_run(self.claims[who]) == held
            if held and self.expected is not None:
                self.expected.live = True

        @rule(who=attempts, ending=st.sampled_from(Ending), has_effects=st.booleans())
        def finish(self, who: int, ending: Ending, has_effects: bool) -> None:
            held = self._is_held_by(who)
            counted = harness.counted() if has_effects else 0
            has_effects &= harness.store.supports_effects
            effects = harness.count_one if has_effects and ending is Ending.COMPLETED else None
            ended = harness.store.finish_run(self.claims[who], ending, result=f"{who}'s", effects=effects)
            if held:
                assert ended
            elif not self._stands_as(who, ending):
                assert not ended
            if effects is not None:
                assert harness.counted() == counted + held
            if held and self.expected is not None:
                if ending is Ending.RELEASED:
                    self.expected = None
                else:
                    self.expected.status = ending.value
                    self.expected.result = f"{who}'s"

        @precondition(lambda self: self.expected is not None and self.expected.status == "in_progress" and self.expected.live)
        @rule()
        def expire_lease(self) -> None:
            assert self.expected is not None
            harness.expire_lease(self.run_id)
            self.expected.live = False

        @invariant()
        def stands_as_expected(self) -> None:
            fields = harness.raw(self.run_id)
            if self.expected is None:
                assert fields is None
                return
            assert fields is not None
            assert fields["status"] == self.expected.status
            assert fields["attempt_id"] == self.claims[self.expected.owner].attempt_id
            assert fields["attempts"] == self.expected.attempts
            assert fields.get("result") == self.expected.result
            assert ("finished_at" in fields) == (self.expected.status != "in_progress")

        def _is_held_by(self, who: int) -> bool:
            return self.expected is not None and (self.expected.status, self.expected.owner) == ("in_progress", who)

        def _stands_as(self, who: int, ending: Ending) -> bool:
            """Whether the run stands as this attempt wants to leave it: a store may say then that it was its doing."""
            if self.expected is None:
                return ending is Ending.RELEASED
            return (self.expected.status, self.expected.owner) == (ending.value, who)

    return Attempts


def test_any_order(harness: Harness) -> None:
    """Whatever three attempts do in whatever order, the store answers as the model does, and keeps what the model keeps."""
    run_state_machine_as_test(
        machine_of(harness),
        settings=settings(
            max_examples=harness.examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if harness.shrinks else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
