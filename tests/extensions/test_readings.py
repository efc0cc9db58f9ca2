"""What observers are told of a trial that lags behind."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.telemetry.observer import pause


def test_what_is_ready_for_a_trial_that_lags_is_all_that_the_others_have_had_meanwhile() -> None:
    """Also of the passes after its own: the panel says how far behind it is, and that all of it lies ready."""
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40)), 2), name="s"):
        fast, slow = tsnb.attach("fast", "s"), tsnb.attach("slow", "s")
        stands, others = iter(slow), iter(fast)
        next(stands)
        for _ in others:
            pass
        for _ in fast:
            pass
        one = next(c for c in tsnb.streams.status("s").consumers if c.name == "slow")
        assert one.fill == 39
        fast.close()
        slow.close()


SLOW = """
import sys, tsnb
with tsnb.attach("slow", "s") as trial:
    for _ in trial: pass
    print("between", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_trial_between_two_epochs_says_how_far_behind_it_is() -> None:
    """It validates while the other takes the next epoch. The other is in front, between epochs too."""
    with (
        tsnb.serve(DataLoader(TensorDataset(torch.arange(40)), 2), name="s"),
        tsnb.attach("fast", "s") as fast,
    ):
        slow = subprocess.Popen([sys.executable, "-c", SLOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert slow.stdin and slow.stdout
        assert slow.stdout.readline() == b"between\n"
        for _ in fast:
            pass
        found = {c.name: c for c in tsnb.streams.status("s").consumers}
        slow.communicate()
    assert found["slow"].state == found["fast"].state == "between epochs"
    assert found["slow"].lag == found["slow"].fill == 20
    assert found["fast"].lag == found["fast"].fill == 0


def test_a_reading_says_for_how_long_a_trial_has_been_paused() -> None:
    """Also to an observer that comes later: it has seen nothing of its beginning."""
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40)), 2), name="s"), tsnb.attach("one", "s"):
        pause("s", "one")
        told = [tsnb.streams.status("s").consumers[0].pause_s for _ in range(2)]
        assert 0 < told[0] < told[1]
        pause("s", "one", on=False)
        assert tsnb.streams.status("s").consumers[0].pause_s == 0


@pytest.mark.slow
def test_a_reading_says_where_each_second_of_a_trial_went() -> None:
    """Those of its pauses and those before a pass that it can join, too: what is left lies between epochs."""
    loader = DataLoader(TensorDataset(torch.arange(200)), 2)
    with tsnb.serve(loader, name="s", window=2), tsnb.attach("first", "s") as first:
        ahead = iter(first)
        for _ in range(20):
            next(ahead)
        late = subprocess.Popen([sys.executable, "-c", LATE], stdout=subprocess.PIPE)
        while len(tsnb.streams.status("s").consumers) < 2:
            time.sleep(0.02)
        time.sleep(0.5)
        for _ in ahead:
            pass
        assert late.wait() == 0
        pause("s", "first")
        time.sleep(0.3)
        pause("s", "first", on=False)
        time.sleep(0.1)
        status = tsnb.streams.status("s")
        own, gone = status.consumers[0], status.ends[0]
    assert gone.name == "late" and gone.joining_s > 0.4
    assert own.paused_s >= 0.3 and own.pause_s == own.timed_out_s == 0
    for one in (own, gone):
        parts = one.computing_s, one.waiting_s, one.held_s, one.joining_s, one.paused_s, one.timed_out_s
        assert min(parts) >= 0 and sum(parts) <= one.attached_s + 1e-6
    between_s = own.attached_s - own.computing_s - own.waiting_s - own.held_s - own.joining_s - own.paused_s
    assert between_s >= 0.1


LATE = """
import tsnb
with tsnb.attach("late", "s") as trial:
    next(iter(trial))
"""


@pytest.mark.slow
def test_seconds_in_which_a_trial_was_timed_out_are_no_others() -> None:
    """They begin where it took its last batch, and end as it asks again."""
    loader = DataLoader(TensorDataset(torch.arange(40)), 2)
    with tsnb.serve(loader, name="s", window=2, stall_timeout_s=0.5), tsnb.attach("still", "s") as still:
        batches = iter(still)
        next(batches)
        other = subprocess.Popen([sys.executable, "-c", OTHER])
        assert other.wait() == 0
        told = next(c for c in tsnb.streams.status("s").consumers if c.name == "still")
    assert told.state == "timed out" and told.timed_out_s >= 0.5
    assert (
        told.computing_s + told.waiting_s + told.held_s + told.joining_s
        < told.attached_s - told.timed_out_s + 1e-6
    )


OTHER = """
import tsnb
with tsnb.attach("other", "s") as trial:
    for _ in trial: pass
"""
