"""What a store of runs promises, and how one is opened.

A store decides and writes as one, or not at all. Add one: a module here with a class that has the methods of Inspectable, a
line in `_STORES`; the suite in tests/template/contract/ then covers it.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any, Protocol, TypedDict, Unpack

from dedup.record import Decision, Ending, RunRecord
from dedup.stores.selection import EVERY_RUN, Selection

NEVER = float("-inf")
FINISH_SECONDS = 10.0

Effects = Callable[[Any], None]
"""A job's own reads and writes: called with the transaction of the chosen store."""

log = logging.getLogger("dedup")

_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux CLOCK_MONOTONIC leaves out a suspension (man 2 clock_gettime); on macOS, which has only that one, it doesn't."""


def monotonic() -> float:
    """Seconds that only go forward, also while the machine is suspended: on the store's clock, a lease ends meanwhile."""
    return time.clock_gettime(_COUNTS_SLEEP) if _COUNTS_SLEEP is not None else time.monotonic()


class StoreUnavailable(Exception):
    """The store could not be asked, or did not answer in time. The message says what to look at."""


class Unsupported(Exception):
    """The chosen store can't do this."""


class Details(TypedDict, total=False):
    """What goes with the end of an attempt."""

    result: str | None
    """A summary kept with COMPLETED, at most 1 KB."""
    error: str | None
    """Likewise with FAILED."""
    effects: Effects | None
    """With COMPLETED, called with the store's transaction: the job's own reads and writes and the completion are one commit."""
    within_seconds: float
    """How long to go on trying: FINISH_SECONDS if it isn't said."""


class EffectsRaised(Exception):
    """Carries what the job's effects raised out of the store: it is the job's fault, none of the store's.

    Args:
        raised: that exception.
    """

    def __init__(self, raised: Exception) -> None:
        super().__init__(repr(raised))
        self.raised = raised


@dataclass(slots=True, kw_only=True)
class Claim:
    """One attempt's hold on a run, as far as the attempt knows.

    The first half is given; the store keeps the second half up to date with each of its writes. It is made before the first
    write, so that whatever strikes in the middle of one, the attempt still knows what it may have left behind.
    """

    run_id: str
    """64 hex digits."""
    attempt_id: str
    """32 hex digits, made once per request."""
    lease_seconds: int
    retention_seconds: int
    job_name: str
    schedule_time: datetime
    """Aware, in UTC."""
    scope: str = ""

    attempts: int = 0
    """How many attempts have claimed this record, with this one; 0 until it is known to be claimed."""
    token: datetime | None = None
    """The store's time of our last known write, which anybody else's moves. None before the claim and after the finish."""
    trusted_until: float = NEVER
    """On this machine's monotonic clock: until then nobody else can have been given the run."""
    unsettled_since: float | None = None
    """Monotonic time before the first write whose fate isn't known."""
    create_unclear: bool = False
    """A create went unacknowledged: it may still arrive, after whatever we do next."""
    handed_over: bool = False
    """Longer work goes on under this attempt's id: a write that isn't ours is the work's own."""

    @property
    def margin_seconds(self) -> float:
        """What an attempt's trust ends early by: two clocks may run at different speeds."""
        return min(1.0, self.lease_seconds / 10)

    def is_trusted(self, now: float) -> bool:
        """Whether nobody else can have been given the run by now.

        Args:
            now: this machine's monotonic clock.
        """
        return now < self.trusted_until

    def wrote(self, token: datetime, tried_at: float) -> None:
        """Notes a write of ours that was acknowledged.

        Args:
            token: the store's time of the write.
            tried_at: monotonic time before it was sent.
        """
        self.token = token
        self.trusted_until = tried_at + self.lease_seconds - self.margin_seconds
        self.unsettled_since = None

    def found(self, record: RunRecord) -> None:
        """Notes a record of ours that was read again: an unclear write of ours may have made it."""
        if record.updated_at != self.token:
            if self.unsettled_since is not None and record.lease_seconds == self.lease_seconds:
                self.wrote(record.updated_at, self.unsettled_since)
            self.token = record.updated_at
        self.attempts = record.attempts

    def may_finish(self, record: RunRecord) -> bool:
        """Whether the run is still this attempt's to finish.

        Once it is handed over, only as long as the work it was handed to hasn't begun: that writes in the same name.
        """
        return record.is_held_by(self.attempt_id) and (not self.handed_over or record.updated_at == self.token)

    def has_ended(self, record: RunRecord | None, ending: Ending) -> bool:
        """Whether the run stands as this attempt wanted to leave it.

        By the status too: attempt_id alone also stands in a record in progress.
        """
        if ending is Ending.RELEASED:
            released_by_update = self.create_unclear and record is not None and record.lease_seconds == 0
            return record is None or (released_by_update and record.is_held_by(self.attempt_id))
        return record is not None and record.attempt_id == self.attempt_id and record.status == ending.value


