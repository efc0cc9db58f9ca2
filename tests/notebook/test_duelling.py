"""`%%trial --against` in a real IPython: a cell is compared with the code of a trial, over seeds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from IPython.core.error import UsageError
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.promises import HANG_S
from tsnb.experiments import trials

CELL = """
import torch, tsnb
start = float(torch.rand(()))
for (x,) in tsnb.attach():
    start += float(x.mean())
tsnb.log(acc=start + gain * {factor})
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_cell_is_compared_with_the_code_of_a_trial(shell: Any) -> None:
    """With the variables that each had, from seeds that neither has chosen; the duel is the cell's result."""
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40.0)), 4, shuffle=True), name="numbers"):
        shell.run_cell("gain = 1.0").raise_error()
        shell.run_cell(f"%%trial old --seed 3 --wait\n{CELL.format(factor=0)}").raise_error()
        line = "%%trial new --against old --metric acc --seeds 8 --wait"
        found = shell.run_cell(f"{line}\n{CELL.format(factor=1)}")
        found.raise_error()
        verdict = found.result.verdict
        assert (verdict.word, verdict.effect) == ("better", pytest.approx(1.0)), repr(found.result)
        assert 3 not in {block.seed for block in verdict.blocks}
        assert "with the same batches for both arms" in verdict.about, "there are no first weights"
        assert found.result.name == "new-against-old" and found.result.wait(HANG_S).over
    trials.clear()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%trial new --against old", "Add --metric"),
        ("%%trial new --metric acc", "--metric is for a duel. Add --against OTHER"),
        ("%%trial new --against nobody --metric acc", "nobody"),
        ("%%trial new --against old --metric acc --error 2", "--error"),
    ],
)
def test_what_cannot_be_compared_is_refused(shell: Any, line: str, said: str) -> None:
    """In one line, before anything starts."""
    with pytest.raises((UsageError, SystemExit), match=said):
        shell.run_cell(f"{line}\npass").raise_error()
    assert not list(trials)
