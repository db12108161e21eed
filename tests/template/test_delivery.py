"""A request, read as a delivery or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask, request
from hypothesis import given
from hypothesis import strategies as st

from dedup.delivery import BadDelivery, Delivery, ManualRuns, ScopePart, from_idempotency_key, from_request

JOB_NAME = "X-CloudScheduler-JobName"
SCHEDULE_TIME = "X-CloudScheduler-ScheduleTime"
NOON = "2026-10-16T12:00:00Z"
AT_NOON = datetime(2026, 10, 16, 12, tzinfo=UTC)

app = Flask(__name__)


def read(
    job_name: str | None = "nightly",
    time: str | None = NOON,
    *,
    headers: Iterable[tuple[str, str]] = (),
    scope: str = "",
    manual_runs: ManualRuns = ManualRuns.SHARE,
    now: datetime = AT_NOON,
    **how: Any,
) -> Delivery:
    """Reads one delivery, as it comes out of a real WSGI environment."""
    sent = [(name, value) for name, value in ((JOB_NAME, job_name), (SCHEDULE_TIME, time)) if value is not None]
    parts = [ScopePart.parse(part) for part in scope.split(",")] if scope else []
    with app.test_request_context(method="POST", headers=[*sent, *headers], **how):
        return from_request(request, scope=parts, manual_runs=manual_runs, now=now)


def sha256(text: str) -> str:
    """What the documentation hashes with."""
    return hashlib.sha256(text.encode()).hexdigest()


# The id.


def test_run_id_is_the_documented_examples_own() -> None:
    """Without a scope, a run's id is SHA-256 of JOB_NAME/TIME as the documentation prints it."""
    assert read("JOB", NOON).run_id == sha256("JOB/2026-10-16T12:00:00Z")


@pytest.mark.parametrize(
    ("time", "key_time"),
    [
        ("2026-10-16T12:00:00Z", "2026-10-16T12:00:00Z"),
        ("2026-10-16t12:00:00z", "2026-10-16T12:00:00Z"),
        ("2026-10-16T05:00:00-07:00", "2026-10-16T12:00:00Z"),
        ("2026-10-17T02:00:00+14:00", "2026-10-16T12:00:00Z"),
        ("2026-10-16T17:45:00+05:45", "2026-10-16T12:00:00Z"),
        ("2026-10-16T12:00:00+00:00", "2026-10-16T12:00:00Z"),
        ("2026-10-16T12:00:00-00:00", "2026-10-16T12:00:00Z"),
        ("2026-10-16T12:00:00.000000000Z", "2026-10-16T12:00:00Z"),
        ("2026-10-16T12:00:00.500Z", "2026-10-16T12:00:00.5Z"),
        ("2025-10-17T16:50:00.510855-07:00", "2025-10-17T23:50:00.510855Z"),
        ("2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00Z"),
        ("2024-02-29T12:00:00Z", "2024-02-29T12:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00-01:00", "0001-01-01T01:00:00Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
        ("2026-10-16T12:00:00+23:59", "2026-10-15T12:01:00Z"),
        *(
            (f"2026-10-16T12:00:00.{'123456789'[:digits]}Z", f"2026-10-16T12:00:00.{'123456789'[:digits]}Z")
            for digits in range(1, 10)
        ),
    ],
)
def test_a_time_is_normalised_to_utc(time: str, key_time: str) -> None:
    """Whatever offset, case and trailing zeros a time is written with, its key has it in UTC as the documentation prints it."""
    delivery = read("JOB", time)
    assert delivery.key == f"JOB/{key_time}"
    assert delivery.run_id == sha256(f"JOB/{key_time}")
    assert delivery.schedule_time.tzinfo is UTC


def test_schedule_time_is_cut_to_microseconds_while_the_key_is_not() -> None:
    """The job gets a datetime, which ends at microseconds; two runs within one microsecond are two all the same."""
    one, other = read(time="2026-10-16T12:00:00.123456789Z"), read(time="2026-10-16T12:00:00.123456788Z")
    assert one.schedule_time == other.schedule_time == datetime(2026, 10, 16, 12, 0, 0, 123456, tzinfo=UTC)
    assert one.run_id != other.run_id
    assert read(time="2026-10-16T12:00:00.5Z").schedule_time == datetime(2026, 10, 16, 12, 0, 0, 500000, tzinfo=UTC)


def test_an_hour_that_the_clocks_repeat_is_two_runs() -> None:
    """When summer time ends, 01:30 comes twice, with two offsets: both runs are done."""
    assert read(time="2026-11-01T01:30:00-04:00").run_id != read(time="2026-11-01T01:30:00-05:00").run_id


def test_a_run_whose_zone_changes_its_offset_between_retries_stays_one() -> None:
    """A retry that tells the same instant in the other offset is the same run."""
    assert read(time="2026-11-01T01:30:00-05:00").run_id == read(time="2026-11-01T02:30:00-04:00").run_id


# The headers.


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title, str.swapcase])
def test_headers_are_read_without_regard_to_case(spell: Any) -> None:
    """HTTP/2 sends lower case, HTTP/1.1 what it likes: one run."""
    headers = [(spell(JOB_NAME), "nightly"), (spell(SCHEDULE_TIME), NOON)]
    assert read(None, None, headers=headers).run_id == read().run_id


