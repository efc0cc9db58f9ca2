"""Tests that are known to fail now and then: who looks into each, and until when it may.

A test that fails fails the run: there is no second try. While one that fails only sometimes is being looked into, it
stands here. It still runs; its failure shows as XFAIL among the run's last lines and does not fail it, until its day is
over: then the entry itself fails the run, whatever the test does.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

LONGEST_DAYS = 30
"""An entry may not stand for longer: by then the cause is found, or the test goes."""


@dataclass(frozen=True)
class Quarantined:
    """One test that may fail for a while."""

    test: str
    """Its id as pytest prints it, without the parameters: they all share the cause."""
    owner: str
    """Who looks into it."""
    since: dt.date
    """When it was first seen to fail."""
    until: dt.date
    """The last day on which its failure is tolerated."""
    why: str
    """What was seen, and what is suspected."""

    def fault(self, today: dt.date) -> str | None:
        """Return what is wrong with this entry, None if it may stand."""
        if today > self.until:
            return f"{self.test}: the quarantine ended on {self.until}; mend the test or remove it ({self.owner})"
        if (self.until - self.since).days > LONGEST_DAYS:
            return f"{self.test}: {self.since} to {self.until} is longer than {LONGEST_DAYS} days"
        if not (self.owner and self.why):
            return f"{self.test}: an entry needs an owner and a reason"
        return None


QUARANTINE: tuple[Quarantined, ...] = ()


def reason(test: str, entries: tuple[Quarantined, ...] = QUARANTINE) -> str | None:
    """Return why this test may fail, None if it may not.

    Args:
        test: Its id as pytest prints it.
        entries: The list to look into.
    """
    name = test.partition("[")[0]
    return next(
        (f"{entry.owner}, until {entry.until}: {entry.why}" for entry in entries if entry.test == name), None
    )
