"""Which schedules are Cloud Scheduler's unix-cron."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime

import pytest
from cronsim import CronSim

from dedup.cli.unix_cron import FIELDS, check_unix_cron
from tests.template import ROOT

DOCUMENTED = [
    "* * * * *",
    "0 9 * * 1",
    "45 23 * * 6",
    "0 */3 * * *",
    "0 0-23/2 * * *",
    "* 0 1 1 1",
    "0 0 1,2,5,6 * *",
    "0 0 1 JAN SAT",
    "0 9 1-7,15-21/2,31 FEB,MAY-DEC MON-FRI",
    "0 0 * * 0,7",
    "0 0 * * 0-7",
    "0 0 * jan sun",
    "00 09 * * *",
    "  0  9\t* * *  ",
]

REFUSED = {
    "": "five fields.* this has 0",
    "* * * *": "minute, hour, day of month, month, day of week.*: this has 4",
    "0 0 0 * * *": "five fields.* this has 6",
    "every 5 minutes": "five fields.* this has 3",
    "@daily": "a name such as @daily is none",
    "@every 5m": "a name such as @daily is none",
    "@reboot * * * *": "minute '@reboot': '@reboot' is not one of 0 to 59",
    "0 0 L * *": "day of month 'L': unix-cron has no L",
    "0 0 LW * *": "day of month 'LW': unix-cron has no L",
    "0 0 L-3 * *": "day of month 'L-3': unix-cron has no L",
    "0 0 1,L * *": "day of month '1,L': unix-cron has no L",
    "0 0 * * 5L": "day of week '5L': unix-cron has no L",
    "0 0 * * friL": "day of week 'friL': unix-cron has no L",
    "0 0 15W * *": "day of month '15W': unix-cron has no W",
    "0 0 W * *": "day of month 'W': unix-cron has no W",
    "0 0 * * 5#2": "day of week '5#2': unix-cron has no #",
    "0 0 * * MON#1,FRI": "day of week 'MON#1,FRI': unix-cron has no #",
    "0 0 ? * *": r"day of month '\?': unix-cron has no \?, say \*",
    "0 0 1 * ?": r"day of week '\?': unix-cron has no \?, say \*",
    "61 * * * *": "minute '61': '61' is not one of 0 to 59",
    "* 24 * * *": "hour '24': '24' is not one of 0 to 23",
    "* * 0 * *": "day of month '0': '0' is not one of 1 to 31",
    "* * 32 * *": "day of month '32'",
    "* * * 0 *": "month '0': '0' is not one of 1 to 12, JAN to DEC",
    "* * * 13 *": "month '13'",
    "* * * * 8": "day of week '8': '8' is not one of 0 to 7, SUN to SAT",
    "* * JUL * *": "day of month 'JUL': 'JUL' is not one of 1 to 31",
    "* * * * MONDAY": "day of week 'MONDAY'",
    "* * * SUN *": "month 'SUN'",
    "H * * * *": "minute 'H'",
    "-5 * * * *": "minute '-5': '' is not one of",
    "5- * * * *": "minute '5-': '' is not one of",
    "5, * * * *": "minute '5,': '' is not one of",
    "1-2-3 * * * *": "minute '1-2-3': '2-3' is not one of",
    "*-5 * * * *": r"minute '\*-5': '\*' is not one of",
    "** * * * *": r"minute '\*\*'",
    "50-10 * * * *": "minute '50-10': 50-10 ends before it begins",
    "* * * * FRI-MON": "day of week 'FRI-MON': FRI-MON ends before it begins",
    "*/0 * * * *": r"minute '\*/0': '0' is no step",
    "*/ * * * *": r"minute '\*/': '' is no step",
    "1-9/2/3 * * * *": "minute '1-9/2/3': '2/3' is no step",
    "*/-1 * * * *": r"minute '\*/-1': '-1' is no step",
    "*/x * * * *": r"minute '\*/x': 'x' is no step",
    "5/15 * * * *": "minute '5/15': a step comes after [*] or a range, such as 5-59/15",
    "* * * * MON/2": "day of week 'MON/2': a step .* such as MON-7/2",
    "٣ * * * *": "minute '٣': '٣' is not one of 0 to 59",
    f"{'9' * 5000} * * * *": "is not one of 0 to 59",
}


@pytest.mark.parametrize("schedule", DOCUMENTED)
def test_what_is_documented_is_taken(schedule: str) -> None:
    """Numbers, names, `*`, ranges, steps, lists and 0 to 7 for a day of the week are unix-cron."""
    check_unix_cron(schedule)


@pytest.mark.parametrize(("schedule", "told"), REFUSED.items(), ids=[schedule[:20] for schedule in REFUSED])
def test_what_is_not_documented_is_refused(schedule: str, told: str) -> None:
    """Whatever else cronsim or another cron reads is refused, and the message says what is wrong, and in which field."""
    with pytest.raises(ValueError, match=told) as refusal:
        check_unix_cron(schedule)
    assert str(refusal.value).startswith(repr(schedule))


def test_what_is_taken_can_be_read() -> None:
    """Any schedule that is taken is one that cronsim reads, and that Terraform's plan takes."""
    [form] = re.findall(r'unix_cron\s*=\s*"(.*)"', (ROOT / "terraform" / "timings.tf").read_text())
    terraforms = re.compile(form.replace("\\\\", "\\"))
    chance, taken = random.Random(1), 0
    for number in range(5000):
        parts = ["*"] * len(FIELDS)
        words = chance.choices(["*", "1", "2", "7", "59", "/", "-", ",", "L", "#", "W", "MON", "Feb"], k=chance.randint(1, 5))
        parts[number % len(FIELDS)] = "".join(words)
        schedule = " ".join(parts)
        try:
            check_unix_cron(schedule)
        except ValueError:
            continue
        taken += 1
        CronSim(schedule, datetime(2026, 1, 1, tzinfo=UTC))
        assert terraforms.search(schedule), schedule
    assert taken > 300
