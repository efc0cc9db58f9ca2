"""A loader that gives no batch for long, while it is measured: that is said, with what it is doing."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.stalling.silence import came, told_when_silent, waits

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is long here."""
    monkeypatch.setattr("tsnb.stalling.silence.SILENT_S", 1.0)


class Stuck(Dataset[torch.Tensor]):
    """Its first sample takes long, in whatever process.

    Args:
        begun: A file that is there from then on.
    """

    def __init__(self, begun: Path) -> None:
        self._begun = begun

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self._begun.exists():
            self._begun.touch()
            time.sleep(2.5)
        return torch.tensor(index)


class Lines:
    """No DataLoader: it is gone through in this process."""

    def __init__(self) -> None:
        self.begun = False

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(40):
            if not self.begun:
                self.begun = True
                time.sleep(2.5)
            yield torch.arange(4)


@pytest.mark.slow
def test_workers_that_give_nothing_are_named_once(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What they do is in other processes; it may be said again after minutes, not for each measurement."""
    tsnb.stalls(DataLoader(Stuck(tmp_path / "begun"), 4, num_workers=2), seconds=0.1)
    said = capfd.readouterr().out
    words = r"\[stalls\] The loader has returned no batch for \d s: its 2 workers have not finished a batch\. Ctrl-C"
    assert re.match(words, said) and said.count("has returned no batch") == 1, said


@pytest.mark.slow
def test_code_in_this_process_is_named_by_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    """It runs in the thread that serves the loader, while the one that measures waits for that."""
    tsnb.stalls(Lines(), seconds=0.1)
    said = capfd.readouterr().out
    assert re.search(r"for \d s: it is in __iter__ \(test_silence\.py, line \d+\)\. Ctrl-C", said), said


@pytest.mark.slow
def test_nothing_is_said_of_a_loader_that_gives_batches(capfd: pytest.CaptureFixture[str]) -> None:
    """Nor while a step takes long; and the thread that looks ends."""

    def step(_: Any) -> None:
        time.sleep(0.05)

    tsnb.stalls(DataLoader(torch.arange(40), 4), step, seconds=0.1)  # type: ignore[arg-type]
    assert "no batch" not in capfd.readouterr().out
    assert not [each for each in threading.enumerate() if each.name == "tsnb-silence"]


def test_it_is_said_again_after_a_while(monkeypatch: pytest.MonkeyPatch, printed: Callable[[], str]) -> None:
    """Of one wait, and not of another thread's."""
    monkeypatch.setattr("tsnb.stalling.silence.AGAIN_S", 0.6)
    deadline_s = time.monotonic() + 60
    with told_when_silent(1):
        waits()
        while printed().count("its worker has not finished a batch") < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        came()
    assert printed().count("has returned no batch") >= 2


@pytest.mark.slow
def test_a_plan_says_it_too(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its loader is measured first; a program that reads JSON has it on stderr, as all that is said meanwhile."""

    def train(epochs: int = 20) -> None:
        import tsnb

        for _ in range(epochs):
            for _ in tsnb.attach():
                pass

    tsnb.plan(train, loader=DataLoader(Stuck(tmp_path / "begun"), 4, num_workers=1), seconds=0.1)
    said = capfd.readouterr().out
    assert said.index("planning 1 trial: ") < said.index("The loader has returned no batch")