def read_record(run_id: str, fields: Mapping[str, Any], updated_at: datetime) -> RunRecord:
    """Reads what a store holds, and tells the operator where it can't be read.

    Args:
        run_id: whose record it is.
        fields: the stored fields by name.
        updated_at: when the store last wrote them, by its own clock, aware.
    """
    record = RunRecord.from_fields(fields, updated_at)
    if record.malformed:
        log.error(
            "the record of run %s can't be read, so nobody is given the run before %s: mend or delete it",
            run_id,
            record.live_until,
            extra={"run_id": run_id},
        )
    return record


def deleted_unseen(record: RunRecord | None) -> bool:
    """Judges a delete that was refused after a try without acknowledgement: True, or it can't be known.

    Args:
        record: what is stored now.

    Raises:
        StoreUnavailable: somebody has written the run, before that try or after it.
    """
    if record is not None:
        raise StoreUnavailable("the first try to delete the record was not acknowledged, and the run was written to since")
    return True


class RunStore(Protocol):
    """What a delivery asks of a store: four methods, and what a finish with effects needs.

    Each raises StoreUnavailable when the store can't be asked or doesn't answer in time; what was written by then is unclear.
    """

    supports_effects: bool
    """Whether `finish_run` takes `effects`."""

    def claim_run(self, claim: Claim) -> Decision:
        """Claims the run, atomically, or says why not: CLAIM (it is this attempt's now), IN_PROGRESS, COMPLETED or FAILED.

        Ends within 10 s. Called again with the same claim, it finds its own earlier one.
        """
        ...

    def renew_run(self, claim: Claim) -> bool:
        """Lets the lease begin anew, of the length that the claim says. False: the run isn't this attempt's any more."""
        ...

    def finish_run(self, claim: Claim, ending: Ending, **details: Unpack[Details]) -> bool:
        """Ends the attempt, if the run is still its own. False: it isn't, and nothing was written. Said twice, True twice.

        Args:
            claim: what `claim_run` has claimed.
            ending: COMPLETED and FAILED are recorded, RELEASED leaves the run to the next delivery.
            details: what goes with it.

        Raises:
            EffectsRaised: `effects` raised; nothing was written.
        """
        ...

    def get_run(self, run_id: str) -> RunRecord | None:
        """Reads one run; None if there is no record."""
        ...


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run as it stood when it was read.

    Args:
        run_id: 64 hex digits, or whatever somebody else has named a record.
        record: what the store held.
        seen_at: the store's clock at that moment, aware.
    """

    run_id: str
    record: RunRecord
    seen_at: datetime


class Inspectable(RunStore, Protocol):
    """A whole store: what `python -m dedup` asks of it besides. These too raise StoreUnavailable."""

    lists_by_index: bool
    """Whether a listing reads no more runs than it yields."""

    def list_runs(self, selection: Selection = EVERY_RUN) -> Iterator[SeenRun]:
        """Lists the selected runs, the newest `schedule_time` first, as they are read; those without one are left out."""
        ...

    def look_up(self, run_id: str) -> tuple[RunRecord | None, datetime]:
        """Reads one run, None if there is no record, and the store's clock."""
        ...

    def delete_run(self, run_id: str, updated_at: datetime) -> bool:
        """Deletes a run's record, if nobody has written it since `updated_at`. False: somebody has, and it is as it was.

        Raises:
            StoreUnavailable: also where it isn't known which of these it was.
        """
        ...


_STORES = {
    "firestore": "firestore",
    "sqlite": "sqlite",
    "spanner": "spanner",
    "redis": "redis",
    "rediss": "redis",
}
"""The module here for each name that a URL may begin with."""


def open_store(url: str) -> Inspectable:
    """Makes the store that a URL names. Imports its library, and connects to nothing yet.

    Args:
        url: `firestore`, `firestore://PROJECT/DATABASE?collection=NAME`, `sqlite:///PATH`,
            `spanner://PROJECT/INSTANCE/DATABASE?table=NAME`, `redis://HOST:PORT/DB`, `rediss://` for TLS.

    Raises:
        ValueError: the URL names no store, says something that the store doesn't know, or its library isn't installed.
    """
    store: Inspectable = _module(url).from_url(url)
    return store


def create_schema(url: str) -> str:
    """Makes what a store needs before its first run, where it isn't there yet. Says what was made, or what is left to do.

    Args:
        url: as `open_store` takes it.

    Raises:
        ValueError: as in `open_store`.
        StoreUnavailable: the store can't be asked.
    """
    create: Callable[[str], str | None] | None = getattr(_module(url), "create_schema", None)
    if create is None:
        return "this store needs nothing made before its first run"
    return create(url) or "what this store needs is there"


def _module(url: str) -> ModuleType:
    name = url.partition(":")[0]
    if name not in _STORES:  # only the name is shown: the rest may hold a password
        raise ValueError(
            f"there is no store {name!r}: a store's URL begins with {' or '.join(f'{known}:' for known in _STORES)}"
        )
    module = _STORES[name]
    try:
        return importlib.import_module(f"dedup.stores.{module}")
    except ModuleNotFoundError as missing:
        raise ValueError(
            f"the store {name!r} needs a package that isn't there, {missing.name}: add the line "
            f"-r dedup/stores/requirements-{module}.txt to requirements.txt, which is what is deployed, and install that"
        ) from missing
