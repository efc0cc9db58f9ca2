"""`%%sweep --grid` in a real IPython: many trials of one cell, and mistakes told in one line."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.promises import HANG_S
from tsnb.experiments import trials
from tsnb.experiments.trial import ENDED
from tsnb.notebook.grammar import SWEEP, options_of
from tsnb.sweeps.spaces import loguniform


def run(shell: Any, cell: str) -> None:
    """Run a cell, and raise what it raised."""
    shell.run_cell(cell).raise_error()


@pytest.mark.system
def test_one_cell_runs_as_many_trials_with_parameters_of_their_own(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parameters are the cell's variables and part of the names, before a notebook's variable of the same name."""
    run(shell, "lr, scale = 'the notebook has one too', 10")
    line = '%%sweep "net-{lr}-{seed}" --grid lr=1,2 --grid seed=7,8 --threads 2 --at-once 3 --wait'
    run(shell, f"{line}\nproduct = lr * scale + seed\nprint('lr is', lr)")
    assert list(trials) == ["net-1-7", "net-1-8", "net-2-7", "net-2-8"]
    assert [trial["product"] for trial in trials.values()] == [17, 18, 27, 28]
    assert [trial.options["seed"] for trial in trials.values()] == [7, 8, 7, 8]
    assert trials["net-2-7"].params == {"lr": 2} and trials["net-2-7"].options["threads"] == 2
    said = capsys.readouterr().out
    assert "[net-1-8] lr is 1" in said and "[net-2-8] lr is 2" in said


