"""How wide the window of the modes free and weights becomes."""

from __future__ import annotations

import pytest

from tsnb.machine.memory import Free
from tsnb.stream.producer.limits import WIDE_BATCHES, WIDE_BYTES, reach_of, wide_window

MIB = 1 << 20


@pytest.mark.parametrize(
    ("batch_bytes", "free_bytes", "expected"),
    [
        (1 * MIB, None, WIDE_BATCHES),
        (1 * MIB, 100 * MIB, 50),
        (64 * MIB, 1 << 40, WIDE_BYTES // (64 * MIB)),
        (1 * MIB, 4 * MIB, 8),
        (2 << 30, 1 << 40, 8),
    ],
)
def test_it_is_bounded_in_batches_and_bytes_and_by_half_of_what_is_free(
    batch_bytes: int, free_bytes: int | None, expected: int
) -> None:
    """And never narrower than the stream's own window, nor wider than the arena has slots for."""
    free = None if free_bytes is None else Free(free_bytes, "here")
    found = wide_window(8, batch_bytes, free)
    assert found == expected
    assert found <= max(8, reach_of(batch_bytes))
