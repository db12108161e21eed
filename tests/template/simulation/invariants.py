"""What must hold in every world, whatever happens in it: DESIGN's promises, watched from the server's side.

A rule that is broken is noted, not raised: the code under test would catch it.

Two things are no violation, since no lease can prevent them, and DESIGN says so: a job that is paused past its lease goes on
beside its successor until it looks, and a job that dies after its effect and before its completion is recorded runs again.
A third costs time only: a create that arrives after its sender has given up, and after a successor has released the run by
deleting its record, holds it for a lease with nobody at work. Whoever has released it itself must not come back so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.template.simulation.world import Attempt, World

ANSWERS = {
    "processed": (200, "Run processed"),
    "duplicate_skipped": (200, "Duplicate run skipped"),
    "failed_before": (200, "Run failed for good, not retried"),
    "in_progress": (409, "Run in progress"),
    "store_unavailable": (500, "error: dedup store unavailable"),
    "job_failed": (500, "error: job failed"),
    "job_failed_for_good": (500, "error: job failed for good"),
    "done_not_recorded": (200, "Run processed"),
    "done_lease_lost": (200, "Run processed"),
    "effects_not_recorded": (500, "error: run not recorded"),
}
"""DESIGN's HTTP contract, by the outcome that is logged."""
CLAIM_SECONDS = 10.0
ANSWER_SECONDS = 32.0
"""A claim, the wait for a renewal, a finish, and another where the first was not recorded or was interrupted."""
RETRIES = 3
DEAD_FIELDS = ("renewed_at", "finished_at", "result", "error")


class Held:
    """What a stored document says of who owns the run."""

    __slots__ = ("attempt_id", "attempts", "fields", "in_progress", "live_until", "status")

    def __init__(self, document: Any) -> None:
        fields = self.fields = document.fields
        self.status = fields["status"].string_value if "status" in fields else ""
        self.in_progress = self.status == "in_progress"
        self.attempt_id = fields["attempt_id"].string_value if "attempt_id" in fields else ""
        self.attempts = fields["attempts"].integer_value if "attempts" in fields else 0
        lease = fields["lease_seconds"].integer_value if "lease_seconds" in fields else 0
        at = document.update_time
        self.live_until = at.seconds * 1_000_000 + at.nanos // 1000 + lease * 1_000_000

    def by(self, attempt: Attempt) -> bool:
        """Whether the run is in progress in this attempt's name, its lease over or not."""
        return self.in_progress and self.attempt_id in attempt.ids

    def live(self, now: int) -> bool:
        """Whether nobody may take it over yet."""
        return self.in_progress and now < self.live_until