@pytest.mark.parametrize("pad", [" {}", "{} ", "\t{}\t", "  {}  "])
def test_surrounding_blanks_are_stripped(pad: str) -> None:
    """Blanks around a header's value are no part of it."""
    assert read(pad.format("nightly"), pad.format(NOON)).run_id == read().run_id


@pytest.mark.parametrize("job_name", ["a", "nightly", "Nightly_2-x", "-", "_", "0", "x" * 500])
def test_a_jobs_id_is_accepted(job_name: str) -> None:
    """A job's id has 1 to 500 letters, digits, hyphens and underscores, and its case counts."""
    assert read(job_name).job_name == job_name
    assert read(job_name).key == f"{job_name}/{NOON}"


@pytest.mark.parametrize(
    ("job_name", "fault"),
    [
        (None, "is missing"),
        ("", "is blank"),
        (" \t ", "is blank"),
        ("a,b", "more than once"),
        ("nightly,nightly", "more than once"),
        ("nightly, nightly", "more than once"),
        ("x" * 501, "is not a job's id"),
        ("projects/p/locations/l/jobs/j", "is not a job's id"),
        ("night ly", "is not a job's id"),
        ("night.ly", "is not a job's id"),
        ("night%2Fly", "is not a job's id"),
        ("nächtlich", "is not a job's id"),
        ("nightly\uff11", "is not a job's id"),
        ("night\x00ly", "is not a job's id"),
    ],
    ids=lambda value: ascii(value)[:40].replace("\\", "|"),
)
def test_a_bad_job_name_is_refused(job_name: str | None, fault: str) -> None:
    """A job name that can't be one is refused, and the refusal names the header, the fault and an example."""
    with pytest.raises(BadDelivery, match=fault) as refusal:
        read(job_name)
    assert JOB_NAME in str(refusal.value)
    assert SCHEDULE_TIME not in str(refusal.value)
    assert "nightly" in str(refusal.value)


NOT_A_TIME = "is not an RFC 3339 time with an offset"
NO_SUCH_TIME = "does not exist"


