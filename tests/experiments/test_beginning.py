"""The moment before a trial's code: what IPython's events do with an interrupt, and what a trial does."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tsnb.experiments.in_kernel import steps


class Ready:
    """A trial that is about to begin."""

    ended = False
    settings = {"detach": False}  # noqa: RUF012
    versions: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def shell() -> Any:
    """Return a shell of its own."""
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_an_interrupt_as_the_code_begins_ends_it(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython prints an interrupt that meets its events, and runs the code: the trial would train to its end."""
    monkeypatch.setattr(steps, "_trials", [Ready()])
    monkeypatch.setattr(steps, "_cells", [])
    monkeypatch.setattr(steps, "tell", lambda _news: signal.raise_signal(signal.SIGINT))
    shell.events.register("pre_run_cell", steps._before_code)
    ended = threading.Event()  # else an interrupt that came too late would end the test run
    shell.user_ns["ended"] = ended
    result = shell.run_cell("ended.wait(30)\nran = True")
    assert isinstance(result.error_in_exec or result.error_before_exec, KeyboardInterrupt)
    assert "ran" not in shell.user_ns