@pytest.mark.slow
@pytest.mark.system
def test_a_cell_s_trials_are_planned_and_only_those_that_are_done_in_time_start(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--plan --deadline --threads` on the cell's line: the sweep is its result, and says what it did not start."""
    late = (datetime.now().astimezone() + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
    cell = "import tsnb\ntaken = 0\nfor _ in range(epochs):\n    for (x,) in tsnb.attach():\n        taken += len(x)"
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(400.0)), 4), name="planned"):
        shell.run_cell(f"%%sweep p --grid epochs=3,4 --threads 1,2\n{cell}")
        assert "only a plan picks from several numbers. Add plan=True (--plan)" in "".join(
            capsys.readouterr()
        )
        line = f"%%sweep p --grid epochs=3,10000000 --plan --threads 1,2 --deadline '{late}'"
        found = shell.run_cell(f"{line}\n{cell}")
        found.raise_error()
        sweep = found.result.wait(HANG_S)
        assert {name: trial["taken"] for name, trial in sweep.items()} == {"p-epochs3": 1200}
        assert list(sweep.not_started) == ["p-epochs10000000"]
        assert sweep["p-epochs3"].options["threads"] in {1, 2}
        said = capsys.readouterr().out
        assert "not started, because too late for" in said and "each with 1 torch thread and with 2" in said
        assert [bar.name for bar in tsnb.plot("plan").data] == ["planned", "actual"]
        run(shell, "%trials")


@pytest.mark.slow
@pytest.mark.system
def test_a_cell_s_plan_chooses_a_value_and_a_device(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`--choose` and `--device` on the cell's line: a variable that no trial differs by, and where each of them is.

    A limit makes a step longer, so that which value is better does not lie within what measuring is off by.
    """
    cell = (
        "import tsnb, os, time\nif wide and limit is None: raise MemoryError('too wide')\n"
        "got = limit, os.environ['CUDA_VISIBLE_DEVICES']\n"
        "for (x,) in tsnb.attach():\n    time.sleep(0.02 if limit else 0.001)"
    )
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(400.0)), 4), name="chosen"):
        shell.run_cell(f"%%sweep c --grid wide=0,1 --choose limit=None,'2GiB'\n{cell}")
        assert "only a plan picks from several values. Add plan=True (--plan)" in "".join(capsys.readouterr())
        shell.run_cell(f"%%sweep c --grid wide=0,1 --plan --choose limit=None,1 --choose other=1,2\n{cell}")
        assert "The cell reads no variable 'other'" in "".join(capsys.readouterr())
        line = "%%sweep c --grid wide=0,1 --plan --device cpu, --choose limit=None,'2GiB'"
        found = shell.run_cell(f"{line}\n{cell}")
        found.raise_error()
        sweep = found.result.wait(HANG_S)
        assert {name: trial["got"] for name, trial in sweep.items()} == {
            "c-wide0": (None, ""),
            "c-wide1": ("2GiB", ""),
        }
        assert {trial.options["device"] for trial in sweep.values()} == {"cpu"}
        said = capsys.readouterr().out
        assert "c-wide1 is not run with limit=None: it failed while it was profiled" in said
        assert (
            "; limit=None, c-wide1 2GiB; device=cpu each" in said or "; limit=2GiB, c-wide0 None" in said
        ), said


@pytest.mark.slow
@pytest.mark.system
def test_a_cell_s_trials_take_turns(shell: Any) -> None:
    """`--rotate` on the line of the cell: all are started, and each gets every sample once an epoch."""
    cell = "import tsnb\nmine = a\ntaken = [sorted(i for (x,) in tsnb.attach() for i in x.tolist()) for _ in range(2)]"
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40)), 4, shuffle=True), name="turned"):
        found = shell.run_cell(f"%%sweep r --grid a=1,2,3 --at-once 1 --rotate 2\n{cell}")
        found.raise_error()
        assert len(found.result) == 3, "all of them live, one trains"
        sweep = found.result.wait(HANG_S)
        assert [trial["taken"] for trial in sweep.values()] == 3 * [2 * [list(range(40))]]


@pytest.mark.system
def test_stopping_all_trials_starts_no_others(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that wait for a place are sent away first. A sweep is its cell's result, and is stopped by its name too."""
    cell = "import time\nprint('begun', a)\ntime.sleep(100)"
    for command in ("%trials stop", "%trials stop slow", "%trials clear"):
        sweep = shell.run_cell(f"%%sweep slow --grid a=1,2,3 --at-once 1\n{cell}").result
        run(shell, command)
        assert sweep.over and len(sweep) == 1 and sweep["slow-a1"].state == "stopped"
        assert "1 stopped, 2 not started" in repr(sweep)
    run(shell, "%trials wait slow")
    with pytest.raises(UsageError, match=r"No trial is named 'slower'"):
        run(shell, "%trials stop slower")


@pytest.mark.system
def test_several_names_are_stopped_together_and_a_sweep_is_named_by_what_stands_before_its_braces(
    shell: Any,
) -> None:
    """One name that is not there, and nothing is done: what is meant by it is looked for among the sweeps, too."""
    # no other test has a trial of that name, ended ones included: %trials would find it
    sleeping = "import time\nprint('begun')\ntime.sleep(100)"
    began = shell.run_cell(
        f'%%sweep "vgg-lr{{lr}}-wd{{wd}}" --grid lr=1,2 --grid wd=3 --no-check\n{sleeping}'
    )
    began.raise_error()
    sweep = began.result
    for name in ("a", "b", "c"):
        run(shell, f"%%trial {name}\n{sleeping}")
    for command in ("stop", "wait", "pause", "resume", "interrupt"):
        with pytest.raises(UsageError, match=r"No trial is named 'vgg'\..* Sweeps here: vgg-lr$"):
            run(shell, f"%trials {command} a vgg")
    assert [trials[name].state in ENDED for name in ("a", "b", "c")] == [False, False, False]
    run(shell, "%trials stop a vgg-lr b")
    assert sweep.over and [trials[name].state for name in ("a", "b")] == ["stopped", "stopped"]
    while "begun" not in trials["c"].logs():
        time.sleep(0.02)
    run(shell, "%trials interrupt c c")
    run(shell, "%trials wait c vgg-lr")
    assert trials["c"].state == "interrupted"


def test_the_line_is_read_as_it_is_written() -> None:
    """Values, distributions and the rule of halving."""
    grid = "x --grid a=1,2 --grid b=u,v --space lr=loguniform(1e-4,1e-1) --n 3"
    given = SWEEP.read(f"{grid} --halving acc --every 50 --keep 25% --mode max".split())
    assert dict(given.grid) == {"a": [1, 2], "b": ["u", "v"]}
    assert dict(given.space) == {"lr": loguniform(1e-4, 1e-1)}
    assert (given.n, given.halving, given.every, given.keep, given.mode) == (3, "acc", 50, 0.25, "max")
    assert {"--grid", "--space", "--at-once", "--halving"} <= set(options_of(SWEEP)), (
        "the Tab key offers them"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x --grid lr", "Write the parameter's name"),
        ("x --grid lr=0.1 --space m=normal(0,1) --n 2", "Write m=uniform"),
        ("x --space lr=uniform(0,1)", "Pass the number of trials"),
        ("x --grid lr=1 --n 2", "n=2 needs space"),
        ("x --at-once 2", "A sweep needs parameters: --grid"),
        ("x --halving loss", "A sweep needs parameters"),
        ("x --grid lr=1,2 --keep 50%", "--keep needs --halving METRIC"),
        ("x --grid lr=1,2 --every 9", "--every needs --halving METRIC or --population METRIC"),
        ("x --grid lr=1,2 --race loss --halving loss", "--halving and --race exclude each other"),
        (
            "x --grid lr=1,2 --race loss --keep 50%",
            "--keep does not work with --race, which takes --error, --mode",
        ),
        (
            "x --grid lr=1,2 --population loss",
            "--grid does not work with --population, because its values change",
        ),
        ("x --space lr=uniform(0,1) --population loss --at-once 2", "Set their number with --n"),
        ("x --population loss", "A sweep needs parameters"),
        (
            "x --space lr=uniform(0,1) --population gain",
            "tsnb cannot tell whether a high or a low 'gain' is better",
        ),
        (
            "x --space lr=uniform(0,1) --space wd=uniform(0,1) --population loss",
            "The cell reads no variable 'wd'",
        ),
        ("x --grid lr=1,2 --halving loss --keep 0%", "keep=0.0 is invalid. Pass a share"),
        ("x-{wd} --grid lr=1,2", "{wd} is not a parameter of this sweep (lr)"),
        ("x --grid lr=1,2 --gird wd=1", "Did you mean '--grid'?"),
    ],
)
def test_a_line_that_makes_no_sweep_starts_nothing(
    shell: Any, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is answered in one message that says what to write."""
    with pytest.raises(UsageError) as caught:
        run(shell, f"%%sweep {line}\nprint(lr)")
    assert said in str(caught.value)
    assert not trials


@pytest.mark.system
@pytest.mark.slow
def test_a_cell_runs_as_a_population(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its values are variables that it makes live; the worst of its trials goes on as a clone of the best."""
    line = "--space lr=loguniform(1e-3,1) --n 3 --population gain --every 40 --mode max --seed 3"
    cell = (
        "import tsnb\n"
        "weight, lr = 0.0, tsnb.live('lr', lr, bounds=(0.0, 1.0))\n"
        "while True:\n"
        "    for batch in tsnb.attach():\n"
        "        weight += float(lr)\n"
        "        tsnb.log(gain=weight)"
    )
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(400)), 8), name="numbers", seed=0):
        bred = shell.run_cell(f"%%sweep bred {line}\n{cell}").result
        deadline = time.monotonic() + HANG_S
        while not any(trial.parent for trial in bred.values()):
            assert time.monotonic() < deadline, capsys.readouterr().out
            time.sleep(0.02)
        run(shell, "%trials stop bred")
    clone = next(trial for trial in bred.values() if trial.parent is not None)
    assert list(bred)[:4] == ["bred-1", "bred-2", "bred-3", "bred-4"] and clone.name == "bred-4"
    assert clone.parent is not None and clone.parent.name in list(bred)[:3]
    assert clone.changes[-1].name == "lr" and 0.0 < clone.changes[-1].value <= 1.0


def test_a_trial_that_is_given_parameters_is_told_of_the_sweep(shell: Any) -> None:
    """One cell magic is for one trial, the other for many."""
    with pytest.raises(UsageError, match=r"--grid is for many trials of one cell\. Write %%sweep instead of"):
        run(shell, "%%trial x --grid lr=1,2\nprint(lr)")
    assert not trials


def test_a_name_that_nobody_defines_is_told_once_for_all(shell: Any) -> None:
    """Parameters count as defined; what else the cell reads must be."""
    with pytest.raises(UsageError, match="'width' is not defined"):
        run(shell, "%%sweep x --grid lr=1,2\nprint(lr, width)")
    assert not trials