@pytest.mark.parametrize(
    ("time", "fault"),
    [
        (None, "is missing"),
        ("", "is blank"),
        ("  ", "is blank"),
        (f"{NOON},{NOON}", "more than once"),
        (f"{NOON}, 2026-10-16T13:00:00Z", "more than once"),
        ("2026-10-16T12:00:00,5Z", "more than once"),
        *(
            (time, NOT_A_TIME)
            for time in (
                "now",
                "2026-10-16",
                "2026-10-16T12:00:00",
                "2026-10-16 12:00:00Z",
                "2026-10-16T12:00Z",
                "2026-10-16T12Z",
                "20261016T120000Z",
                "2026-W42-5T12:00:00Z",
                "26-10-16T12:00:00Z",
                "12026-10-16T12:00:00Z",
                "-2026-10-16T12:00:00Z",
                "1792152000",
                "2026-10-16T12:00:00 Z",
                "2026-10-16T12:00:00.Z",
                "2026-10-16T12:00:00.1234567890Z",
                "2026-10-16T12:00:00+0700",
                "2026-10-16T12:00:00+07",
                "2026-10-16T12:00:00+7:00",
                "2026-10-16T12:00:00\u221207:00",
                "2026-10-16T12:00:00+07:00:00",
                "2026-10-16T12:00:00UTC",
                "2026-10-16T12:00:00Z[UTC]",
                "2026-10-16T12:00:00Zjunk",
                "\uff12\uff10\uff12\uff16-10-16T12:00:00Z",
                "\u0662\u0660\u0662\u0666-10-16T12:00:00Z",
                "2026-10-16T12:00:00.\u0665Z",
                "2026-10-16T12:00:00+\u0660\u0667:00",
                "2026-10-16T12:00:0\xb9Z",
                "16 Oct 2026 12:00:00 GMT",
            )
        ),
        *(
            (time, NO_SUCH_TIME)
            for time in (
                "2026-02-29T12:00:00Z",
                "2100-02-29T12:00:00Z",
                "2026-04-31T12:00:00Z",
                "2026-13-01T12:00:00Z",
                "2026-00-01T12:00:00Z",
                "2026-01-00T12:00:00Z",
                "0000-01-01T12:00:00Z",
                "2026-10-16T24:00:00Z",
                "2026-10-16T25:00:00Z",
                "2026-10-16T12:60:00Z",
                "2026-10-16T12:00:60Z",
                "2016-12-31T23:59:60Z",
                "2026-10-16T12:00:00+24:00",
                "2026-10-16T12:00:00-99:99",
                "2026-10-16T12:00:00+07:60",
                "0001-01-01T00:00:00+01:00",
                "9999-12-31T23:59:59-00:01",
            )
        ),
    ],
    ids=lambda value: ascii(value)[:40].replace("\\", "|"),
)
def test_a_bad_schedule_time_is_refused(time: str | None, fault: str) -> None:
    """A time that isn't one is refused, never taken for now, and the refusal names the header, the fault and an example."""
    with pytest.raises(BadDelivery, match=fault) as refusal:
        read(time=time)
    assert SCHEDULE_TIME in str(refusal.value)
    assert JOB_NAME not in str(refusal.value)
    assert "2026-10-16T12:00:00Z" in str(refusal.value)


@pytest.mark.parametrize("name", [JOB_NAME, SCHEDULE_TIME])
def test_a_header_that_was_sent_twice_is_refused(name: str) -> None:
    """Two headers of one name can't say which run is meant, not even when they agree."""
    again = {JOB_NAME: "nightly", SCHEDULE_TIME: NOON}[name]
    with pytest.raises(BadDelivery, match=f"{name} was sent more than once"):
        read(headers=[(name, again)])


def test_a_refusal_is_short_and_on_one_line() -> None:
    """Whatever was sent, a refusal stays fit for a response and a log line."""
    with pytest.raises(BadDelivery) as refusal:
        read("a\x0bb\x85" * 10_000)
    assert len(str(refusal.value)) < 500
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("sent", "shown"), [("." * 60, "'" + "." * 60 + "' "), ("." * 57 + "abcd", "'" + "." * 57 + "abc...' ")]
)
def test_a_refusal_shows_the_first_sixty_letters(sent: str, shown: str) -> None:
    """Of what was sent, a refusal shows 60 letters, and says where there were more."""
    with pytest.raises(BadDelivery) as refusal:
        read(sent)
    assert f"{JOB_NAME} {shown}" in str(refusal.value)


# The scope.


