"""Promises in seconds, as tests hold them: the fact must come, and how long it took is told where that was too long.

Wall time on a busy machine says nothing of the code, so no test fails by it: what took longer than is promised stands
among the warnings at the end of a run, where a quiet machine should show none.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

__all__ = ["HANG_S", "promptly", "took"]

HANG_S = 60.0
"""What takes longer does not come at all: no machine is so busy."""


def promptly(condition: Callable[[], object], since: float | None = None, promised_s: float = 1.0) -> None:
    """Wait for something to become true.

    Args:
        condition: What is waited for.
        since: The moment from which on the promise counts, by `time.monotonic`; by default now.
        promised_s: How soon it is promised.

    Raises:
        AssertionError: It did not come.
    """
    since = time.monotonic() if since is None else since
    while not condition():
        assert time.monotonic() - since < HANG_S, f"not within {HANG_S:.0f} s"
        time.sleep(0.01)
    took(time.monotonic() - since, promised_s)


def took(seconds: float, promised_s: float = 1.0) -> None:
    """Warn of what took longer than is promised.

    Raises:
        AssertionError: It took so long that it was no answer to what happened.
    """
    assert seconds < HANG_S
    if seconds > promised_s:
        warnings.warn(f"took {seconds:.2f} s, and {promised_s:g} s are promised", stacklevel=3)
