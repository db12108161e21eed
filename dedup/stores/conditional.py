"""Runs on a server that writes under a condition: what Firestore and Spanner have in common.

Create or read, decide, change where nobody has written since, and judge by reading again what is unclear: that is here, once. A
store says how its server does each of these, what its errors mean, and how runs are listed.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import parse_qsl

from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError

from dedup.record import Decision, Ending, RunRecord, Status, decide
from dedup.stores import FINISH_SECONDS, Claim, Details, Effects, EffectsRaised, StoreUnavailable, deleted_unseen, monotonic
from dedup.stores.tries import Fate, Tries

CLAIM_SECONDS = 9.0
"""A delivery is answered within 10 s of the store's silence; the rest is for the answer."""
RENEW_SECONDS = 5.0
RPC_SECONDS = 3.0
"""One try. The first one on a cold connection, its token included, takes less than two."""
CONTENDED_CLAIMS = 5
"""How often another attempt may be faster before a claim gives the run up to it."""
REFUSED_FINISHES = 3
"""How often a finish is tried again whose condition was refused though the run is still its own."""

SERVER_TIME = object()
"""Stands for the server's time of the write, in what is written."""
FAULTS = (google.GoogleAPIError, GoogleAuthError)
"""What a client raises. What is none of a store's own two kinds leaves unclear what was written."""
FINAL = (google.PermissionDenied, google.Unauthenticated, google.InvalidArgument, google.MethodNotImplemented)
"""The answer of either server that the next try would get too."""
REMEDIES: dict[type[Exception], str] = {
    google.Unauthenticated: "its credentials are refused: gcloud auth application-default login",
    google.DeadlineExceeded: "the server didn't answer in time",
    google.ServiceUnavailable: "the server can't be reached",
    TimeoutError: "the server didn't answer in time",
}
"""What to do about a fault, on either server."""

log = logging.getLogger("dedup")

T = TypeVar("T")


def name_in(query: str, option: str, form: str) -> str:
    """What the one option of a URL says, `scheduler_runs` where it isn't there.

    Raises:
        ValueError: there is another option; `form` tells what a URL looks like.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    name = options.pop(option, "scheduler_runs")
    if options:
        raise ValueError(f"it has an option other than {option}; the form is {form}")
    return name


class Refused(Exception):
    """The run isn't as the condition of a write wants it: nothing was written."""


class Clocks(TypedDict, total=False):
    """What a store may be given in place of this machine's own."""

    monotonic: Callable[[], float]
    """Seconds, for deadlines and for how long an attempt trusts its lease."""
    utcnow: Callable[[], datetime]
    """It writes times for people, and for deletion by expiry, and decides nothing."""
    sleep: Callable[[float], None]
    """Waits between two tries."""


