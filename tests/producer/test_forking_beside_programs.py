"""A loader's workers are forked by a thread, while others start programs: neither holds the other up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.stream.loader import workers


class Slowly(subprocess.Popen[str]):
    """Has its pipes open for a while before the program is there, as on a busy machine."""

    open = threading.Event()

    def _execute_child(self, *arguments: Any) -> None:
        self.open.set()
        time.sleep(0.5)
        super()._execute_child(*arguments)  # type: ignore[misc]


def echoed() -> str:
    """What a program says that is started slowly."""
    with Slowly(["echo", "here"], stdout=subprocess.PIPE, text=True) as program:
        return program.communicate(timeout=20)[0]


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")
def test_a_program_that_is_started_while_workers_are_forked_is_not_waited_for_until_they_end() -> None:
    """Its output ended only when the worker did that had inherited its pipe."""
    said: list[str] = []
    Slowly.open.clear()
    thread = threading.Thread(target=lambda: said.append(echoed()))
    thread.start()
    assert Slowly.open.wait(20)
    loader = DataLoader(TensorDataset(torch.arange(4000)), 1, num_workers=1)
    with tsnb.serve(loader, name="s"):
        thread.join(30)
        assert said == ["here\n"]


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")
def test_a_program_that_begins_between_the_look_and_the_fork_is_not_held_up_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads change when they like: three streams, their workers and the first trial stood still for good."""
    said: list[str] = []
    Slowly.open.clear()
    thread = threading.Thread(target=lambda: said.append(echoed()))

    def looks() -> bool:
        if not thread.ident:
            thread.start()
            assert Slowly.open.wait(20)
        return False

    monkeypatch.setattr(workers, "_a_program_starts", looks)
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(4000)), 1, num_workers=1), name="s"):
        thread.join(30)
        assert said == ["here\n"]


def test_a_start_that_never_ends_holds_no_worker_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for a moment; then the worker starts all the same."""
    monkeypatch.setattr(workers, "START_S", 0.1)
    monkeypatch.setattr(workers, "_a_program_starts", lambda: True)
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(8)), 1, num_workers=1), name="s"):
        assert sum(1 for _ in tsnb.attach("c", "s")) == 8
