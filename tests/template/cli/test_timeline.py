"""The page that shows runs, as text and in a browser."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dedup.cli.timeline import gaps_of, page
from dedup.record import RunRecord, Status
from dedup.stores import SeenRun
from tests.template.cli.conftest import House
from tests.template.size import WHOLE

whole = pytest.mark.skipif(not WHOLE, reason="one look in the browser is enough for `make test`; runs whole")

SINCE = datetime(2026, 10, 16, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=1)
HOUR = timedelta(hours=1)
EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>" onfocus="alert(1)\' & \x1b[31m'


def a_run(
    scheduled: datetime, job: str = "nightly", status: Status | None = Status.COMPLETED, *, seconds: float = 600, **other: Any
) -> SeenRun:
    """A run that began 30 s after its time."""
    fields: dict[str, Any] = {
        "status": status,
        "attempt_id": "a" * 32,
        "lease_seconds": 300,
        "job_name": job,
        "schedule_time": scheduled,
        "claimed_at": scheduled + timedelta(seconds=30),
        "finished_at": scheduled + timedelta(seconds=30 + seconds) if status is not None else None,
    }
    seen_at = scheduled + timedelta(seconds=60)
    return SeenRun(f"{hash((job, scheduled)):x}", RunRecord(updated_at=scheduled, **(fields | other)), seen_at)


def a_day() -> list[SeenRun]:
    """Two jobs of every kind of run, with a gap, and whatever a record can say."""
    runs = [a_run(SINCE + number * HOUR) for number in range(24) if number not in (9, 10, 11)]
    odd = [
        a_run(SINCE + 2 * HOUR, "other", Status.FAILED, error=EVIL, attempts=1),
        a_run(SINCE + 6 * HOUR, "other", attempts=3, result="took three", claimed_at=SINCE + 7 * HOUR),
        a_run(SINCE + 12 * HOUR, "other", Status.IN_PROGRESS),
        a_run(SINCE + 18 * HOUR, "other", Status.IN_PROGRESS, lease_seconds=0),
        a_run(SINCE + 20 * HOUR, EVIL, None),
    ]
    return runs + odd


class Tags(HTMLParser):
    """Counts the tags of a page, and collects their attributes' names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Counts one."""
        self.found[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def test_what_is_missing_is_a_gap() -> None:
    """What is longer than one and a half of a job's usual interval is a gap, up to the page's end too."""
    times = [SINCE + number * HOUR for number in (0, 1, 2, 3, 6, 7)]
    [first, last] = gaps_of(times, SINCE + 12 * HOUR)
    assert (first.after, first.before, first.usual) == (SINCE + 3 * HOUR, SINCE + 6 * HOUR, 3600)
    assert (last.after, last.before) == (SINCE + 7 * HOUR, SINCE + 12 * HOUR)
    assert gaps_of(times, SINCE + 8 * HOUR) == [first]


@pytest.mark.parametrize("hours", [[], [1], [1, 9], [1, 9, 10]])
def test_a_job_that_ran_little_has_no_gap(hours: list[int]) -> None:
    """Of fewer than three intervals nobody can tell which one is usual."""
    assert gaps_of([SINCE + hour * HOUR for hour in hours], UNTIL) == []


def test_runs_of_one_time_have_no_gap() -> None:
    """Jobs in several scopes, or runs of one second, divide by no zero."""
    assert gaps_of([SINCE] * 5, UNTIL) == []


def test_the_page_is_written(house: House, tmp_path: Path) -> None:
    """`timeline` writes one file with the runs of the time that was asked for, and says how many."""
    now = datetime.now(UTC).replace(microsecond=0)
    house.finished(time=now - HOUR, result="7 rows")
    house.finished(time=now - 30 * HOUR, result="too old")
    output = tmp_path / "runs.html"
    done = house("timeline", "--since", "24h", "-o", str(output))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{output}: 1 runs\n"
    text = output.read_text()
    assert "7 rows" in text
    assert "too old" not in text
    assert house.json("timeline", "-o", str(output)) == [{"output": str(output), "runs": 1}]


def test_a_file_that_cannot_be_written_is_told(local: House, tmp_path: Path) -> None:
    """A folder that isn't there is exit code 2, and so are times in the wrong order."""
    assert local("timeline", "-o", str(tmp_path / "no" / "runs.html")).exit_code == 2
    assert local("timeline", "--since", "1h", "--until", "2h").exit_code == 2


def test_nothing_of_a_record_is_markup() -> None:
    """Tags, quotes and control characters of names, results and errors are text, wherever they stand."""
    text = page(a_day(), SINCE, UNTIL)
    tags = Tags()
    tags.feed(text)
    assert tags.found["script"] == 1
    assert tags.found["img"] == 0
    assert not any(name.startswith("on") for name in tags.attributes)
    assert "\x1b" not in text


# In a browser.


@dataclass
class Viewed:
    """A page in a browser, and what it has done that it shouldn't."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium, where there is one."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium: install chromium (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def view(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """Opens runs as a page; whatever the page complains of, or asks for, fails the test."""
    viewed: list[Viewed] = []

    def open_runs(runs: list[SeenRun], **options: Any) -> Page:
        file = tmp_path / "runs.html"
        file.write_text(page(runs, SINCE, UNTIL), encoding="utf-8")
        opened = browser.new_page(viewport={"width": 1200, "height": 800}, **options)
        seen = Viewed(opened)
        viewed.append(seen)
        opened.on("console", lambda message: seen.console.append(message.text))
        opened.on("pageerror", lambda error: seen.console.append(str(error)))
        opened.on("request", lambda request: seen.requests.append(request.url))
        opened.goto(file.as_uri())
        return opened

    yield open_runs
    for seen in viewed:
        assert seen.console == []
        assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in seen.requests if url.startswith("file:")]) == 1
        seen.page.close()


def test_a_row_for_each_job_and_a_bar_for_each_run(view: Any, tmp_path: Path) -> None:
    """The page shows each job with its runs by outcome, attempts, lag and gaps, and a script in a result stays text."""
    shown: Page = view(a_day())
    shown.screenshot(path=tmp_path / "runs.png", full_page=True)
    assert (tmp_path / "runs.png").stat().st_size > 10_000
    assert shown.title() == "Runs from 2026-10-16 00:00:00 to 2026-10-17 00:00:00"
    assert shown.locator(".job").count() == 3
    assert shown.locator(".row .bar").count() == len(a_day())
    counted = {kind: shown.locator(f".row .bar.{kind}").count() for kind in ("completed", "failed", "in-progress", "abandoned")}
    assert counted == {"completed": 22, "failed": 1, "in-progress": 1, "abandoned": 2}
    assert shown.locator(".row .bar b").all_inner_texts() == ["3"]
    [gap] = shown.get_by_label("no run for 4h after").all()
    assert "the usual interval is 1h" in (gap.get_attribute("aria-label") or "")
    failed = shown.locator(".row .bar.failed")
    failed.hover()
    assert '<script>document.title="owned"</script>' in shown.locator("#about").inner_text()
    for bar in shown.locator(".row .bar").all():
        box = bar.bounding_box()
        assert box is not None
        assert box["width"] >= 5
        assert box["height"] >= 15


@whole
def test_it_can_be_read_by_keyboard(view: Any) -> None:
    """Each row is one stop of the tab key; arrows, Home and End go along it, and tell of each run as they come to it."""
    shown: Page = view(a_day())
    first = shown.locator(".row .bar").first
    first.focus()
    labels = [bar.get_attribute("aria-label") for bar in shown.locator('.job[aria-label="nightly"] .bar').all()]
    shown.locator('.job[aria-label="nightly"] .bar').first.focus()
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", -1), ("ArrowRight", -1), ("Home", 0)):
        shown.keyboard.press(key)
        assert shown.evaluate("document.activeElement.getAttribute('aria-label')") == labels[expected]
        assert shown.locator("#about").inner_text() == labels[expected]
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.getAttribute('aria-label')").startswith("other of")


@whole
def test_it_can_be_heard(view: Any) -> None:
    """Rows and bars have names and roles, and the same runs stand in a table with heads."""
    shown: Page = view(a_day())
    rows = shown.get_by_role("listbox")
    assert rows.count() == 3
    assert rows.nth(1).get_attribute("aria-label") == "Runs of nightly"
    names = [option.get_attribute("aria-label") or "" for option in shown.get_by_role("option").all()]
    told = r"other of 2026-10-16 06:00:00: completed; started 1h after its time; .*attempt 3; took three"
    assert any(re.match(told, name) for name in names)
    shown.locator("summary").click()
    assert shown.get_by_role("table").get_by_role("row").count() == len(a_day()) + 1
    assert shown.get_by_role("columnheader").all_inner_texts()[:3] == ["Job", "Scheduled", "Status"]


@whole
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_light_and_dark(view: Any, scheme: str) -> None:
    """The page follows the reader's scheme, and its text keeps a contrast of at least 4.5 to 1."""
    shown: Page = view(a_day(), color_scheme=scheme)
    for selector in ("body", "header p", ".axis span", ".job h2"):
        text = shown.evaluate("selector => getComputedStyle(document.querySelector(selector)).color", selector)
        ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert contrast(text, ground) >= 4.5, selector
    ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) > 0.5) == (scheme == "light")


@whole
def test_a_thousand_runs_can_be_told_apart(view: Any) -> None:
    """Each of 1,000 runs of one job has a bar of its own, which no other covers; the page scrolls inside of its frame only."""
    minute = timedelta(seconds=86)
    shown: Page = view([a_run(SINCE + number * minute, seconds=5) for number in range(1000)])
    lefts = shown.evaluate("[...document.querySelectorAll('.row .bar')].map(bar => bar.getBoundingClientRect().left)")
    assert len(lefts) == 1000
    assert min(later - earlier for earlier, later in pairwise(lefts)) >= 5
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@whole
def test_no_runs_are_a_page_too(view: Any) -> None:
    """A page without runs says so."""
    shown: Page = view([])
    assert "0 runs of 0 jobs: none" in shown.locator("header").inner_text()


def luminance(colour: str) -> float:
    """The relative luminance of an rgb(...) colour, from 0 to 1."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG defines it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