@pytest.mark.parametrize(
    ("scope", "how", "prefix"),
    [
        ("header:X-Job-Project", {"headers": [("x-job-project", " prod ")]}, "prod/"),
        (
            "header:X-Job-Project,header:X-Job-Location",
            {"headers": [("X-Job-Project", "prod"), ("X-Job-Location", "europe-west1")]},
            "prod/europe-west1/",
        ),
        ("query:region", {"path": "/?region=eu"}, "eu/"),
        ("path", {"path": "/jobs/a"}, "%2Fjobs%2Fa/"),
        ("path", {"path": "/"}, "%2F/"),
        ("path", {"path": "/a%2Fb"}, "%2Fa%2Fb/"),
        (" query:b , query:a ", {"path": "/?a=1&b=2"}, "2/1/"),
        ("query:q", {"path": "/?q=a/b%2Fc"}, "a%2Fb%2Fc/"),
        ("query:q", {"path": "/?q=100%25"}, "100%25/"),
        ("query:q", {"path": "/?q=%C3%A9%20%2B~."}, "%C3%A9%20%2B~./"),
    ],
)
def test_scope_parts_stand_before_the_jobs_name(scope: str, how: dict[str, Any], prefix: str) -> None:
    """What DEDUP_SCOPE names stands in its order, percent-encoded, before JOB_NAME/TIME."""
    delivery = read("JOB", scope=scope, **how)
    assert delivery.key == f"{prefix}JOB/{NOON}"
    assert delivery.run_id == sha256(delivery.key)
    assert "/".join(delivery.scope_parts) == prefix.removesuffix("/")


def test_jobs_of_one_id_in_two_regions_are_two() -> None:
    """Neither project nor region is in a job's id: with a scope, its namesake elsewhere runs too."""
    regions = [
        read(scope="header:X-Job-Location", headers=[("X-Job-Location", region)]) for region in ("us-central1", "europe-west1")
    ]
    assert len({delivery.run_id for delivery in regions}) == 2
    assert read().run_id not in {delivery.run_id for delivery in regions}


@pytest.mark.parametrize(
    ("scope", "how", "named"),
    [
        ("header:X-Job-Project", {"headers": [("X-Job-Project", "p"), ("X-Job-Project", "p")]}, "header X-Job-Project"),
        ("header:X-Job-Project", {"headers": [("X-Job-Project", "p,p")]}, "header X-Job-Project"),
        ("query:region", {"path": "/?region=eu&region=eu"}, "query parameter region"),
    ],
)
def test_a_repeated_part_of_the_scope_is_refused(scope: str, how: dict[str, Any], named: str) -> None:
    """A proxy that adds a part of the key once more doesn't make another run of it."""
    with pytest.raises(BadDelivery, match=f"{named} was sent more than once"):
        read(scope=scope, **how)


@pytest.mark.parametrize(
    ("scope", "how", "named"),
    [
        ("header:X-Job-Project", {}, "header X-Job-Project"),
        ("header:X-Job-Project", {"headers": [("X-Job-Project", "  ")]}, "header X-Job-Project"),
        ("query:region", {}, "query parameter region"),
        ("query:region", {"path": "/?region="}, "query parameter region"),
        ("query:region", {"path": "/?Region=eu"}, "query parameter region"),
        ("path,query:region", {"path": "/"}, "query parameter region"),
    ],
)
def test_a_missing_part_of_the_scope_is_refused(scope: str, how: dict[str, Any], named: str) -> None:
    """A request without a part that the key needs is refused, and the refusal names the part and the setting."""
    with pytest.raises(BadDelivery, match=f"{named} is missing: DEDUP_SCOPE"):
        read(scope=scope, **how)


def test_a_query_that_is_no_text_is_refused() -> None:
    """A query with a raw byte that isn't UTF-8, as any caller can send it, is a bad delivery like any other."""
    with pytest.raises(BadDelivery, match="query parameter region is missing"):
        read(scope="query:region", environ_overrides={"QUERY_STRING": "region=\xff"})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("header:X-Job-Project", ScopePart("header", "X-Job-Project")),
        (" query:job_region.1 ", ScopePart("query", "job_region.1")),
        ("path", ScopePart("path")),
    ],
)
def test_a_part_of_the_scope_is_parsed(text: str, part: ScopePart) -> None:
    """DEDUP_SCOPE's parts are header:NAME, query:NAME and path."""
    assert ScopePart.parse(text) == part


