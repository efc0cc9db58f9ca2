"""docs/readings.md says what the readings hold: every field, none that is not there, with its unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tsnb.telemetry.readings import (
    CONSUMER_STATES,
    PRODUCER_STATES,
    BesideReading,
    CacheReading,
    ConsumerReading,
    EndReading,
    FrozenReading,
    GpuReading,
    GrowthReading,
    HostReading,
    MoveReading,
    OutcomeReading,
    PlannedReading,
    PlanReading,
    ProbeReading,
    ProcessReading,
    StreamReading,
    TuningReading,
)
from tsnb.telemetry.shown.marks import MARK_KINDS

TEXT = (Path(__file__).parents[2] / "docs/readings.md").read_text(encoding="utf-8")
UNITS = {"_s": "seconds", "_bytes": "bytes"}


def tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Field, unit and meaning of each table, by the dataclass named last before it."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    kind = ""
    for line in TEXT.splitlines():
        if named := re.findall(r"`(?:[\w.]+\.)?(\w+Reading)`", line):
            kind = named[-1]
        if row := re.match(r"\| `(\w+)` \| (.*?) ?\| (.*) \|$", line):
            found.setdefault(kind, {})[row[1]] = (row[2], row[3])
    return found


@pytest.mark.parametrize(
    "kind",
    [
        StreamReading,
        ConsumerReading,
        EndReading,
        MoveReading,
        GrowthReading,
        CacheReading,
        FrozenReading,
        BesideReading,
        PlanReading,
        PlannedReading,
        OutcomeReading,
        TuningReading,
        ProbeReading,
        HostReading,
        ProcessReading,
        GpuReading,
    ],
)
def test_every_field_is_documented_with_its_unit(kind: type) -> None:
    """In the order of the dataclass; a field that ends in a unit has that one."""
    rows = tables()[kind.__name__]
    assert list(rows) == list(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    for field, (unit, meaning) in rows.items():
        assert meaning
        for ending, expected in UNITS.items():
            if field.endswith(ending):
                assert unit.startswith(expected), field


def test_every_state_and_mark_is_documented() -> None:
    """As the table spells them."""
    rows = tables()
    assert not [s for s in PRODUCER_STATES if f"`{s}`" not in rows["StreamReading"]["state"][1]]
    assert not [s for s in CONSUMER_STATES if f"`{s}`" not in rows["ConsumerReading"]["state"][1]]
    assert ", ".join(MARK_KINDS) in " ".join(TEXT.split())
