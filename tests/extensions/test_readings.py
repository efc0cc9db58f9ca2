"""What observers are told of a trial that lags behind."""

from __future__ import annotations

import subprocess
import sys

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
        told = [tsnb.streams.status("s").consumers[0].paused_s for _ in range(2)]
        assert 0 < told[0] < told[1]
        pause("s", "one", on=False)
        assert tsnb.streams.status("s").consumers[0].paused_s == 0