class Watch:
    """Watches one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[str] = []
        self.held: Held | None = None
        self.completed_by: Attempt | None = None
        self.failed_by: Attempt | None = None
        self.deleted_by: Attempt | None = None
        """Who has released the run last, by deleting its record."""
        self.counter_before = self.counter = self._count()
        self.taken_over = 0

    def violated(self, rule: str) -> None:
        """Notes a rule that was broken."""
        self.violations.append(rule)

    # What the server sees.

    def wrote(self, writer: Attempt, name: str, before: Any, after: Any) -> None:
        """A commit of an attempt was applied, and changed this document."""
        if "/scheduler_runs/" not in name:
            self.counter = after.fields["n"].integer_value
            return
        old = Held(before) if before is not None else None
        new = self.held = Held(after) if after is not None else None
        if old is None:
            assert new is not None
            self._created(writer, new)
        elif new is not None and (new.attempt_id != old.attempt_id or new.attempts != old.attempts):
            self._took_over(writer, old, new)
        elif not old.by(writer):
            self.violated(f"{writer.name} has no hold on the run, and changed its record")
        elif new is None or (new.in_progress and new.live_until < old.live_until):
            self._released(writer)
            self.deleted_by = writer if new is None else None
        elif new.in_progress:
            pass  # renewed
        elif new.status == "completed":
            self.completed_by = writer
            if writer.job != "returns":
                self.violated(f"{writer.name} recorded a completion; its job: {writer.job}")
        elif new.status == "failed":
            self.failed_by = writer
            if writer.job != "permanent":
                self.violated(f"{writer.name} recorded a permanent failure; its job: {writer.job}")
        else:
            self.violated(f"{writer.name} wrote status {new.status!r}")

    def _created(self, writer: Attempt, new: Held) -> None:
        if not new.by(writer):
            self.violated(f"{writer.name} created a record that is not its own claim")
        if writer is self.deleted_by:
            self.violated(f"{writer.name} holds the run again that it had released, and nobody is at work")

    def _count(self) -> int:
        """What the counter that the effects move stands at."""
        documents = self._world.service.documents.items()
        return next((int(document.fields["n"].integer_value) for name, document in documents if name.endswith("/effects")), 0)

    def _took_over(self, writer: Attempt, old: Held, new: Held) -> None:
        self.taken_over += 1
        if old.live(self._world.now):
            self.violated(f"{writer.name} took over a lease that was live")
        if not old.in_progress:
            self.violated(f"{writer.name} took over a run that was {old.status}")
        if not new.by(writer):
            self.violated(f"{writer.name} took a run over in another's name")
        if any(name in new.fields for name in DEAD_FIELDS):
            self.violated(f"{writer.name} took a run over and left what the dead attempt had written")
        if new.attempts != old.attempts + 1:
            self.violated(f"{writer.name} took over attempt {old.attempts} as attempt {new.attempts}")

    def _released(self, writer: Attempt) -> None:
        if writer.job in ("running", "permanent") or (writer.job == "returns" and not self._world.rules.effects):
            self.violated(f"{writer.name} released its run; its job: {writer.job}")
        if writer.lost_at is not None and writer.lost_at == writer.claim.trusted_until and writer.job != "returns":
            self.violated(f"{writer.name} released its run after its lease was lost")

    # What the attempts do.

    def began(self, attempt: Attempt) -> None:
        """A delivery has arrived."""
        attempt.began_at = self._elapsed(attempt)
        self._look_around(attempt)

    def job_began(self, attempt: Attempt) -> None:
        """An attempt starts the job."""
        held = self.held
        if self.completed_by is not None or self.failed_by is not None:
            self.violated(f"{attempt.name} starts the job of a run that is over")
        if held is None or not held.by(attempt):
            self.violated(f"{attempt.name} starts the job of a run that it doesn't hold")
        elif not held.live(self._world.now):
            self.violated(f"{attempt.name} starts the job on a lease that has run out")

    def told_held(self, attempt: Attempt) -> None:
        """`ensure_held()` has returned."""
        if self.held is None or not self.held.by(attempt) or not self.held.live(self._world.now):
            self.violated(f"{attempt.name} was told that it holds the run, and it doesn't")

    def job_ended(self, attempt: Attempt) -> None:
        """The job has done its work, or has failed."""
        if attempt.lease._lost or not attempt.claim.is_trusted(self._world._monotonic(attempt)):
            attempt.lost_at = attempt.claim.trusted_until

    def renewed(self, attempt: Attempt, lasted_until: int) -> None:
        """A renewal that began when the lease lasted until then has ended."""
        disturbed = attempt.faults or self._world.passed or attempt.job != "running" or attempt.dead
        if not disturbed and (self.held is None or not self.held.by(attempt) or self.held.live_until <= lasted_until):
            self.violated(f"nothing disturbed a renewal of {attempt.name}, and its lease is as it was")

    def stepped(self) -> None:
        """A step is over: what must hold at any time."""
        held, now = self.held, self._world.now
        for attempt in self._world.attempts:
            if attempt.over or not attempt.begun:
                continue
            self._look_around(attempt)
            if attempt.job == "running" and not attempt.lease._lost:
                trusts = attempt.claim.trusted_until - self._world._monotonic(attempt)
                if trusts > 0 and (held is None or not held.by(attempt)):
                    self.violated(f"{attempt.name} trusts a lease that it doesn't hold: two live owners")
                elif trusts > 0 and trusts > (held.live_until - now) / 1_000_000:
                    self.violated(f"{attempt.name} trusts its lease for longer than it lasts: another may be given the run")
        applied = self.counter - self.counter_before
        if self._world.rules.effects and applied != (self.completed_by is not None):
            self.violated(f"the job's effects are applied {applied} times; completed: {self.completed_by is not None}")
        if self.completed_by is not None and (held is None or held.status != "completed"):
            self.violated("a recorded completion is gone")

    def answered(self, attempt: Attempt) -> None:
        """An attempt's handle() has returned, or has raised SystemExit."""
        self._look_around(attempt)
        outcome, name, faulty = attempt.outcome, attempt.name, attempt.faults > 0
        seconds = self._elapsed(attempt) - attempt.began_at
        if attempt.response is None:
            if outcome != "interrupted" or (attempt.job != "exits" and not faulty):
                self.violated(f"{name} raised {attempt.raised!r}, though nothing had struck it")
        else:
            answer = attempt.response.status_code, attempt.response.get_data(as_text=True)
            if answer != ANSWERS.get(outcome):
                self.violated(f"{name} answered {answer} for {outcome}")
            if not attempt.response.headers.get("X-Run-Id"):
                self.violated(f"{name} answered without X-Run-Id")
            if attempt.response.headers.get("Idempotent-Replayed", "") != self._replayed(outcome):
                self.violated(f"{name} answered {outcome}, with a wrong Idempotent-Replayed")
        untrue = self._untrue(attempt, faulty)
        if untrue:
            self.violated(f"{name} said {outcome}: {untrue}")
        if seconds > (CLAIM_SECONDS if outcome in ("store_unavailable", "in_progress") else ANSWER_SECONDS):
            self.violated(f"{name} answered after {seconds:.1f} s")

    def _replayed(self, outcome: str) -> str:
        return "true" if outcome in ("duplicate_skipped", "failed_before") else ""

    def _untrue(self, attempt: Attempt, faulty: bool) -> str | None:
        """Why what an attempt has answered isn't so."""
        own = self.held is not None and self.held.by(attempt)
        calm = not faulty and not self._world.passed_seconds
        match attempt.outcome:
            case "processed" if self.completed_by is not attempt:
                return "its completion isn't recorded"
            case "duplicate_skipped" if self.completed_by is None:
                return "no completion is recorded"
            case "failed_before" if self.failed_by is None:
                return "no failure is recorded"
            case "in_progress" if not attempt.saw_another:
                return "no other attempt has held the run meanwhile"
            case "store_unavailable" if attempt.job != "not begun" or not (faulty or self._world.passed_seconds):
                return "the store was there"
            case "done_not_recorded" | "done_lease_lost" if self._world.rules.effects:
                return "its effects are not there, and it is not retried"
            case "done_lease_lost" if own or self.completed_by is attempt:
                return "its record is still its own"
            case "done_not_recorded" if not faulty and not self._world.passed_seconds:
                return "nothing had gone wrong"
            case "effects_not_recorded" if not faulty and self.completed_by is attempt:
                return "they are recorded"
            case "job_failed" | "interrupted" if own and calm and self.held is not None and self.held.live(self._world.now):
                return "and left its run held, without any fault"
            case "job_failed_for_good" if attempt.job != "permanent" or (calm and self.failed_by is not attempt):
                return "that isn't recorded"
        return None

    def _look_around(self, attempt: Attempt) -> None:
        if self.held is not None and self.held.live(self._world.now) and self.held.attempt_id not in attempt.ids:
            attempt.saw_another = True

    def _elapsed(self, attempt: Attempt) -> float:
        """Seconds by the attempt's clock, without those that were let pass."""
        return self._world._monotonic(attempt) - self._world.passed_seconds

    # How it ends.

    def ended(self, *, always: bool = False) -> None:
        """The schedule is over: from here, retries must end in completed or failed, and duplicates change nothing.

        Args:
            always: also where the same end was seen before.
        """
        world = self._world
        held = self.held
        state = (
            world.rules.lease_seconds,
            world.rules.effects,
            held and (held.status, held.live(world.now), held.live_until == 0, held.attempts, tuple(sorted(held.fields))),
            held and held.fields["lease_seconds"].integer_value,
            self.counter - self.counter_before,
        )
        if state in world.code.settled and not always:
            return
        for number in range(RETRIES):
            attempt = world.retry(f"retry {number + 1}")
            if attempt.outcome in ("processed", "duplicate_skipped", "failed_before"):
                break
            world._pass(world.rules.lease_seconds * 1.1)
        else:
            self.violated(f"{RETRIES} retries, a lease apart, did not end the run: it is lost")
        if self.completed_by is None and self.failed_by is None:
            self.violated("the run is over, and neither completed nor failed")
        last = world.retry("duplicate")
        if last.outcome not in ("duplicate_skipped", "failed_before"):
            self.violated(f"a duplicate after the end was answered {last.outcome}")
        if not self.violations:
            world.code.settled.add(state)