@pytest.mark.parametrize(
    "text",
    ["", " ", "header", "header:", "query:", "header:a b", "header:a:b", "path:", "path:/x", "body", "cookie:a", "Header:A"],
)
def test_what_is_no_part_of_a_scope_is_refused(text: str) -> None:
    """Anything else names no part, and the refusal says what to write."""
    with pytest.raises(ValueError, match="write header:NAME, query:NAME or path"):
        ScopePart.parse(text)


# Runs forced by hand: they carry the time of the next tick.

BEFORE_NOON = AT_NOON - timedelta(hours=1)


@pytest.mark.parametrize("now", [BEFORE_NOON, AT_NOON, AT_NOON + timedelta(days=9)])
def test_shared_a_forced_run_is_that_tick(now: datetime) -> None:
    """Under `share` a forced run stands for the tick, whatever the clock says: as Google documents."""
    assert read(now=now).key == f"nightly/{NOON}"


def test_separate_a_forced_run_has_a_key_of_its_own() -> None:
    """Under `separate` a forced run is itself, and so is its retry; the tick is as documented."""
    forced = read(manual_runs=ManualRuns.SEPARATE, now=BEFORE_NOON)
    assert forced.key == f"nightly/{NOON}/manual"
    assert forced.run_id == read(manual_runs=ManualRuns.SEPARATE, now=BEFORE_NOON + timedelta(minutes=5)).run_id
    assert read(manual_runs=ManualRuns.SEPARATE, now=AT_NOON).run_id == read().run_id


def test_refuse_a_forced_run_is_a_bad_delivery() -> None:
    """Under `refuse` a forced run is refused, and the refusal names the header and the setting; a tick isn't."""
    with pytest.raises(BadDelivery, match=f"{SCHEDULE_TIME} .* forced by hand: DEDUP_MANUAL_RUNS=refuse"):
        read(manual_runs=ManualRuns.REFUSE, now=BEFORE_NOON)
    assert read(manual_runs=ManualRuns.REFUSE, now=AT_NOON).run_id == read().run_id


@pytest.mark.parametrize(("ahead", "manual"), [(timedelta(minutes=1, microseconds=1), True), (timedelta(minutes=1), False)])
def test_forced_begins_beyond_a_minute_ahead(ahead: timedelta, manual: bool) -> None:
    """A time that is exactly a minute ahead is still a tick's."""
    assert read(manual_runs=ManualRuns.SEPARATE, now=AT_NOON - ahead).manual is manual


@pytest.mark.parametrize("manual_runs", ManualRuns)
def test_without_a_time_a_forced_run_is_refused(manual_runs: ManualRuns) -> None:
    """A forced run that carries no time is nobody's run: it is never taken for now."""
    with pytest.raises(BadDelivery, match=f"{SCHEDULE_TIME} is missing"):
        read(time=None, manual_runs=manual_runs)


# For any value at all.

INSTANTS = st.datetimes(
    datetime(2, 1, 1, tzinfo=UTC).replace(tzinfo=None), datetime(9998, 1, 1, tzinfo=UTC).replace(tzinfo=None)
)
NANOSECONDS = st.integers(0, 10**9 - 1)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)
SPELLINGS = st.tuples(OFFSETS, st.integers(0, 9), st.booleans())


def spell(instant: datetime, nanoseconds: int, spelling: tuple[int, int, bool]) -> str:
    """Writes an instant down in an offset, with at least that many digits of the second, in upper or lower case."""
    offset, digits, lower = spelling
    local = (instant.replace(microsecond=0) + timedelta(minutes=offset)).isoformat()
    fraction = f"{nanoseconds:09}".rstrip("0").ljust(digits, "0")
    zone = "Z" if offset == 0 else f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    text = f"{local}{'.' if fraction else ''}{fraction}{zone}"
    return text.lower() if lower else text


