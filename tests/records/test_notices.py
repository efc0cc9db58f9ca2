"""`tsnb.records.notify`: a function of the user's own is called at each end."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import tsnb
from tsnb.records import notices
from tsnb.records.notices import Notice


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """Afterwards nobody is called."""
    yield
    tsnb.records.notify(None)


def test_each_end_is_told_in_its_order_away_from_the_thread_that_tells() -> None:
    """Whoever tells does not wait; what is told last may rely on what came before."""
    told: list[str] = []
    go_on, over = threading.Event(), threading.Event()

    def slow(end: Notice) -> None:
        go_on.wait(30)
        told.append(f"{threading.current_thread().name}: {end}")
        if end.failed:
            over.set()

    tsnb.records.notify(slow)
    notices.tell(Notice("cnn", "done", took_s=12.34, metrics={"loss": 0.03125, "accuracy": 0.97}))
    notices.tell(Notice("mlp", "failed", "ValueError: broken image", 3.0, {"loss": 2.0}))
    assert told == []
    go_on.set()
    assert over.wait(30)
    assert told == [
        "tsnb-notify: trial cnn done after 12.3 s: loss 0.03125, accuracy 0.97",
        "tsnb-notify: trial mlp failed after 3.0 s: ValueError: broken image",
    ]


def test_the_last_one_given_is_called_and_none_ends_it() -> None:
    """A cell that is run again does not double the calls."""
    first: list[Notice] = []
    second: list[Notice] = []
    tsnb.records.notify(first.append)
    tsnb.records.notify(second.append)
    notices.tell(Notice("a", "done"))
    notices._waiting.join()
    tsnb.records.notify(None)
    notices.tell(Notice("b", "done"))
    notices._waiting.join()
    assert (first, [end.name for end in second]) == ([], ["a"])


def test_one_that_raises_is_reported_once_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in it neither ends a trial nor fills the log."""
    calls: list[str] = []

    def wrong(end: Notice) -> None:
        calls.append(end.name)
        raise KeyError(end.name)

    tsnb.records.notify(wrong)
    with caplog.at_level(logging.ERROR, "tsnb"):
        for name in ("a", "b"):
            notices.tell(Notice(name, "stopped"))
        notices._waiting.join()
    assert calls == ["a", "b"]
    assert len(caplog.records) == 1


def test_what_is_no_function_is_refused() -> None:
    """The message says what it takes."""
    with pytest.raises(TypeError, match="takes a function of one argument, or None, not a str"):
        tsnb.records.notify("cnn")  # type: ignore[arg-type]


def test_a_script_that_ends_still_tells() -> None:
    """The last trial's end is told though nothing else is left to do."""
    script = (
        "import time, tsnb\n"
        "from tsnb.records import notices\n"
        "tsnb.records.notify(lambda end: (time.sleep(0.2), print(end, flush=True)))\n"
        "notices.tell(notices.Notice('cnn', 'done', took_s=1.0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "trial cnn done after 1.0 s\n"
