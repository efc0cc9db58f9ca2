"""Whether a producer that has crashed is started again: decided without a clock or a process."""

from __future__ import annotations

from tsnb.hosting.crashes import MOST, ROW_S, WELL_PAST, Crashes, Position

LONG_S = 10 * ROW_S
"""Between two crashes that are no row by their times."""


def verdicts(*crashes: tuple[float, Position]) -> list[bool]:
    record = Crashes()
    return [record.allow_another(now_s, position) for now_s, position in crashes]


def test_a_batch_that_kills_its_loader_ends_the_stream_at_the_third_attempt() -> None:
    """Each life dies at about the same place, however long it takes to get there."""
    places = [Position(2, 500), Position(2, 510), Position(2, 490)]
    assert verdicts(*((i * LONG_S, place) for i, place in enumerate(places))) == [True, True, False]


def test_a_stream_that_gets_on_may_crash_for_weeks() -> None:
    """A crash in a later epoch, or well past the last one, begins a new row."""
    later = [Position(epoch, 3) for epoch in range(20)]
    further = [Position(0, batch * (WELL_PAST + 1)) for batch in range(20)]
    for places in (later, further):
        assert all(verdicts(*((i * LONG_S, place) for i, place in enumerate(places))))


def test_three_crashes_within_a_minute_end_it_wherever_they_happen() -> None:
    """A machine without memory kills in every epoch."""
    crashes = [(i * ROW_S / MOST, Position(i, 0)) for i in range(MOST)]
    assert verdicts(*crashes) == [True] * (MOST - 1) + [False]


def test_getting_on_is_measured_against_the_furthest_point() -> None:
    """A life that dies earlier than the one before does not make the next one look like progress."""
    record = Crashes()
    assert record.allow_another(0.0, Position(0, 5000))
    assert record.allow_another(LONG_S, Position(0, 10))
    assert record.position == Position(0, 5000)
    assert not record.allow_another(2 * LONG_S, Position(0, 4000))
    assert "3 times without making progress" in record.reason


def test_the_reason_says_which_rule_it_was() -> None:
    """Times within a minute, or attempts without progress."""
    record = Crashes()
    for i in range(MOST):
        record.allow_another(float(i), Position(i, 0))
    assert record.reason == "it crashed 3 times within 60 s"
