"""Faults to sow into the real code, one at a time, and where each is looked for.

A fault is a change of text; the text must be there, once. The rules say how much may happen in the world that is searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.template.simulation.code import Changes
from tests.template.simulation.world import Rules

CALM = Rules(faults=0, passes=0)
"""No fault, no time: two attempts are enough."""
SLOW = Rules(faults=0, passes=1)
"""A lease runs out somewhere."""
ONE_FAULT = Rules(faults=1, passes=0)
RENEWED = Rules(faults=0, passes=0, ticks=2, outcomes=("returns",))
SHORT = Rules(
    faults=2,
    passes=1,
    attempts=1,
    lease_seconds=5,
    waits_are_time=True,
    jumps=("part",),
    kinds=("late", "lost"),
    outcomes=("returns",),
)
"""A lease that is not much longer than a time-out."""
WITH_EFFECTS = Rules(faults=1, passes=0, effects=True, outcomes=("returns",))

HANDLER, LEASE, RECORD, STORES, CONDITIONAL, FIRESTORE = (
    "handler.py",
    "lease.py",
    "record.py",
    "stores/__init__.py",
    "stores/conditional.py",
    "stores/firestore.py",
)


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Args:
        fault: what was done to the code, in words.
        changes: the same in text.
        rules: where it shows.
    """

    fault: str
    changes: Changes
    rules: Rules


def _one(file: str, old: str, new: str) -> Changes:
    return {file: [(old, new)]}


