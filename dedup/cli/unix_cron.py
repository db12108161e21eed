"""Cloud Scheduler's unix-cron, as Google documents it.

https://docs.cloud.google.com/scheduler/docs/configuring/cron-job-schedules: five fields of numbers, each with a range of its
own; `*`, ranges by a hyphen, a step after `*` or a range, lists by commas; the names JAN to DEC and SUN to SAT, 7 for Sunday
too. The page says in so many words that `L` isn't supported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EXAMPLE = "'30 2 * * *'"


@dataclass(frozen=True)
class _Field:
    """One of the five.

    Args:
        name: what messages call it.
        first: its lowest number.
        last: its highest number.
        names: words for its numbers, from the lowest on.
    """

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    def number(self, value: str) -> int | None:
        """What a value stands for; None: nothing that this field has."""
        if value.upper() in self.names:
            return self.first + self.names.index(value.upper())
        number = int(value) if re.fullmatch("[0-9]{1,9}", value) else -1
        return number if self.first <= number <= self.last else None

    @property
    def values(self) -> str:
        """All that a value may be."""
        return f"{self.first} to {self.last}" + (f", {self.names[0]} to {self.names[-1]}" if self.names else "")


FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)

OTHER_CRONS = {
    r"\?": "unix-cron has no ?, say *",
    r".*#.*": "unix-cron has no #, for the nth weekday of a month",
    r"L|LW|WL|([0-9]+|[A-Z]{3})L": "unix-cron has no L, for the last day",
    r"W|[0-9]+W": "unix-cron has no W, for the nearest weekday",
}
"""What is written in other kinds of cron, some of which cronsim reads."""


def check_unix_cron(schedule: str) -> None:
    """Refuses a schedule that the documented grammar hasn't; programs for cron read more than that.

    Raises:
        ValueError: it is wrong. Says what is, and in which field.
    """
    parts = schedule.split()
    if len(parts) != len(FIELDS):
        found = "a name such as @daily is none" if schedule.lstrip().startswith("@") else f"this has {len(parts)}"
        fields = ", ".join(field.name for field in FIELDS)
        raise ValueError(f"{schedule!r} is not unix-cron, which has five fields ({fields}), such as {EXAMPLE}: {found}")
    for field, part in zip(FIELDS, parts, strict=True):
        for item in part.split(","):
            fault = _fault(item, field)
            if fault is not None:
                raise ValueError(f"{schedule!r}: {field.name} {part!r}: {fault}")


def _fault(item: str, field: _Field) -> str | None:
    """What is wrong with one item of a field's list."""
    values, slash, step = item.partition("/")
    if slash and not re.fullmatch("0*[1-9][0-9]{0,8}", step):
        return f"{step!r} is no step: that is a number from 1 on"
    if values == "*":
        return None
    first, hyphen, last = values.partition("-")
    numbers = []
    for value in (first, last) if hyphen else (first,):
        number = field.number(value)
        if number is None:
            return _not_a_value(value, field)
        numbers.append(number)
    if numbers[0] > numbers[-1]:
        return f"{values} ends before it begins"
    if slash and not hyphen:
        return f"a step comes after * or a range, such as {first}-{field.last}/{step}"
    return None


def _not_a_value(value: str, field: _Field) -> str:
    for form, fault in OTHER_CRONS.items():
        if re.fullmatch(form, value.upper()):
            return fault
    return f"{value!r} is not one of {field.values}"
