"""Trials that are profiled for a plan: their costs are read, and no screen or report has them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.planning.profiling import profile_name
from tsnb.telemetry.following import look
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system


@pytest.mark.slow
def test_a_trial_that_is_profiled_is_on_no_screen_while_it_runs_and_after() -> None:
    """Nothing of it is kept: no row, no end, no mark; while it takes batches the sentence says whose they are."""
    rows = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    with tsnb.serve(rows, name="quiet"):
        assert len(tsnb.report("quiet").story.trials) == 0  # watched from here on
        mine = profile_name("cnn")  # a new one at each call
        with tsnb.attach(mine, "quiet") as profiled:
            list(itertools.islice(profiled, 3))
            reading = status("quiet")
            assert [each.name for each in reading.consumers] == [mine]
            assert reading.profiled == 1
            view = look("quiet")[1]
            assert not view.shown(9)
            assert "1 trial is profiled for a plan" in view.say.text
        with tsnb.attach("cnn", "quiet") as consumer:
            list(itertools.islice(consumer, 3))
            assert [row.name for row in look("quiet")[1].shown(9)] == ["cnn"]
        told = str(tsnb.report("quiet"))
    assert "cnn" in told and mine not in told