MUTANTS = [
    Mutant(
        "drop the attempt check in finish",
        _one(
            CONDITIONAL,
            "            if record is None or not claim.may_finish(record):\n                return False",
            "            if record is None:\n                return False",
        ),
        SLOW,
    ),
    Mutant(
        "delete on finish failure",
        _one(
            HANDLER,
            "            outcome, fault = DONE_NOT_RECORDED, unavailable\n",
            "            outcome, fault = DONE_NOT_RECORDED, unavailable\n"
            "            self._finish_run_if_possible(Ending.RELEASED)\n",
        ),
        ONE_FAULT,
    ),
    Mutant(
        "recompute attempt_id on retry",
        _one(
            CONDITIONAL,
            "        fields = self._claim_fields(claim, attempts=1)",
            "        claim.attempt_id = __import__('uuid').uuid4().hex\n        fields = self._claim_fields(claim, attempts=1)",
        ),
        ONE_FAULT,
    ),
    Mutant(
        "compare with the local clock",
        _one(FIRESTORE, "read.updated_at), read.read_at", "read.updated_at), self._utcnow()"),
        CALM,
    ),
    Mutant(
        "renew by a write that changes nothing",
        _one(
            CONDITIONAL,
            '{"renewed_at": SERVER_TIME} | self._lease_fields(claim)',
            '{"lease_seconds": claim.lease_seconds}',
        ),
        RENEWED,
    ),
    Mutant(
        "treat AlreadyExists as busy without reading",
        _one(
            CONDITIONAL,
            "            if fate is not Fate.UNCLEAR:\n                contended += 1",
            "            if fate is Fate.REFUSED and record is None:\n                return Decision.IN_PROGRESS\n"
            "            if fate is not Fate.UNCLEAR:\n                contended += 1",
        ),
        CALM,
    ),
    Mutant(
        "take over without the precondition",
        _one(
            FIRESTORE,
            "        return self._commit(firestore_write.update(self._name(run_id), fields, token), tries)",
            "        commit = firestore_write.update(self._name(run_id), fields, token)\n"
            "        if 'claimed_at' in fields:\n"
            "            types.CommitRequest.pb(commit).writes[0].current_document.exists = True\n"
            "        return self._commit(commit, tries)",
        ),
        SLOW,
    ),
    Mutant(
        "judge an unclear finish by attempt_id alone",
        _one(
            STORES,
            "record.attempt_id == self.attempt_id and record.status == ending.value",
            "record.attempt_id == self.attempt_id",
        ),
        ONE_FAULT,
    ),
    Mutant(
        "leave the status out of the transaction's check",
        _one(
            FIRESTORE,
            "not record.is_held_by(claim.attempt_id):\n                raise Refused",
            "record.attempt_id != claim.attempt_id:\n                raise Refused",
        ),
        WITH_EFFECTS,
    ),
    Mutant(
        "start the job on a lease that has run out",
        {
            CONDITIONAL: [("if fate is Fate.WRITTEN and self._is_trusted(claim):", "if fate is Fate.WRITTEN:")],
            HANDLER: [
                ("if decision is not Decision.CLAIM or claim.is_trusted(clock.monotonic()):", "if decision is not None:")
            ],
        },
        SLOW,
    ),
    Mutant(
        "delete after an unclear create",
        _one(CONDITIONAL, "        if claim.create_unclear:", "        if False:"),
        ONE_FAULT,
    ),
    Mutant(
        "release on lost lease",
        _one(HANDLER, "        if not self.lease.lost:", "        if True:"),
        SLOW,
    ),
    Mutant(
        "skip the re-read after UNAVAILABLE",
        _one(
            CONDITIONAL,
            "                    if fate is Fate.WRITTEN:\n                        claim.token = None",
            "                    if fate is not Fate.REFUSED:\n                        claim.token = None",
        ),
        ONE_FAULT,
    ),
    Mutant(
        "renew with a stale token",
        _one(STORES, "        self.token = token\n", "        self.token = self.token or token\n"),
        RENEWED,
    ),
    Mutant(
        "take an absent record for a completed one",
        _one(
            STORES,
            "return record is not None and record.attempt_id == self.attempt_id and record.status == ending.value",
            "return record is None or (record.attempt_id == self.attempt_id and record.status == ending.value)",
        ),
        SLOW,
    ),
    Mutant(
        "take over without counting",
        _one(
            CONDITIONAL,
            "self._claim_fields(claim, attempts=record.attempts + 1)",
            "self._claim_fields(claim, attempts=record.attempts)",
        ),
        SLOW,
    ),
    Mutant(
        "leave in a take-over what the dead attempt has written",
        _one(CONDITIONAL, "fields = left_by_the_dead | self._claim_fields", "fields = self._claim_fields"),
        Rules(faults=0, passes=1, ticks=1, outcomes=("returns",)),
    ),
    Mutant(
        "count an unclear write as refused",
        _one(
            CONDITIONAL,
            "            tries.failed(fault)\n            return Fate.UNCLEAR",
            "            tries.failed(fault)\n            return Fate.REFUSED",
        ),
        ONE_FAULT,
    ),
    Mutant(
        "trust the lease from the acknowledgement on",
        _one(CONDITIONAL, "claim.wrote(token, tried_at)", "claim.wrote(token, self._monotonic())"),
        SLOW,
    ),
    Mutant(
        "trust an unclear write from its last try on",
        _one(CONDITIONAL, "        if unsettled_before is None:\n", "        if True:\n"),
        SHORT,
    ),
    Mutant(
        "end the lease by the writer's clock",
        _one(
            RECORD,
            "        if self.lease_seconds is not None:\n            return self.updated_at",
            "        if self.lease_expires is None:\n            return self.updated_at",
        ),
        CALM,
    ),
    Mutant(
        "forget the lease's length",
        _one(RECORD, "    if now >= record.live_until:", "    if now >= record.updated_at:"),
        CALM,
    ),
    Mutant(
        "let SystemExit pass without a release",
        _one(
            HANDLER,
            "    except BaseException as struck:",
            "    except Exception as struck:",
        ),
        CALM,
    ),
    Mutant(
        "release by a delete without a precondition",
        _one(
            FIRESTORE,
            "firestore_write.delete(self._name(run_id), token)",
            "types.CommitRequest(writes=[types.Write(delete=self._name(run_id))])",
        ),
        SLOW,
    ),
    Mutant(
        "answer 503 while the run is in progress",
        _one(HANDLER, 'Outcome("in_progress", 409,', 'Outcome("in_progress", 503,'),
        CALM,
    ),
    Mutant(
        "release a run that failed for good",
        _one(
            HANDLER,
            "_finish_run_if_possible(Ending.FAILED,",
            "_finish_run_if_possible(Ending.RELEASED,",
        ),
        CALM,
    ),
    Mutant(
        "answer 200 though the effects were not committed",
        _one(
            HANDLER,
            "        if effects is None:\n            return outcome, fault",
            "        if True:\n            return outcome, fault",
        ),
        WITH_EFFECTS,
    ),
    Mutant(
        "take an empty answer for a missing record",
        _one(FIRESTORE, 'raise google.GoogleAPIError("the answer was empty")', "return None, self._utcnow()"),
        Rules(faults=2, passes=0, attempts=1, kinds=("lost", "refused", "empty")),
    ),
    Mutant(
        "let a late renewal write with the token of the finish",
        _one(CONDITIONAL, "                        claim.token = None  #", "                        pass  #"),
        Rules(attempts=1, faults=1, passes=0, ticks=1, outcomes=("returns",)),
    ),
]
