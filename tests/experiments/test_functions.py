"""Functions as trials: `tsnb.run`, `@tsnb.trial`, and running one again."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tsnb
from tsnb.errors import ExtraMissing, NotShippable, TrialFailed, TsnbError
from tsnb.experiments.cells import set_up
from tsnb.experiments.functions import TrialFunction, plan_function, run, trial
from tsnb.experiments.overview.board import launch
from tsnb.experiments.plan import TrialOptions, epochs_of
from tsnb.experiments.trial import Trial
from tsnb.kernels.cargo.capture import UndefinedNames
from tsnb.records.reading import read_runs

pytestmark = pytest.mark.system

TRAIN = """
import math
scale = 10
def loss_of(lr): return scale * lr
def train(lr, steps=3, seed=None):
    for step in range(steps):
        tsnb.log(step=step, loss=loss_of(lr) / (step + 1))
    print("trained with", lr)
    return {"lr": lr, "floor": math.floor(lr), "seed": seed}
"""


@pytest.fixture
def train(notebook: Any) -> Any:
    """Return a function of the notebook that reads its other functions, variables and modules."""
    notebook.variables["tsnb"] = tsnb
    return notebook.run(TRAIN)["train"]


def start(page: Any, fn: Any, name: str | None = None, **given: Any) -> Trial:
    """Start a function whose output goes to the page."""
    options = {k: given.pop(k) for k in ("seed", "after", "batch_size", "with_") if k in given}
    return launch(plan_function(fn, given, name=name, **options), page)


def test_a_function_runs_as_a_trial_and_gives_back_what_it_returns(train: Any, page: Any) -> None:
    """It finds what it reads in the notebook, is named by its parameters, and its numbers arrive."""
    started = start(page, train, lr=0.5, seed=7)
    assert started.name == "train-lr0.5"
    assert started.params == {"lr": 0.5}
    assert started.options == {"seed": 7}
    assert started.result(30) == {"lr": 0.5, "floor": 0, "seed": 7}, "an option that it has is passed to it"
    assert started.metrics.by_step("loss") == {0: 5.0, 1: 2.5, 2: pytest.approx(5 / 3)}
    assert "trained with 0.5" in page.text


def test_a_trial_is_recorded_with_its_commit_and_can_be_tagged_and_deleted(
    train: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    """The mark for changed files follows the start; a `Trial` stands for its own run."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init"], [*identity, "commit", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "new.py").write_text("1")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    started = start(page, train, lr=0.5)
    with pytest.raises(TsnbError, match="has not ended"):
        tsnb.records.delete(started)
    started.wait(120)
    until(lambda: tsnb.results()["git"].str.fullmatch("[0-9a-f]{10}-dirty").all())
    assert tsnb.records.tag(started, "baseline") == ["train-lr0.5-1"]
    assert list(tsnb.results(tag="baseline")["name"]) == ["train-lr0.5"]
    assert tsnb.records.delete(started) == ["train-lr0.5-1"]
    assert len(tsnb.results()) == 0 and not started.log_path.exists()


def test_run_again_with_changes(train: Any, page: Any, notebook: Any) -> None:
    """Only what is named changes; the variables are those of the first start; a made name is made again."""
    first = start(page, train, lr=0.5, steps=1)
    first.wait(120)
    notebook.run("scale = 1000\ndef loss_of(lr): raise ValueError('edited')")
    second = first.rerun(lr=0.25, seed=3)
    assert second.name == "train-lr0.25-steps1"
    assert second.result(30) == {"lr": 0.25, "floor": 0, "seed": 3}
    assert second.metrics == {"loss": 2.5}, "the notebook's later edits are not in it"
    third = second.rerun(steps=2)
    assert third.result(30)["lr"] == 0.25, "changes of changes add up"
    assert third.metrics.by_step("loss") == {0: 2.5, 1: 1.25}
    named = third.rerun(name="mine")
    same = named.rerun()
    assert same.wait(120).number == named.number + 1
    assert tsnb.trials["mine"] is same
    assert named.wait(120).state in {"done", "stopped"}
    box = notebook.run("def needs(seed, name): return seed, name")
    assert start(page, box["needs"], seed=1).rerun().result(30) == (1, "needs"), "what was passed is kept"
    with pytest.raises(TsnbError, match="is no longer available"):
        named.rerun()


