"""A real study over real kernels: what it is told, who is pruned, and how it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import optuna
import pytest
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.trial import TrialState

import tsnb
from tsnb.errors import TrialFailed
from tsnb.experiments import trials
from tsnb.integrations.optuna import optimize

pytestmark = pytest.mark.system

optuna.logging.set_verbosity(optuna.logging.WARNING)

SOURCE = """
def train(lr, kind="good", steps=80):
    import time, tsnb
    if kind == "bad":
        raise ValueError("no such kind")
    for step in range(steps if kind == "good" else 0):
        time.sleep(0.02)
        tsnb.log(loss=lr + 1 / (1 + step), step=step + 1)
    return lr
"""


@pytest.fixture
def train() -> Any:
    """Return a function that travels by value."""
    import __main__

    exec(compile(SOURCE, "<cell>", "exec"), vars(__main__))
    return vars(__main__)["train"]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    trials.clear()  # an earlier test's, of any file
    yield
    trials.clear()


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=TPESampler(seed=3, n_startup_trials=3), **options)


@pytest.mark.slow
def test_a_study_learns_from_trials_that_run_side_by_side(train: Callable[..., float]) -> None:
    """Parameters are the study's, results what was logged last, and the worse of those side by side are pruned."""
    asked = study(pruner=SuccessiveHalvingPruner(min_resource=10, reduction_factor=2))
    space = {"lr": tsnb.search.loguniform(1e-3, 1.0)}
    sweep = optimize(asked, train, metric="loss", n_trials=6, space=space, at_once=3, prune_every=10)
    told = asked.get_trials()
    assert len(told) == len(sweep) == 6 and sweep.over
    assert {trial.state for trial in told} == {TrialState.COMPLETE, TrialState.PRUNED}
    for trial in told:
        mine = sweep[trial.user_attrs["tsnb_trial"]]
        assert mine.params["lr"] == trial.params["lr"]
        pruned = trial.state == TrialState.PRUNED
        assert mine.state == ("pruned" if pruned else "done") and (mine.name in sweep.stopped_early) == pruned
        if not pruned:
            assert trial.value == pytest.approx(trial.params["lr"] + 1 / 80)
        assert trial.intermediate_values[10] == pytest.approx(trial.params["lr"] + 1 / 10)
    assert min(told[:3], key=lambda trial: trial.params["lr"]).state == TrialState.COMPLETE, (
        "the best of three stays"
    )
    assert sweep.best().result() == pytest.approx(asked.best_trial.params["lr"])
    assert sum(trial.pid is not None for trial in sweep.values()) <= 1, "the others' kernels have ended"


def test_failures_are_told_as_such_and_do_not_end_the_study(train: Any) -> None:
    """One that raises, and one that logs no number; Optuna's own distributions and plain lists are a space too."""
    asked = study()
    space = {
        "lr": optuna.distributions.FloatDistribution(0.1, 0.2),
        "kind": ["good", "bad", "silent"],
    }
    for kind in ("bad", "silent", "good"):
        asked.enqueue_trial({"lr": 0.15, "kind": kind})
    optimize(asked, train, metric="loss", n_trials=3, space=space, steps=3)
    assert [trial.state for trial in asked.get_trials()] == [
        TrialState.FAIL,
        TrialState.FAIL,
        TrialState.COMPLETE,
    ]
    with pytest.raises(TrialFailed, match="no such kind"):
        optimize(study(), train, metric="loss", n_trials=1, space={"lr": [0.1]}, kind="bad")


def test_an_interrupt_stops_the_trials_and_is_told(train: Any) -> None:
    """The stop button ends `optimize`; no trial goes on, and none stays running in the study."""
    asked = study()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(*_: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)

    def when_logged() -> None:
        while not any(trial.metrics for trial in trials.values()):
            threading.Event().wait(0.05)
        interrupt()

    threading.Thread(target=when_logged, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        optimize(asked, train, metric="loss", n_trials=4, space={"lr": [0.1, 0.2]}, at_once=2, steps=10_000)
    assert {trial.state for trial in trials.values()} == {"stopped"}
    assert [trial.state for trial in asked.get_trials()] == [TrialState.FAIL] * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_trials": 0}, "n_trials=0"),
        ({"prune_every": 0}, "prune_every=0"),
        ({"space": {"lr": 0.1}}, "cannot be drawn from"),
        ({"space": {"lr": []}}, "cannot be drawn from"),
    ],
)
def test_what_cannot_be_meant_asks_the_study_nothing(train: Any, given: dict[str, Any], said: str) -> None:
    """In the user's words, before any trial."""
    asked = study()
    with pytest.raises(ValueError, match=said):
        optimize(asked, train, **{"metric": "loss", "n_trials": 1, "space": {"lr": [1]}, **given})
    with pytest.raises(ValueError, match="one direction"):
        optimize(optuna.create_study(directions=["minimize"] * 2), train, metric="a", n_trials=1, space={})
    with pytest.raises(ValueError, match="The study minimizes, but a high 'val_acc' is good"):
        optimize(asked, train, metric="val_acc", n_trials=1, space={"lr": [1]})
    with pytest.raises(TypeError, match="speed"):
        optimize(asked, train, metric="loss", n_trials=1, space={"lr": [1], "speed": [1]})
    assert asked.get_trials() == [] and not trials
