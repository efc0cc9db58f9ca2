"""What is left of a producer in its own process once it has stopped."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.stream.producer.feeder import Feeder
from tsnb.stream.producer.server import Server


@pytest.mark.system
@pytest.mark.parametrize("asked_by", ["the owner", "somebody else"])
def test_no_thread_outlives_the_stop(asked_by: str) -> None:
    """A thread that still held the dataset while the interpreter ends would abort the process inside torch."""
    before = set(threading.enumerate())
    producer = tsnb.serve(DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4), name="short")
    assert set(threading.enumerate()) - before
    if asked_by == "the owner":
        producer.stop()
    else:
        tsnb.streams.stop("short")
        assert producer.wait(120)
    assert not set(threading.enumerate()) - before


@pytest.mark.system
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("part", [Feeder, Server])
def test_an_interrupt_while_it_begins_leaves_no_stream(
    part: type[Any], begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its name is taken for as long as the process lives, and nobody answers there."""
    before, start = set(threading.enumerate()), part.start

    def interrupted(thread: threading.Thread) -> None:
        if begun:
            start(thread)
        raise KeyboardInterrupt

    loader = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4)
    with monkeypatch.context() as patched:
        patched.setattr(part, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tsnb.serve(loader, name="cut-short")
    assert set(threading.enumerate()) <= before
    with tsnb.serve(loader, name="cut-short") as producer:  # the name is free
        assert producer.status().name == "cut-short"


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_batches_stay_valid_though_the_serving_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers are gone for it then, and what they hold is still theirs."""
    loader = DataLoader(TensorDataset(torch.ones(8, 2000)), batch_size=4)
    with tsnb.serve(loader, name="failing") as producer, tsnb.attach("c", "failing") as consumer:
        (batch,) = next(iter(consumer))
        stop = producer.core.stop

        def stop_late() -> None:
            producer._server.join(60)
            stop()

        monkeypatch.setattr(producer.core, "stop", stop_late)
        monkeypatch.setattr(producer._server, "_on_time", lambda: 1 // 0)  # the thread ends with an error
        producer._server.wake()
        assert producer.wait(60)
        assert torch.equal(batch, torch.ones(4, 2000))