@given(INSTANTS, NANOSECONDS | st.just(0), SPELLINGS, SPELLINGS)
def test_two_spellings_of_an_instant_are_one_run(
    instant: datetime, nanoseconds: int, one: tuple[int, int, bool], other: tuple[int, int, bool]
) -> None:
    """However an instant is written, it is one run."""
    spellings = [spell(instant, nanoseconds, spelling) for spelling in (one, other, (0, 0, False))]
    assert len({read(time=spelling).run_id for spelling in spellings}) == 1


@given(INSTANTS, NANOSECONDS, SPELLINGS, st.integers(-(10**9), 10**9).filter(bool), SPELLINGS)
def test_two_instants_are_two_runs(
    instant: datetime, nanoseconds: int, one: tuple[int, int, bool], apart: int, other: tuple[int, int, bool]
) -> None:
    """Instants a nanosecond apart are two runs, however they are written."""
    seconds, later = divmod(nanoseconds + apart, 10**9)
    second = instant.replace(microsecond=0)
    times = spell(second, nanoseconds, one), spell(second + timedelta(seconds=seconds), later, other)
    assert read(time=times[0]).run_id != read(time=times[1]).run_id


# Few letters, so that two deliveries are often nearly the same.
TEXTS = st.text("ab/%2F:.", min_size=1, max_size=4) | st.text(min_size=1, max_size=4)
DELIVERIES = st.builds(
    Delivery,
    job_name=st.text("ab-_", min_size=1, max_size=3) | st.just("manual"),
    schedule_time=st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0)) | st.just(AT_NOON),
    scope=st.lists(TEXTS | st.just("manual"), max_size=3).map(tuple),
    fraction=st.sampled_from(["", "5", "05", "000000001", "123456789"]),
    manual=st.booleans(),
)


@given(DELIVERIES, DELIVERIES)
def test_no_two_deliveries_share_a_key(one: Delivery, other: Delivery) -> None:
    """Scope, job, time and being forced are told apart by the key, whatever they contain."""
    assert (one.key == other.key) is (one == other)


@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=3))
def test_no_part_of_a_scope_passes_for_two(one: list[str], other: list[str]) -> None:
    """A slash or a percent sign in a part doesn't move the border between parts."""
    keys = [Delivery("JOB", AT_NOON, tuple(scope)).key for scope in (one, other)]
    assert (keys[0] == keys[1]) is (one == other)


ALMOST_TIMES = st.from_regex(
    r"[0-9]{4}-[0-1][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,11})?([Zz]|[+-][0-9]{2}:?[0-9]{2})?",
    fullmatch=True,
)
HEADER_VALUES = st.text(st.characters(max_codepoint=255), max_size=40)  # PEP 3333: a header arrives as Latin-1


@given(
    st.none() | HEADER_VALUES | st.just("nightly"),
    st.none() | HEADER_VALUES | ALMOST_TIMES,
    st.fixed_dictionaries(
        {}, optional={"HTTP_X_PART": HEADER_VALUES, "PATH_INFO": HEADER_VALUES, "QUERY_STRING": HEADER_VALUES.map("p=".__add__)}
    ),
    st.sampled_from(["", "path", "header:X-Part", "query:p", "header:X-Part,path"]),
    st.sampled_from(ManualRuns),
)
def test_anything_is_a_delivery_or_a_bad_one(
    job_name: str | None, time: str | None, environ: Mapping[str, str], scope: str, manual_runs: ManualRuns
) -> None:
    """Whatever a caller sends is read, or refused with a reason: nothing else is ever raised."""
    sent = {"HTTP_X_CLOUDSCHEDULER_JOBNAME": job_name, "HTTP_X_CLOUDSCHEDULER_SCHEDULETIME": time}
    environ = {**environ, **{name: value for name, value in sent.items() if value is not None}}
    with suppress(BadDelivery):
        delivery = read(None, None, scope=scope, manual_runs=manual_runs, environ_overrides=environ)
        assert delivery.run_id == sha256(delivery.key)
        assert delivery.key.isascii()


