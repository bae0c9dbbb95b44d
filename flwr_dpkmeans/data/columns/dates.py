"""Dates and times of day as they are written in cells, and as numbers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

SHOWN_AS_DAYS = 10.0
"""Width of bounds, in days, from which on dates are shown without a time."""
_EPOCH = datetime(1970, 1, 1)
_MINUTES_OF_A_DAY = 24 * 60
_DATE = re.compile(r"(?:\d{4}-\d{2}-\d{2}|\d{8})(?:[T ](?P<time>.+))?", re.ASCII)
"""What `datetime.fromisoformat` reads besides is no date.

2026W05, or milliseconds since 1970 as one of 1583.
"""
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?", re.ASCII)


def _moment(text: str) -> datetime | None:
    """A date, or a date and time, of ISO 8601; None for other text."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def days_of(text: str) -> float:
    """Days since 1970 of a date, or of a date and time (UTC where it says a zone).

    NaN if it is none.

    Examples
    --------
    >>> days_of("1970-01-02"), days_of("19700102"), days_of("1970-01-02T12:00")
    (1.0, 1.0, 1.5)
    >>> days_of("1583020800000"), days_of("2026W05")
    (nan, nan)
    """
    moment = _moment(text)
    if moment is None:
        return math.nan
    epoch = _EPOCH
    if moment.tzinfo is not None:
        epoch = _EPOCH.replace(tzinfo=UTC)
    return (moment - epoch) / timedelta(days=1)


def hours_of(text: str) -> float:
    """Hours since midnight of a time of day, alone or behind a date.

    NaN if there is none.

    It is the time that stands there, whatever zone is named: a clock on the wall says
    when a ward sleeps.

    Examples
    --------
    >>> hours_of("2026-01-31T22:30"), hours_of("7:15")
    (22.5, 7.25)
    >>> hours_of("2026-01-31"), hours_of("25:00")
    (nan, nan)
    """
    dated = _DATE.fullmatch(text)
    if dated is not None and dated["time"]:
        moment = _moment(text)
        if moment is None:
            return math.nan
        return _hours(moment.hour, moment.minute, moment.second)
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return math.nan
    hour, minute, second = clock.groups(default="0")
    return _hours(int(hour), int(minute), float(second))


def _hours(
    hour: int,
    minute: int,
    second: float,
) -> float:
    if hour >= 24 or minute >= 60 or second >= 60.0:
        return math.nan
    return hour + minute / 60.0 + second / 3600.0


def iso_date(
    days: float,
    low: float = -math.inf,
    high: float = math.inf,
) -> str:
    """Return the ISO 8601 date nearest to so many days after 1970 began.

    As far as there is one; of noon, that of its day. The minute, where a column's
    bounds, `low` and `high` in days, are a few days apart.
    """
    shows_days = high - low >= SHOWN_AS_DAYS
    per_day = 1 if shows_days else _MINUTES_OF_A_DAY
    days_with_a_date = min(max(days, -700_000), 2_900_000)
    nearest = math.ceil(days_with_a_date * per_day - 0.5)
    minutes = nearest * (_MINUTES_OF_A_DAY // per_day)
    moment = _EPOCH + timedelta(minutes=minutes)
    if shows_days:
        return moment.date().isoformat()
    return moment.isoformat(timespec="minutes")