class ConditionalStore(ABC):
    """The procedure. What says where the server is, is the store's own."""

    supports_effects = True
    project: str | None
    service: str
    """What its status page is named for."""
    refused: tuple[type[Exception], ...]
    """A condition didn't hold: this try wrote nothing. Classes, not codes: 409 is AlreadyExists as well as Aborted."""
    final: tuple[type[Exception], ...]
    """The server's answer, and the next one would be the same."""
    refused_effects: tuple[type[Exception], ...]
    """Where the run stands as before, the server refused what the job's effects wrote, such as what exists already."""
    remedies: Mapping[type[Exception], str]
    """What to do about a fault."""

    def __init__(self, **clocks: Unpack[Clocks]) -> None:
        self._monotonic = clocks.get("monotonic", monotonic)
        self._utcnow = clocks.get("utcnow", lambda: datetime.now(UTC))
        self._sleep = clocks.get("sleep", time.sleep)

    def claim_run(self, claim: Claim) -> Decision:
        """Claims a run by a create. Where there is a record: reads it, decides, and takes over by a conditional change."""
        tries = self._tries(CLAIM_SECONDS)
        record: RunRecord | None = None
        decision = Decision.CLAIM  # the usual run has no record; where there is one, the create is refused
        contended = 0
        while contended < CONTENDED_CLAIMS:
            match decision:
                case Decision.CLAIM:
                    fate = self._claim_new(claim, tries) if record is None else self._take_over(claim, record, tries)
                case Decision.HELD:
                    assert record is not None
                    claim.found(record)
                    fate = Fate.WRITTEN if self._is_trusted(claim) else self._renew(claim, record.updated_at, tries)
                case _:
                    return decision
            if fate is Fate.WRITTEN and self._is_trusted(claim):
                return Decision.CLAIM
            if fate is not Fate.UNCLEAR:
                contended += 1
            record, now = self._read(claim.run_id, tries)
            decision = decide(record, claim.attempt_id, now)
        return Decision.IN_PROGRESS

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew by a conditional change; an unclear or refused one is judged by reading the run again."""
        tries = self._tries(RENEW_SECONDS)
        while (token := claim.token) is not None:
            if self._renew(claim, token, tries) is Fate.WRITTEN:
                return True
            record, _ = self._read(claim.run_id, tries)
            if record is None or not record.is_held_by(claim.attempt_id):
                return False
            claim.found(record)
            arrived = record.updated_at > token and record.lease_seconds == claim.lease_seconds
            if arrived:  # an earlier try of ours
                return True
        return False

    def finish_run(self, claim: Claim, ending: Ending, **details: Unpack[Details]) -> bool:
        """Ends the attempt by a change, or a delete, that is conditional on the time of our last write.

        An unclear or refused one is judged by the attempt_id *and* the status of a fresh read. With no fault at all, a renewal
        that is applied while the job ends makes the condition fail; by attempt_id alone, that run would pass for recorded.
        """
        within_seconds = 0.95 * details.get("within_seconds", FINISH_SECONDS)  # the rest is for what a last try takes longer
        for_reading = min(RPC_SECONDS, within_seconds / 3)
        tries, reading = self._tries(within_seconds - for_reading), self._tries(within_seconds)
        fields = self._end_fields(claim, ending, details)
        effects = details.get("effects") if ending is Ending.COMPLETED else None
        refused = 0
        while refused <= REFUSED_FINISHES:
            unavailable: StoreUnavailable | None = None
            try:
                if claim.token is not None:
                    fate = self._finish(claim, claim.token, fields, effects, tries)
                    if fate is Fate.WRITTEN:
                        claim.token = None  # it opens a record that is nobody's now: a late renewal must not write with it
                        return True
                    if fate is Fate.REFUSED:
                        refused += 1
            except StoreUnavailable as fault:  # the last try may have been applied unseen: time was kept to look
                unavailable, reading = fault, self._tries(for_reading)
            record, _ = self._read(claim.run_id, reading)
            if claim.has_ended(record, ending):
                claim.token = None
                return True
            if record is None or not claim.may_finish(record):
                return False
            if unavailable is not None:
                if effects is not None and isinstance(refusal := unavailable.__cause__, self.refused_effects):
                    raise EffectsRaised(refusal) from refusal
                raise unavailable
            claim.found(record)
        return False

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads one run, within 10 s."""
        return self._read(run_id, self._tries(CLAIM_SECONDS))[0]

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record, if it is as it was at `updated_at`."""
        tries = self._tries(CLAIM_SECONDS)
        self._connect(tries)
        unclear = False
        while True:
            try:
                self._delete(run_id, updated_at, tries)
            except self.refused:
                return unclear and deleted_unseen(self._read(run_id, tries)[0])
            except self.final as fault:
                raise self._unavailable(fault) from fault
            except FAULTS as fault:
                unclear = True
                tries.failed(fault)
            else:
                return True

    # What the server does. A write is one try, and gives the server's time of it; a store's errors say what became of it.

    @abstractmethod
    def _connect(self, tries: Tries) -> None:
        """Makes the client, at its first use: what that takes is no part of a lease."""

    @abstractmethod
    def _read(self, run_id: str, tries: Tries) -> tuple[RunRecord | None, datetime]:
        """Reads a run, and the server's clock where there is one."""

    @abstractmethod
    def _create(self, run_id: str, fields: Mapping[str, Any], tries: Tries) -> datetime:
        """Writes a record that must not be there."""

    @abstractmethod
    def _change(self, run_id: str, fields: Mapping[str, Any], token: datetime, tries: Tries) -> datetime:
        """Changes fields of a record that nobody may have written since; None takes one away."""

    @abstractmethod
    def _change_with(self, effects: Effects, claim: Claim, fields: Mapping[str, Any], tries: Tries) -> datetime:
        """Changes fields of a record that is still the claim's, in one with the job's own reads and writes.

        Raises:
            EffectsRaised: `effects` raised.
            StoreUnavailable: from `refused_effects`, the server refuses what they wrote.
        """

    @abstractmethod
    def _delete(self, run_id: str, token: datetime, tries: Tries) -> datetime:
        """Deletes a record that nobody may have written since."""

    @abstractmethod
    def _where(self) -> str:
        """Names the server and the place on it, for an error."""

    def _now(self) -> Any:
        """What is written for the time of a claim, or an end."""
        return self._utcnow()

    # What is written. Each is one try.

    def _claim_new(self, claim: Claim, tries: Tries) -> Fate:
        fields = self._claim_fields(claim, attempts=1)
        was_unclear, claim.create_unclear = claim.create_unclear, True
        fate = self._write(claim, tries, partial(self._create, claim.run_id, fields, tries))
        if fate is not Fate.UNCLEAR:
            claim.create_unclear = was_unclear
        if fate is Fate.WRITTEN:
            claim.attempts = 1
        return fate

    def _take_over(self, claim: Claim, record: RunRecord, tries: Tries) -> Fate:
        left_by_the_dead = dict.fromkeys(("renewed_at", "finished_at", "result", "error"))
        fields = left_by_the_dead | self._claim_fields(claim, attempts=record.attempts + 1)
        fate = self._write(claim, tries, partial(self._change, claim.run_id, fields, record.updated_at, tries))
        if fate is Fate.WRITTEN:
            claim.attempts = record.attempts + 1
        return fate

    def _renew(self, claim: Claim, token: datetime, tries: Tries) -> Fate:
        # renewed_at makes the write change something: else Firestore leaves update_time, and so the lease, as it is.
        fields = {"renewed_at": SERVER_TIME} | self._lease_fields(claim)
        return self._write(claim, tries, partial(self._change, claim.run_id, fields, token, tries))

    def _finish(
        self, claim: Claim, token: datetime, fields: dict[str, Any] | None, effects: Effects | None, tries: Tries
    ) -> Fate:
        if fields is None:
            return self._write(claim, tries, partial(self._delete, claim.run_id, token, tries))
        if effects is not None:
            return self._write(claim, tries, partial(self._change_with, effects, claim, fields, tries))
        return self._write(claim, tries, partial(self._change, claim.run_id, fields, token, tries))

    def _write(self, claim: Claim, tries: Tries, send: Callable[[], datetime]) -> Fate:
        """Sends one write once, and notes in the claim what is known of it afterwards."""
        self._connect(tries)
        tried_at = self._monotonic()
        unsettled_before = claim.unsettled_since
        if unsettled_before is None:
            claim.unsettled_since = tried_at
        try:
            token = send()
        except self.refused:
            claim.unsettled_since = unsettled_before
            return Fate.REFUSED
        except (EffectsRaised, StoreUnavailable):
            claim.unsettled_since = unsettled_before
            raise
        except self.final as fault:
            claim.unsettled_since = unsettled_before
            raise self._unavailable(fault) from fault
        except FAULTS as fault:
            log.warning("%s write unclear, reading the run again: %s", self.service, fault, extra={"run_id": claim.run_id})
            tries.failed(fault)
            return Fate.UNCLEAR
        if token == claim.token:
            claim.unsettled_since = unsettled_before
            return Fate.UNCLEAR
        claim.wrote(token, tried_at)
        return Fate.WRITTEN

    def _claim_fields(self, claim: Claim, attempts: int) -> dict[str, Any]:
        scope = {"scope": claim.scope} if claim.scope else {}
        return {
            "status": Status.IN_PROGRESS.value,
            "attempt_id": claim.attempt_id,
            "job_name": claim.job_name,
            "schedule_time": claim.schedule_time,
            "attempts": attempts,
            "claimed_at": self._now(),
            **scope,
            **self._lease_fields(claim),
        }

    def _end_fields(self, claim: Claim, ending: Ending, details: Details) -> dict[str, Any] | None:
        """What is written at the end; None: nothing is left."""
        if ending is not Ending.RELEASED:
            told = {name: text for name in ("result", "error") if (text := details.get(name)) is not None}
            return {"status": ending.value, "finished_at": self._now(), **told}
        if claim.create_unclear:
            # That create may still arrive: after a delete, it would hold the run for a lease with nobody at work.
            return {"lease_seconds": 0, "lease_expires": datetime.fromtimestamp(0, UTC)}
        return None

    def _lease_fields(self, claim: Claim) -> dict[str, Any]:
        now = self._utcnow()
        return {
            "lease_seconds": claim.lease_seconds,
            "lease_expires": now + timedelta(seconds=claim.lease_seconds),
            "expire_at": now + timedelta(seconds=claim.retention_seconds),
        }

    # What a store's own methods use.

    def _opened(self, open_: Callable[[], T]) -> T:
        try:
            return open_()
        except Exception as fault:  # credentials, a project, a universe domain: whatever the environment lacks
            raise self._unavailable(fault) from fault

    def _answer(self, ask: Callable[[], T], tries: Tries) -> T:
        """Asks, a question that changes nothing, until there is an answer."""
        while True:
            try:
                return ask()
            except self.final as fault:
                raise self._unavailable(fault) from fault
            except FAULTS as fault:
                tries.failed(fault)

    def _project_text(self) -> str:
        return f"project {self.project}" if self.project is not None else "the environment's project"

    def _unavailable(self, fault: Exception) -> StoreUnavailable:
        otherwise = f"see the {self.service} status page"
        remedies = {**self.remedies, **REMEDIES}
        remedy = next((text for kind, text in remedies.items() if isinstance(fault, kind)), otherwise)
        return StoreUnavailable(f"{self._where()}: {fault} ({remedy})")

    def _tries(self, seconds: float, rpc_seconds: float = RPC_SECONDS) -> Tries:
        return Tries(seconds, rpc_seconds, monotonic=self._monotonic, sleep=self._sleep, unavailable=self._unavailable)

    def _is_trusted(self, claim: Claim) -> bool:
        return claim.is_trusted(self._monotonic())