# A call's key in place of the two headers.

KEY = "7b9d0f3e-5f0a-4c8e-9a51-2d1c8c1f6f0e"


def keyed(*values: str, service: str = "billing") -> Delivery:
    """A call with these keys."""
    with app.test_request_context(method="POST", headers=[("Idempotency-Key", value) for value in values]):
        return from_idempotency_key(request, service, now=AT_NOON)


@pytest.mark.parametrize("text", [KEY, f" {KEY} ", f'"{KEY}"', f' "{KEY}" '])
def test_a_key_is_read_bare_and_quoted(text: str) -> None:
    """A key is the same with quotes, as the IETF's draft has it, and without."""
    delivery = keyed(text)
    assert (delivery.job_name, delivery.schedule_time, delivery.idempotency_key) == ("billing", AT_NOON, KEY)
    assert delivery.run_id == sha256(f"Idempotency-Key:/billing/{KEY}")


@pytest.mark.parametrize("text", ["x", "!", "~", "'", "a" * 255, "0" * 64])
def test_what_can_be_seen_is_a_key(text: str) -> None:
    """1 to 255 visible ASCII characters are a key, a run's id among them."""
    assert keyed(text).idempotency_key == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is blank"),
        ("   ", "is blank"),
        ('""', "is not a key"),
        ('"', "is not a key"),
        ('"half', "is not a key"),
        ("a b", "is not a key"),
        ("a\x01b", "is not a key"),
        ("a\tb", "is not a key"),
        ("a\x7fb", "is not a key"),
        ("a\\b", "is not a key"),
        ("clé", "is not a key"),
        ("a" * 256, "is not a key"),
        ("a" * 10240, "is not a key"),
        ("a,b", "more than once"),
    ],
    ids=map(str, range(14)),
)
def test_what_is_no_key_is_refused(text: str, told: str) -> None:
    """A key that is blank, of 10 KB, or has control characters is refused by name, and not shown whole."""
    with pytest.raises(BadDelivery, match=r"^Idempotency-Key") as refusal:
        keyed(text)
    assert told in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_a_key_that_is_sent_twice_is_refused() -> None:
    """Two keys are no key."""
    with pytest.raises(BadDelivery, match="more than once"):
        keyed(KEY, KEY)


def test_no_key_is_refused() -> None:
    """A call without a key is refused: nothing would tell it from its repetition."""
    with pytest.raises(BadDelivery, match="Idempotency-Key is missing: the caller sends it"):
        keyed()


def test_a_services_name_is_checked() -> None:
    """A name that could pass for two parts of the key is the service's own mistake."""
    with pytest.raises(ValueError, match="not a service's name"):
        keyed(KEY, service="billing/eu")


def test_the_callers_own_run_is_another_one() -> None:
    """One key at two services, and the run that it is the id of, are three runs."""
    run = read()
    ids = {run.run_id, keyed(run.run_id).run_id, keyed(run.run_id, service="shipping").run_id}
    assert len(ids) == 3


def test_no_jobs_key_is_a_calls_key() -> None:
    """Whatever a job is called and wherever it is from, its key can't be that of a call."""
    job = Delivery("billing", AT_NOON, scope=("Idempotency-Key:",))
    assert job.key.startswith("Idempotency-Key%3A/")
    assert not job.key.startswith("Idempotency-Key:")


def test_a_call_arrives_now() -> None:
    """Without a given time, a call's time is the instance's: it is for people, and tells no runs apart."""
    before = datetime.now(UTC)
    with app.test_request_context(method="POST", headers={"Idempotency-Key": KEY}):
        delivery = from_idempotency_key(request, "billing")
    assert before <= delivery.schedule_time <= datetime.now(UTC)
    assert delivery.run_id == keyed(KEY).run_id
