"""A trial that waits at its gate beside an older one: it is not timed out for a batch that it may not take yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import tsnb
from tsnb.stream.consumer.attaching import detach_all
from tsnb.stream.this_process import this_process

pytestmark = pytest.mark.system

BATCHES = 100
LONG_S = 60.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    this_process.first_batch = this_process.gate = None
    detach_all()


@pytest.mark.parametrize("goes_on", [True, False], ids=["the older one goes on", "nobody is beside it"])
def test_a_trial_at_its_gate_is_not_timed_out(goes_on: bool) -> None:
    """The older trial waits for it once, goes on without it, and the newcomer gets its first epoch whole."""
    begun, further, at_gate, over = (threading.Event() for _ in range(4))

    def older() -> None:
        consumer = tsnb.attach("older", "s")
        while not over.is_set():
            for (number,) in consumer:
                if number == 1:
                    begun.set()
                    at_gate.wait(LONG_S)  # the other one joins this epoch
                if number == BATCHES // 2:
                    further.set()
                if over.is_set():
                    break

    def gate(_: float) -> None:
        at_gate.set()
        assert further.wait(LONG_S)

    with tsnb.serve([[i] for i in range(BATCHES)], name="s", stall_timeout_s=1.0, late_join=0.1):
        thread = threading.Thread(target=older)
        if goes_on:
            thread.start()
            assert begun.wait(LONG_S)
        else:
            further.set()
        this_process.first_batch, this_process.gate = (lambda: None), gate
        try:
            newcomer = tsnb.attach("newcomer", "s")
            assert [number for (number,) in newcomer] == list(range(BATCHES))
            assert [number for (number,) in newcomer] == list(range(BATCHES))
        finally:
            over.set()
            at_gate.set()
            newcomer.close()
            if goes_on:
                thread.join(LONG_S)
