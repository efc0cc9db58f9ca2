"""The reel: ten minutes in full, the time before in part, all in bounded space."""

from __future__ import annotations

import struct

import numpy as np

from tsnb.panel.frames import OLDER_TICKS, RECENT_TICKS, Reel


def filled(ticks: int) -> Reel:
    reel = Reel()
    for k in range(ticks):
        reel.add(k / 4, struct.pack("<f", k / 4), wanted=k % 8 == 0)
    return reel


def times(reel: Reel) -> np.ndarray:
    return np.frombuffer(reel.history(), "<f4")


def test_a_young_stream_is_kept_in_full() -> None:
    """Nothing is thinned within ten minutes."""
    assert np.array_equal(times(filled(RECENT_TICKS)), np.arange(RECENT_TICKS) / 4)


def test_hours_are_kept_in_bounded_space_without_a_hole() -> None:
    """From the first tick to the last; the steps of the older part are alike, and twice as long when it was full."""
    for hours, step_s in ((1, 4), (4, 32)):
        kept = times(filled(hours * 3600 * 4))
        assert len(kept) <= OLDER_TICKS + RECENT_TICKS
        assert kept[0] == 0.0
        assert kept[-1] == hours * 3600 - 0.25
        steps_s = np.diff(kept[:-RECENT_TICKS])
        assert steps_s.max() <= 2 * step_s
        assert steps_s.min() >= step_s / 2


def test_frames_with_the_machines_numbers_are_kept_first() -> None:
    """One tick in eight has them: thinning at random would lose most of the machine's history."""
    kept = times(filled(3600 * 4))[:-RECENT_TICKS]
    assert np.mean(kept % 2 == 0) > 0.9


def test_a_clock_that_went_back_loses_nothing_new() -> None:
    """The clock was set an hour back: what comes then is kept as ever."""
    reel = filled(RECENT_TICKS + 100)
    for k in range(RECENT_TICKS + 100):
        reel.add(k / 4 - 3600, struct.pack("<f", k / 4 - 3600))
    assert (times(reel)[-RECENT_TICKS:] < 0).all()
    assert len(reel) <= OLDER_TICKS + RECENT_TICKS