def test_options_may_be_written_as_one_has_them() -> None:
    """A trial or a producer for its name, torch's devices, numpy's numbers, one word for a list of them."""
    import numpy as np
    import torch

    one = TrialOptions(
        stream=SimpleNamespace(name="p"),  # type: ignore[arg-type]
        batch_size=np.int64(4),  # type: ignore[arg-type]
        device=torch.device("cpu"),  # type: ignore[arg-type]
        seed=np.int32(3),  # type: ignore[arg-type]
        env={"A": 1},  # type: ignore[dict-item]
        after=SimpleNamespace(name="first"),  # type: ignore[arg-type]
        log_to="tensorboard, mlflow",  # type: ignore[arg-type]
    )
    plain = TrialOptions(
        "p", 4, "cpu", seed=3, env={"A": "1"}, after="first", log_to=("tensorboard", "mlflow")
    )
    assert repr(one) == repr(plain)
    for wrong in ({"threads": "2"}, {"batch_size": 1.5}, {"seed": "x"}):
        with pytest.raises(ValueError, match=r"trial 'x': .* is invalid. Pass a whole number"):
            TrialOptions(**wrong).check("x")
    with pytest.raises(
        ValueError, match=r"after=12 is invalid. Pass the name of a trial, which must be done before"
    ):
        TrialOptions(after=12).check("x")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError,
        match=r"Trial 'x': threads=\(1, 2\) is invalid, because only a planned sweep picks.*Pass one",
    ):
        TrialOptions(threads=(1, 2)).check("x")  # type: ignore[arg-type]


def test_words_of_ours_are_parameters_like_any_other(page: Any, notebook: Any) -> None:
    """`gate` and `sweep` are what tsnb tells a trial of a sweep; a function's own are left as they were given."""
    gated = notebook.run("def gated(gate, sweep='mine'): return gate, sweep")["gated"]
    first = start(page, gated, gate=0.5)
    assert first.result(30) == (0.5, "mine")
    again = first.rerun()
    assert again.result(30) == (0.5, "mine")
    assert again.rerun(gate=2).result(30) == (2, "mine")


