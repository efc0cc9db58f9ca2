"""What is left to a planned sweep: real trials that are profiled with each value, and started with what was chosen."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tests.promises import HANG_S
from tests.terminal import in_terminal
from tsnb.planners import queueing

SOURCE = """
def train(width, limit=None, device=None, epochs=2):
    import os
    import time
    import tsnb
    taken = 0
    if width > 4 and limit is None:
        os.kill(os.getpid(), 9) if width > 8 else [][0]
    for _ in range(epochs):
        for (labels,) in tsnb.attach():
            taken += len(labels)
            time.sleep(0.001 if limit is None else 0.003)  # clearly slower: of equals a busy machine chooses
    tsnb.log(taken=taken)
    return taken, limit, device, os.environ.get("CUDA_VISIBLE_DEVICES")
"""


def make_train() -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, made)
    return made["train"]


@pytest.mark.slow
@pytest.mark.system
def test_a_trial_that_dies_or_fails_with_what_is_preferred_is_run_with_the_next_value(
    numbers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its parameter, its records and the words have what it got; the one that runs as it is keeps the first."""
    choose = {"limit": [None, "2GiB"]}
    sweep = tsnb.sweep(make_train(), grid={"width": [4, 8, 16]}, plan=True, choose=choose, name="t")
    sweep.wait(HANG_S)
    assert {name: trial.result()[:2] for name, trial in sweep.items()} == {
        "t-width4": (800, None),
        "t-width8": (800, "2GiB"),
        "t-width16": (800, "2GiB"),
    }
    assert sweep["t-width16"].params == {"width": 16, "limit": "2GiB"}
    kept = {row["name"]: row["limit"] for row in tsnb.results("t").to_dict("records")}
    assert kept["t-width16"] == "2GiB" and kept["t-width4"] != "2GiB"
    said = capsys.readouterr().out
    assert "profiling 3 trials, each with limit=None and with limit=2GiB for the plan" in said
    assert "t-width8 is not run with limit=None: it failed while it was profiled" in said
    assert "t-width16 is not run with limit=None: its process died while it was measured" in said
    again = sweep["t-width16"].rerun(width=4)
    assert again.wait(HANG_S).result()[:2] == (800, "2GiB")


FRAGILE = """
def train(fragile):
    import os
    import tsnb
    for _ in tsnb.attach():
        others = [each for each in tsnb.streams.status("numbers").consumers if each.state != "gone"]
        if fragile and len(others) > 1:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_trial_that_dies_beside_others_is_profiled_again_alone(
    numbers: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have killed it for the memory of another: by itself it is seen, and nothing is assumed of it."""
    monkeypatch.setattr(
        queueing, "LEAD", -math.inf
    )  # nobody is started early, and waits beside one that trains
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(FRAGILE, made)
    sweep = tsnb.sweep(made["train"], grid={"fragile": [0, 1, 2]}, plan=True, at_once=1, name="t")
    sweep.wait(HANG_S)
    assert {trial.state for trial in sweep.values()} == {"done"}
    said = capsys.readouterr().out
    assert "is assumed to cost" not in said and "died" not in said


@pytest.mark.slow
@pytest.mark.system
def test_each_trial_gets_one_of_the_devices(numbers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In its process, in the function's argument of that name, in its options, and in the plan's words."""
    train = make_train()
    sweep = tsnb.sweep(train, grid={"width": [3, 4]}, plan=True, device=("cpu",), name="t").wait(HANG_S)
    assert {trial.result() for trial in sweep.values()} == {(800, None, "cpu", "")}
    assert {trial.options["device"] for trial in sweep.values()} == {"cpu"}
    assert "; device=cpu each" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match=r"device=\('cpu',\) is invalid, because only a plan picks from several devices"
    ):
        tsnb.sweep(train, grid={"width": [3, 4]}, device=("cpu",))
    with pytest.raises(ValueError, match="device is a sweep parameter"):
        tsnb.sweep(train, grid={"device": ["cpu"]}, width=3, device=("cpu",), plan=True)
    with pytest.raises(ValueError, match="only a planned sweep picks from several devices"):
        tsnb.run(train, width=3, device=("cpu", "cuda:0"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="limits"):
        tsnb.sweep(train, grid={"width": [3]}, plan=True, choose={"limits": [None, 1]})


@pytest.mark.slow
@pytest.mark.system
def test_the_command_line_leaves_values_and_devices_to_the_plan(numbers: Any, tmp_path: Path) -> None:
    """`tsnb sweep --plan --device cpu, --choose limit=None,2GiB`; without a plan it says what to do."""
    (tmp_path / "chosen.py").write_text(SOURCE)

    given = "--grid width=4,8 --device cpu, --choose limit=None,2GiB --name p --json"
    line = f"sweep chosen:train --stream {numbers.name} {given}"
    done = in_terminal(tmp_path, f"{line} --plan")
    _, *ends = [json.loads(row) for row in done.stdout.splitlines()]
    assert {end["trial"]: end["state"] for end in ends} == {"p-width4": "done", "p-width8": "done"}, (
        done.stderr
    )
    assert "p-width8 is not run with limit=None" in done.stderr and "device=cpu each" in done.stderr
    refused = in_terminal(tmp_path, line)
    assert refused.returncode == 1 and "Add plan=True (--plan)" in refused.stderr
