"""Times of the wall clock: by when a sweep is to be done, read; and when something will be, as text. Pure."""

from __future__ import annotations

import math
import re
from datetime import datetime, time, timedelta

from tsnb.words import clock_time

__all__ = ["clock_span", "read_deadline"]

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
"""A time of the day here: of "18.30" Python reads the hour alone, and "18:00Z" may be another."""


def clock_span(time_s: float, now_s: float, off: float, beside_s: float = math.inf) -> str:
    """Return a foretold time of the wall clock with its interval: "18:05 (17:50 to 18:20, four times in five)".

    Args:
        time_s: Seconds since 1970.
        now_s: The time now, in seconds since 1970.
        off: How far it may be off, as a share of the time until then.
        beside_s: As `clock_time` takes it.
    """
    low, high = (clock_time(now_s + (time_s - now_s) * (1 + sign * off), now_s, beside_s) for sign in (-1, 1))
    return f"{clock_time(time_s, now_s, beside_s)} ({low} to {high}, 80% interval)"


def read_deadline(deadline: str | datetime, now: datetime) -> float:
    """Return by when a sweep is to be done, in seconds since 1970.

    Args:
        deadline: "18:00", the next time that it is so late; "2026-11-24 08:00"; or a datetime.
        now: The time now, with its time zone.

    Raises:
        ValueError: It is not a time, or has passed.
    """
    found = deadline
    if isinstance(found, str):
        try:
            if len(found) <= len("18:00:00"):
                if not _CLOCK.fullmatch(found):
                    raise ValueError
                at = time.fromisoformat(found.zfill(len("18:00")))
                found = datetime.combine(now.date(), at, now.tzinfo)
                found = found if found > now else found + timedelta(days=1)
            else:
                found = datetime.fromisoformat(found)
        except ValueError:
            raise ValueError(
                f'deadline={deadline!r} is not a time. Pass "18:00", "2026-11-24 08:00" or a datetime'
            ) from None
    if not isinstance(found, datetime):
        raise ValueError(
            f'deadline={deadline!r} is not a time. Pass "18:00", "2026-11-24 08:00" or a datetime'
        )
    found = found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)
    if found <= now:
        raise ValueError(
            f"deadline={deadline!r} has already passed: it is {now:%Y-%m-%d %H:%M}. Pass a later time"
        )
    return found.timestamp()