def test_what_does_not_fit_starts_nothing(train: Any, page: Any, notebook: Any, monkeypatch: Any) -> None:
    """Wrong parameters, undefined names, bad options, and what cannot travel are told before a kernel exists."""
    box = notebook.run(
        "import threading\nlock = threading.Lock()\n"
        "def forgets(): return inner()\ndef inner(): return undefined_thing\n"
        "def sets_it():\n    global made\n    made = 1\n    return made\ndef holds(): return lock\n"
        "def yields(): yield 1\nasync def waits(): pass\nasync def both(): yield 1"
    )
    with pytest.raises(
        TypeError, match=r"train\(lr, steps=3, seed=None\): missing a required argument: 'lr'"
    ):
        run(train)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'lrr'.*Nothing was started"):
        run(train, lr=1, lrr=2)
    with pytest.raises(TypeError, match="takes a function, not a int"):
        run(3)  # type: ignore[arg-type]
    with pytest.raises(UndefinedNames, match=r"forgets\(\) reads 'undefined_thing'"):
        run(box["forgets"])
    with pytest.raises(
        NotShippable, match=r"^Trial 'holds' cannot copy its function holds: holds -> \w+ is a lock"
    ):
        run(box["holds"])
    for given, where in ((threading.Lock(), "it"), ({"of": [threading.Lock()]}, r"lr\['of'\]\[0\]")):
        with pytest.raises(
            NotShippable, match=rf"^Trial 'small' cannot copy its parameter 'lr': {where} is a lock"
        ):
            run(train, lr=given, name="small")
    for name, what in (("yields", "a generator"), ("both", "a generator"), ("waits", "an async function")):
        for called in (box[name], functools.partial(box[name])):
            with pytest.raises(
                TypeError, match=rf"^{name} is {what}.* runs none of its code.*Nothing was started"
            ):
                run(called)
    with pytest.raises(ValueError, match=r"device='banana' does not exist here\. Available: .*cpu"):
        run(train, lr=1, device="banana")
    with pytest.raises(ValueError, match="batch_size=0 is invalid"):
        run(train, lr=1, batch_size=0)
    with pytest.raises(tsnb.errors.TsnbError, match="No trial is named 'nobody'"):
        run(train, lr=1, after="nobody")
    with pytest.raises(ValueError, match="cannot wait for itself"):
        run(train, lr=1, name="a", after="a")
    with pytest.raises(ValueError, match="Did you mean 'tensorboard'"):
        run(train, lr=1, log_to=["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises((ExtraMissing, ValueError), match="wandb"):
        run(train, lr=1, log_to=["wandb"])
    assert not tsnb.trials.own
    assert start(page, box["sets_it"]).result(30) == 1, "a global that it sets itself is no undefined name"
    forgets = box["forgets"]
    box = notebook.run(
        "hidden = 5\ndef uses(): return made, eval('hid' + 'den')\ndef first():\n    sets_it()\n    return uses()"
    )
    assert start(page, box["first"], with_="hidden").result(30) == (1, 5), "nor one that another sets"
    with pytest.raises(TrialFailed, match="NameError"):
        run(forgets, check=False, wait=True)


def test_a_set_up_cell_runs_before_a_function(page: Any, notebook: Any) -> None:
    """What it makes is defined for the function; it is recorded with it."""
    box = notebook.run("width = 40\ndef grow(k): return shared() + k")
    set_up("def shared(): return width", box)
    try:
        started = start(page, box["grow"], k=2)
        assert started.result(30) == 42
        assert started.rerun(k=3).result(30) == 43
    finally:
        assert not set_up("", box)
    with pytest.raises(UndefinedNames, match="reads 'shared'"):
        run(box["grow"], k=2)


def test_a_decorated_function_starts_a_trial_when_called(
    train: Any, page: Any, notebook: Any, capfd: Any
) -> None:
    """Bare and with options; by place and by name; inside a trial it is the plain function."""
    notebook.variables["trial"] = trial
    box = notebook.run(
        "@trial\ndef double(x): return 2 * x\n"
        "@trial(seed=5, name='both')\ndef both(a, b=1, seed=0): return a + b, seed, double(a)"
    )
    double, both = box["double"], box["both"]
    assert isinstance(double, TrialFunction)
    assert double.__wrapped__(4) == 8
    assert "def double" not in repr(double)
    assert repr(both) == "<trial function both(a, b=1, seed=0)>"
    assert both(3, b=4).result(30) == (7, 5, 6)
    assert both(3, name="other", seed=6).result(30) == (4, 6, 6)
    assert {"both", "other"} <= set(tsnb.trials)
    with pytest.raises(TypeError, match="too many positional"):
        double(1, 2)
    with pytest.raises(TypeError, match="has no option 'sead'"):
        trial(sead=1)
    assert "[both] trial 'both' running" in capfd.readouterr().out


def test_a_failing_function_shows_its_own_lines(train: Any, page: Any, notebook: Any) -> None:
    """The error is the trial's; `result` raises it, and so does a wait at the start."""
    box = notebook.run("def bad(): return 1 / 0")
    with pytest.raises(TrialFailed, match="trial 'bad' failed: ZeroDivisionError"):
        start(page, box["bad"]).result(30)
    with pytest.raises(TrialFailed, match="ZeroDivisionError"):
        run(box["bad"], wait=True)


SCRIPT = """
import tsnb
from beside import offset

@tsnb.trial
def train(lr):
    tsnb.log(loss=lr)
    print("training with", lr)
    return lr + offset()

if __name__ == "__main__":
    trials = [train(lr=lr) for lr in (1, 2)]
    print("results", [trial.result(60) for trial in trials])
    print(tsnb.trials)
"""


@pytest.mark.slow
def test_functions_run_from_a_plain_script(tmp_path: Path) -> None:
    """Output on the terminal, marked; a module beside the script is found; the script's end leaves nothing."""
    (tmp_path / "beside.py").write_text("def offset(): return 10")
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "TSNB_PROJECT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[train-lr1] training with 1\n" in done.stdout
    assert "results [11, 12]" in done.stdout
    assert "train-lr2  done" in done.stdout
    records = {record.name: record for record in read_runs(tmp_path / ".tsnb")}
    assert records["train-lr1"].source.startswith("@tsnb.trial\ndef train(lr):")
    assert records["train-lr1"].origin == "script train.py"


def test_how_many_epochs_a_trial_takes_is_its_parameter() -> None:
    """Given, the function's default, or a cell's variable; anything but a whole number from 1 up says nothing."""

    def train(lr: float, epochs: int = 40) -> None: ...

    def endless(lr: float) -> None: ...

    assert epochs_of(train, {"lr": 0.1}) == 40
    assert epochs_of(train, {"epochs": 3}) == 3
    assert epochs_of(endless, {"lr": 0.1}) is None
    assert epochs_of(None, {"epochs": 7}) == 7 and epochs_of(None, {}) is None
    assert epochs_of(print, {}) is None
    for odd in (0, -1, 2.5, True, "3", None, [3], 1 << 40):
        assert epochs_of(train, {"epochs": odd}) is None


@pytest.mark.parametrize("epochs", [10**10, 10**30])
def test_a_trial_that_plans_more_epochs_than_there_will_be_trains(epochs: int) -> None:
    """It ends when it has had enough of them."""

    def train() -> int:
        for epoch in tsnb.epochs(epochs):
            for _ in tsnb.attach():
                pass
            if epoch == 2:
                break
        return int(epoch)

    with tsnb.serve([[1.0, 2.0]] * 3, name="s"):
        assert tsnb.run(train, name=f"planned-{len(str(epochs))}").wait(60).result() == 2
