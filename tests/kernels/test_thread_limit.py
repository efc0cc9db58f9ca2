"""Whether a process may begin the threads that it takes: of the system's own limit, in `tests/system`."""

from __future__ import annotations

import threading

import pytest

from tsnb.kernels.thread_limit import require_threads


def test_the_threads_end_that_were_begun_to_see_whether_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all of them could be begun or not."""
    before = threading.active_count()
    require_threads(4)
    assert threading.active_count() == before
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def some(thread: threading.Thread) -> None:
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    with pytest.raises(RuntimeError, match="can't start"):
        require_threads(4)
    assert len(begun) == 2 and not any(thread.is_alive() for thread in begun)
