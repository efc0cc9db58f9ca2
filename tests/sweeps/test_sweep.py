"""Sweeps in real kernels: one start for all, the worse stopped early, and a clean end whatever happens."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.leftovers import descendants
from tests.waiting import wait_until as until
from tsnb.conducting import conductor
from tsnb.errors import NotShippable, TsnbError
from tsnb.experiments import trials
from tsnb.experiments.overview.board import NoSuchTrial
from tsnb.experiments.trial import ENDED, NoSuchVariable
from tsnb.kernels import gate as gate_module
from tsnb.kernels.hub import the_hub
from tsnb.kernels.output.outlets import CellOutlet
from tsnb.notebook.runs import steer_shown
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.planners import queueing
from tsnb.records.run import Run
from tsnb.records.scores import known_direction
from tsnb.reports.story import story
from tsnb.show.view_text import as_text
from tsnb.sweeps import sweep as sweep_module
from tsnb.sweeps.settled import CellCode
from tsnb.sweeps.space_grammar import read_grid
from tsnb.sweeps.starting import swept
from tsnb.telemetry.forecast.eta import NO_ETA
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import OutcomeReading
from tsnb.telemetry.shown.outcome import best_of
from tsnb.telemetry.watching import watch

pytestmark = pytest.mark.system

LIMIT_S = 90


class OldCell(CellOutlet):
    """A cell that has run."""

    def __init__(self) -> None:
        self.text = ""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        self.text += content.get("text", "")


def make_train() -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    import torch  # noqa: F401

    source = """
def train(late, epochs=3, endless=False, asks=""):
    import os, time, tsnb
    if endless and late:
        epochs = 10**6  # whoever is to be stopped cannot be done before
    time.sleep(late / 2)
    batches, firsts, step = tsnb.attach(), [], 0
    if asks:
        while late and not os.path.exists(asks):
            time.sleep(0.01)
    else:
        time.sleep(late / 2)
    for epoch in range(epochs):
        for number, (labels,) in enumerate(batches):
            if number == 0:
                firsts.append((batches.epoch, labels.tolist()))
            time.sleep(0.005)
            tsnb.log(loss=late + 1 / (1 + step))
            step += 1
    return firsts
"""
    import __main__

    variables = vars(__main__)
    exec(compile(source, "<cell>", "exec"), variables)
    return variables["train"]


def interrupt_when_attached(count: int) -> None:
    """Interrupt this process's main thread once so many trials take batches."""

    def interrupt() -> None:
        until(lambda: sum(trial.attached for trial in trials.values()) >= count)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sweep", "trials"])
def test_an_interrupt_that_leaves_the_serving_block_stops_its_trials_before_the_stream(
    what: str, numbers: Any
) -> None:
    """None fails for want of it, none of those that wait is started, and those on another stream go on."""
    train = make_train()
    elsewhere = tsnb.run(train, late=0.0, epochs=1000, name="elsewhere", stream="numbers")
    rows = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    found: list[Any] = []

    def wait() -> None:
        with tsnb.serve(rows, name="left"):
            interrupt_when_attached(3)
            if what == "sweep":
                grid = {"late": [0.0, 0.001, 0.002]}
                found.append(tsnb.sweep(train, grid=grid, epochs=1000, at_once=2, stream="left", name="s"))
            else:
                found.extend(tsnb.run(train, late=late, epochs=1000, stream="left") for late in (0.0, 0.001))
            found[0].wait(LIMIT_S)

    with pytest.raises(KeyboardInterrupt):
        wait()
    ended = {trial.state for trial in trials.values() if trial is not elsewhere}
    assert ended == {"stopped"} and elsewhere.state == "running", repr(trials)
    assert not any("ProducerGone" in trial.logs() for trial in trials.values())
    if what == "sweep":
        not_started = {"s-late0.002": "the sweep was stopped before it started"}
        assert found[0].over and found[0].not_started == not_started
    elsewhere.stop()


@pytest.mark.slow
def test_a_block_that_is_left_in_good_order_stops_its_trials_with_its_stream(numbers: Any) -> None:
    """That the stream ends is what its trials are told, as ever."""
    rows = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    with tsnb.serve(rows, name="left"):
        trial = tsnb.run(make_train(), late=0.0, epochs=1000, stream="left")
        until(lambda: trial.attached)
    trial.wait(LIMIT_S)
    assert (trial.state, trial.life.failure) == ("stopped", "with its stream")


@pytest.mark.slow
def test_a_later_trial_of_a_sweep_says_nothing_of_a_later_epoch(numbers: Any) -> None:
    """It begins when it has its turn, in mid-stream; a trial of one's own that joins late says what it begins with."""
    train = make_train()
    sweep = tsnb.sweep(train, grid={"late": [0.0, 0.1]}, epochs=1, at_once=1).wait(LIMIT_S)
    for trial in sweep.values():
        assert trial.state == "done" and "note:" not in trial.logs(), trial.logs()
    own = tsnb.run(train, late=0.0, epochs=1, name="own").wait(LIMIT_S)
    assert "note: 'own' begins with pass 3" in own.logs()


@pytest.mark.slow
def test_all_begin_with_the_same_batch_and_the_better_half_goes_on(
    numbers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """However late each attaches; who is worse is stopped at a rung, and the one that is left is the best."""
    rule = tsnb.search.halving("loss", every=60)
    sweep = tsnb.sweep(make_train(), grid={"late": [0.0, 0.4, 0.8, 1.2]}, endless=True, at_once=4, prune=rule)
    assert sweep.wait(LIMIT_S) is sweep and sweep.over
    assert {cut.step for cut in sweep.stopped_early.values()} == {60, 120}
    assert set(sweep.stopped_early) == {"train-late0.4", "train-late0.8", "train-late1.2"}
    verdicts = TrialLogs().verdicts()
    assert verdicts == {name: f"{cut.why} at step {cut.step}" for name, cut in sweep.stopped_early.items()}
    best = sweep.best()
    assert best.name == "train-late0.0" and best.state == "done"
    # the late-join window holds 2 % of an epoch, 2 batches: without the gate, latecomers would begin with another epoch
    first_rows = {name: trial.metrics.rows[0] for name, trial in sweep.items()}
    assert {(row.epoch, row.batch) for row in first_rows.values()} == {(1, 1)}
    assert [epoch for epoch, _ in best.result()] == [0, 1, 2]
    said = capsys.readouterr().out
    assert "train-late1.2 stopped at step 60" in said and "KeyboardInterrupt" not in said
    table = repr(sweep)
    assert "sweep 'train': 1 done, 3 pruned" in table and "pruned at step 120: rank 2 of 2" in table
    assert "<td" in sweep._repr_html_()
    rows = sweep.results().to_dict("records")
    assert [row["late"] for row in rows] == [0.0, 0.4, 0.8, 1.2]
    assert rows[0]["samples"] == 1200 > rows[1]["samples"] > rows[3]["samples"] > 0
    with pytest.raises(ValueError, match="has logged 'acc'"):
        sweep.best("acc")
    again = sweep["train-late0.4"].rerun(endless=False)  # of the same name: nobody has stopped this one
    assert again.wait(LIMIT_S).name == "train-late0.4"
    logs = TrialLogs()
    assert set(logs.verdicts()) == {"train-late0.8", "train-late1.2"}
    assert again.name not in logs.sweeps() and best.name in logs.sweeps()
    facts = logs.facts(again.name)
    assert facts is not None and facts["verdict"] == ""


def test_results_keep_a_parameter_apart_from_what_a_trial_took(numbers: Any) -> None:
    """A parameter `epochs` and a logged `samples` have columns of their own beside those that say how far it came."""

    def train(epochs: int) -> None:
        import tsnb

        for _ in range(epochs - 1):  # it ends before the epochs that it says
            for _batch in tsnb.attach():
                pass
        tsnb.log(samples=-1.0, epochs=0.5)

    sweep = tsnb.sweep(train, grid={"epochs": [2, 3]}, name="apart").wait(LIMIT_S)
    rows = sweep.results().to_dict("records")
    assert [row["epochs (param)"] for row in rows] == [2, 3]
    assert [row["epochs"] for row in rows] == [1, 2]
    assert [row["samples"] for row in rows] == [trial.report["samples"] for trial in sweep.values()]
    assert [(row["samples (logged)"], row["epochs (logged)"]) for row in rows] == [(-1.0, 0.5)] * 2


def test_all_are_done_is_not_foretold_while_trials_wait_for_a_place(numbers: Any, tmp_path: Any) -> None:
    """Whoever looks at the stream, in another process too: those that are to come take their time after these."""

    def train(k: int, gate: str, epochs: int = 2) -> None:
        import os
        import time

        import tsnb

        for _ in range(epochs):
            for _batch in tsnb.attach():
                while not os.path.exists(gate):
                    time.sleep(0.01)

    gate = tmp_path / "go"
    sweep = tsnb.sweep(train, grid={"k": [1, 2, 3]}, gate=str(gate), name="to-come", at_once=1)
    until(lambda: status("numbers").to_come == 2)
    assert len(sweep) == 1 and sweep["to-come-k1"].attached
    watching = watch("numbers")
    until(lambda: watching.view.latest is not None and watching.view.latest.to_come == 2)
    assert watching.view.eta is NO_ETA and not story(watching.readings()).left
    gate.touch()
    sweep.wait(LIMIT_S)
    until(lambda: status("numbers").to_come == 0)


def test_trials_that_wait_for_a_place_have_rows_that_say_so_on_every_screen(
    numbers: Any, tmp_path: Any
) -> None:
    """By name, with their parameters and what they wait for, until they attach; a stopped sweep has none."""

    def train(k: int, gate: str) -> None:
        import os
        import time

        import tsnb

        for _batch in tsnb.attach():
            while not os.path.exists(f"{gate}{k}"):
                time.sleep(0.01)

    gate = str(tmp_path / "go")
    sweep = tsnb.sweep(train, grid={"k": [1, 2, 3, 4]}, gate=gate, name="line", at_once=1)
    why = "queued: it starts when another trial of its sweep ends"
    waiting = {f"line-k{k}": why for k in (2, 3, 4)}
    until(lambda: dict(status("numbers").pending) == waiting)
    watching, logs = watch("numbers"), TrialLogs()
    until(lambda: watching.view.latest is not None and dict(watching.view.latest.pending) == waiting)
    text = as_text(watching.view, "numbers")
    assert all(re.search(rf"^{name} +{why}$", text, re.MULTILINE) for name in waiting)
    shown = logs.params()["line-k3"]
    facts = logs.facts("line-k3")
    assert sorted(shown) == [["gate", gate], ["k", "3"]], "those that all share, too"
    assert facts is not None and facts["params"] == shown
    assert logs.sweeps()["line-k3"] == "line"
    assert facts["cannot"]["clone"] == f"is {why}"
    with pytest.raises(TsnbError, match=r"'line-k3' has not been started.*%trials stop line"):
        steer_shown(Panel("numbers"))("stop", "line-k3")
    (tmp_path / "go1").touch()
    until(lambda: "line-k2" in sweep and sweep["line-k2"].attached)
    until(lambda: any("line-k2" in {c.name for c in one.consumers} for one in watching.readings()))
    told = itertools.dropwhile(lambda one: "line-k2" not in one.pending, watching.readings())
    before = itertools.takewhile(lambda one: "line-k2" not in {c.name for c in one.consumers}, told)
    assert all("line-k2" in one.pending for one in before), "it has a row until it attaches"
    until(lambda: dict(status("numbers").pending) == dict.fromkeys(("line-k3", "line-k4"), why))
    sweep.stop()
    until(lambda: not status("numbers").pending)
    assert "line-k3" not in logs.params()


def test_trials_that_start_together_get_the_same_labels(numbers: Any) -> None:
    """The first labels of every epoch are equal in all of them, without pruning and with a function's result."""
    sweep = tsnb.sweep(make_train(), {"late": [0.0, 1.0]}, epochs=2, name="pair-{late}").wait(LIMIT_S)
    results = [trial.result() for trial in sweep.values()]
    assert list(sweep) == ["pair-0", "pair-1"]
    assert results[0] == results[1] and [epoch for epoch, _ in results[0]] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [False, True])
def test_the_next_trial_is_there_when_the_epoch_after_the_one_before_it_begins(
    numbers: tsnb.streams.Producer, plan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three epochs and three of one on two places share three; one that came late would take a fourth."""
    import __main__

    monkeypatch.setattr(queueing, "LATE", 0.2)  # a start may take long on a busy machine
    monkeypatch.setattr(queueing, "LEAD", 8.0)

    source = """
def train(number):
    import time, tsnb
    batches = tsnb.attach()
    seen = []
    for epoch in tsnb.epochs(1 if number else 3):
        for batch in batches:
            time.sleep(0.1)
        seen.append(batches.epoch)
    return seen
"""
    exec(compile(source, "<cell>", "exec"), vars(__main__))
    sweep = tsnb.sweep(vars(__main__)["train"], grid={"number": [0, 1, 2, 3]}, at_once=2, plan=plan)
    sweep.wait(LIMIT_S)
    seen = [trial.result() for trial in sweep.values()]
    assert sorted(map(len, seen)) == [1, 1, 1, 3]
    assert len({epoch for each in seen for epoch in each}) == 3, seen


@pytest.mark.slow
def test_nobody_passes_the_gate_before_the_producer_has_let_in_the_last(numbers: Any, tmp_path: Path) -> None:
    """Asked for is not enough: the producer is held up before it hears the last one, the first has batches in hand."""
    asks = tmp_path / "asks"
    sweep = tsnb.sweep(make_train(), grid={"late": [0.0, 3.0]}, epochs=2, name="held-{late}", asks=str(asks))
    first, last = sweep["held-0"], sweep["held-3"]
    until(lambda: {c.name for c in tsnb.streams.status(numbers.name).consumers} >= {"held-0", "held-3"})
    with numbers._core.lock:  # held-3 is attached, and asks for its epoch now
        asks.touch()
        time.sleep(4.0)
        assert not first.metrics.rows, "it has begun without the other one"
    sweep.wait(LIMIT_S)
    assert first.result() == last.result()


@pytest.mark.slow
def test_who_is_not_waited_for_any_more_is_said_to_be_unpaired_everywhere(
    numbers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the sweep's output, its table and its results; those that began together are not."""
    monkeypatch.setattr(gate_module, "WAITING_S", 1.0)
    monkeypatch.setattr(conductor, "LOOK_S", 0.1)
    sweep = tsnb.sweep(make_train(), grid={"late": [0.0, 6.0]}, epochs=1, at_once=2).wait(LIMIT_S)
    assert "train-late6.0 requested no batch" in capsys.readouterr().out
    assert [line.count("not paired") for line in repr(sweep).splitlines()[2:]] == [0, 1]
    assert sweep.results()["not_paired"].tolist() == [False, True]


def test_a_sweep_goes_on_past_failures_and_stops_by_hand(page: Any) -> None:
    """One place: each waits for the one before, whether that is done, fails, dies or is stopped."""
    cell = """
import os, signal, time
if how == "fails":
    raise ValueError("no such thing")
if how == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
print("begun", how)
while how == "stays":
    time.sleep(0.05)
"""
    params = {"how": ["fails", "stays", "dies", "ends"]}
    sweep = swept(CellCode(cell, {}), "hard", grid=params, at_once=1, outlet=page)
    with pytest.raises(NoSuchTrial, match="it starts when another trial of its sweep ends"):
        sweep["hard-how-ends"]
    with pytest.raises(NoSuchTrial, match="Its trials: hard-how-fails"):
        sweep["soft"]
    until(lambda: "begun stays" in page.text)
    assert [name for name, trial in sweep.items() if trial.state not in ENDED] == ["hard-how-stays"]
    sweep["hard-how-stays"].stop()
    sweep.wait(LIMIT_S)
    assert [trial.state for trial in sweep.values()] == ["failed", "stopped", "crashed", "done"]
    assert "[hard-how-ends] begun ends\n" in page.text
    assert sweep.stopped_early == {}
    assert sweep["hard-how-ends"]["how"] == "ends", "the cell's parameter is its variable"


@pytest.mark.slow
def test_a_race_ends_who_is_behind_and_says_so_everywhere(page: Any, numbers: Any) -> None:
    """Batch by batch: long before the first epoch of the better one is over, the others are stopped."""
    cell = """
import time, tsnb
batches = tsnb.attach()
for epoch in range(20):
    for number, (labels,) in enumerate(batches):
        tsnb.log(loss=2.3 if epoch == number == 0 else labels.mean().item() / 400 + rate)
        time.sleep(0.002)
"""
    params = {"rate": [0.1, 1.0, 2.0]}
    rule = tsnb.search.race("loss", error=0.01)
    with pytest.raises(ValueError, match=r"Add seed=0"):
        swept(CellCode(cell, {}), "race", grid=params, at_once=3, outlet=page, rule=rule)
    sweep = swept(CellCode(cell, {}), "race", grid=params, at_once=3, outlet=page, rule=rule, seed=0).wait(
        LIMIT_S
    )
    assert {name: trial.state for name, trial in sweep.items()} == {
        "race-rate0.1": "done",
        "race-rate1.0": "pruned",
        "race-rate2.0": "pruned",
    }
    assert "race-rate1.0 stopped at step" in page.text
    for name, cut in sweep.stopped_early.items():
        why = f"by its sweep at step {cut.step}: loss {cut.value:.4g}, {cut.why}"
        record = Run.find(name)
        assert record is not None and (found := record.read()) is not None
        assert {sweep[name].life.failure, found.failure} == {why}, (
            "in the panel, tables, reports and records alike"
        )
        assert f"trial {name!r} pruned after" in page.text and why in repr(tsnb.trials)
    assert "race-rate0.1 is ahead of race-rate1.0 now, 99%, after" in page.text
    assert "is ahead of race-rate2.0 now" in repr(sweep)
    assert sweep.best().name == "race-rate0.1"
    seen = tsnb.search.race("loss", trials=list(sweep)).look()
    assert {trial.options["seed"] for trial in sweep.values()} == {0}
    assert [verdict.behind for verdict in seen if verdict.decided and verdict.ahead == "race-rate0.1"] == [
        "race-rate1.0",
        "race-rate2.0",
    ]


def test_the_number_and_direction_of_a_rule_hold_on_every_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headline, star and plots went by an accuracy, or guessed from the name, while the rule went by something else."""
    monkeypatch.setattr(sweep_module, "_sweeps", {})
    made: Any = sweep_module.Sweep("s", {"a": {}, "b": {}}, None, "score", "min")  # type: ignore[arg-type]
    assert known_direction("score") == "max"
    sweep_module.enter(made)
    assert known_direction("score") == "min"
    trials_ = [
        SimpleNamespace(name=n, state="done", metrics={"accuracy": x, "score": x})
        for n, x in (("a", 0.1), ("b", 0.9))
    ]
    told = OutcomeReading(tuple(sweep_module._deciding(["b", "c"])))
    assert told.decides == ("score",) and not sweep_module._deciding(["c"])
    best = best_of(trials_, told)
    assert best is not None and (best[0].name, best[1]) == ("a", "score")


def test_an_ended_sweep_leaves_what_its_trials_returned_and_no_process(page: Any) -> None:
    """Not one process a trial: what a function returned is here; a cell's variables are, but what cannot travel."""
    returned = tsnb.sweep(lambda k: [k] * 3, grid={"k": [1, 2, 3, 4]}, name="returns", at_once=2).wait()
    cell = """
import threading
total, lock = k + 1, threading.Lock()
if k == 2:
    1 / 0
"""
    held = swept(CellCode(cell, {}), "cells", grid={"k": [1, 2]}, outlet=page, at_once=2).wait()
    assert [trial.pid for trial in (*returned.values(), *held.values())] == [None] * 6
    assert [process for process in descendants() if process.ppid() != os.getpid()] == [], "kernels"
    assert [trial.result() for trial in returned.values()] == [[1] * 3, [2] * 3, [3] * 3, [4] * 3]
    assert held["cells-k1"]["total"] == 2
    assert held["cells-k2"].state == "failed" and held["cells-k2"]["total"] == 3, "for a look"
    with pytest.raises(NotShippable, match="lock is a lock, which cannot leave its process"):
        held["cells-k1"]["lock"]
    with pytest.raises(
        NoSuchVariable, match=r"no variable 'totl'. Available: k, total. Did you mean 'total'\?"
    ):
        held["cells-k1"]["totl"]
    returned.stop()
    with pytest.raises(TsnbError, match="no longer exist"):
        returned["returns-k1"].result()


@pytest.mark.slow
def test_what_is_too_large_to_keep_stays_in_its_process() -> None:
    """A sweep of large networks is not written to the disk: they can be fetched as ever."""
    large = tsnb.sweep(lambda k: bytes(300 * 2**20), grid={"k": [1]}, name="large").wait()
    trial = large["large-k1"]
    assert trial.pid is not None
    assert len(trial.result()) == 300 * 2**20
    large.stop()


def test_without_a_stream_nobody_is_started_any_more(page: Any, numbers: Any) -> None:
    """The producer is stopped: who trains stops with it, who waits is not tried, and the sweep is over and says why."""
    cell = "for epoch in range(1000):\n    for batch in tsnb.attach():\n        print('got one', rate)"
    sweep = swept(CellCode(cell, {}), "s", grid={"rate": range(5)}, at_once=2, outlet=page)
    until(lambda: "got one 0" in page.text and "got one 1" in page.text)
    numbers.stop()
    sweep.wait(LIMIT_S)
    assert len(sweep) == 2 and "2 stopped, 3 not started" in repr(sweep) and "Given up" in repr(sweep)
    with pytest.raises(NoSuchTrial, match="was not started"):
        sweep["s-rate4"]


def test_one_trial_run_again_with_another_parameter_is_another_trial(page: Any) -> None:
    """Its name is made again of what stands in it; without a change it is the next run of the same name."""
    import __main__

    exec("def gated(lr, gate=0.5, sweep='own', epochs=1): return lr, gate, sweep", vars(__main__))
    sweep = tsnb.sweep(vars(__main__)["gated"], grid={"lr": [0.1, 0.2], "seed": [1]}, epochs=3).wait(60)
    assert [trial.result() for trial in sweep.values()] == [(0.1, 0.5, "own"), (0.2, 0.5, "own")]
    best = sweep["gated-lr0.1-seed1"]
    other = best.rerun(lr=0.5)
    assert (other.name, other.number) == ("gated-lr0.5-seed1", 1)
    assert other.result(30)[0] == 0.5
    assert best.rerun(epochs=5).name == best.name, "what does not stand in the name does not change it"
    assert other.rerun(seed=2).name == "gated-lr0.5-seed2"
    named = tsnb.sweep(vars(__main__)["gated"], grid={"lr": [0.1, 0.2]}, name="net{lr:.2f}").wait(60)
    assert named["net0.10"].rerun(lr=0.3).name == "net0.30"


@pytest.mark.parametrize(
    ("metric", "every", "said"),
    [
        ("lost", 1, "'lost' .* never logged; the trials logged loss"),
        ("loss", 9, "at step 9, and was logged at step 2 the last"),
    ],
)
def test_a_comparison_that_never_came_is_told(
    metric: str, every: int, said: str, printed: Callable[[], str]
) -> None:
    """A misspelt metric or too large a step would else look like a sweep in which all were equally good."""
    import __main__

    exec("def logs(lr):\n    for _ in range(3): __import__('tsnb').log(loss=lr)", vars(__main__))
    rule = tsnb.search.halving(metric, every=every, mode="min")
    tsnb.sweep(vars(__main__)["logs"], grid={"lr": [1, 2]}, prune=rule).wait(60)
    until(lambda: re.search(f"no trial could be stopped early: .*{said}", printed()) is not None)


def test_what_is_run_again_shows_where_it_was_asked_for(printed: Callable[[], str]) -> None:
    """Not under the cell of the sweep, with the mark of the trial that it was made of."""
    before = OldCell()
    sweep = swept(CellCode("print('lr is', lr)", {}), "net", grid={"lr": [1, 2]}, outlet=before).wait(60)
    sweep["net-lr1"].rerun(lr=3).wait(60)
    until(lambda: "[net-lr3] lr is 3" in printed(), 10)
    assert "[net-lr1] lr is 1" in before.text and "lr is 3" not in before.text


def test_an_interrupt_ends_the_waiting_and_stop_ends_the_sweep(page: Any) -> None:
    """The stop button of the notebook leaves the trials alone; `stop` leaves no process, and starts nobody."""
    cell = "import time\nprint('begun', rate)\ntime.sleep(100)"
    sweep = swept(CellCode(cell, {}), "long", grid={"rate": range(3)}, at_once=2, outlet=page)
    until(lambda: "begun 0" in page.text and "begun 1" in page.text)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sweep.wait(LIMIT_S)
    assert not sweep.over and {trial.state for trial in sweep.values()} == {"running"}
    with pytest.raises(TimeoutError, match="2 running, 1 queued"):
        sweep.wait(0.01)
    sweep.stop()
    assert sweep.over and [trial.state for trial in sweep.values()] == ["stopped"] * 2
    assert sweep.wait() is sweep
    assert "begun 2" not in page.text and "1 not started" in repr(sweep)


def test_what_cannot_be_a_sweep_starts_nothing() -> None:
    """Parameters that do not fit, undefined names, odd names: told in one error, before any process; no file stays."""
    train = make_train()
    before = set(the_hub().directory.iterdir())
    with pytest.raises(TypeError, match="Nothing was started"):
        tsnb.sweep(train, grid={"speed": [1, 2]})
    for at_once in (0, -1, 1.5, "two", True):
        with pytest.raises(ValueError, match=f"at_once={at_once!r} is invalid. Pass how many"):
            tsnb.sweep(train, grid={"late": [1, 2]}, at_once=at_once)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\{speed\} is not a parameter"):
        tsnb.sweep(train, grid={"late": [1, 2]}, name="x-{speed}")
    with pytest.raises(ValueError, match="cannot name a sweep"):
        tsnb.sweep(train, grid={"late": [1, 2]}, name="my sweep")
    assert not tsnb.trials
    assert set(the_hub().directory.iterdir()) == before


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            "rate = 0.1\nprint(rate)",
            "The cell sets 'rate' itself, so a value for it would have no effect",
        ),
        ("print(rates)", "reads no variable 'rate'.*Did you mean 'rates'.*--no-check"),
        ("print('done')", "The cell reads no variable 'rate'"),
    ],
)
def test_a_parameter_that_makes_no_difference_is_refused(cell: str, said: str) -> None:
    """Trials that are all the same would be recorded as different ones."""
    before = len(tsnb.trials)
    with pytest.raises(ValueError, match=said):
        swept(CellCode(cell, {"rates": 1}), "same", grid={"rate": [1, 2]})
    assert len(tsnb.trials) == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"grid": [0.1, 0.01]}, r"grid= takes a dict, got list\. Write grid=\{\"lr\": \[0\.1, 0\.01\]\}"),
        ({"space": 3, "n": 2}, r"space= takes a dict, got int\. Write space=\{\"lr\": tsnb\.search"),
        (
            {"grid": {"lr": [1]}, "prune": "halving"},
            r"prune= takes a rule, got 'halving'\. .*tsnb\.search\.halving",
        ),
    ],
)
def test_what_is_no_grid_and_no_rule_says_what_to_write(wrong: dict[str, Any], says: str) -> None:
    """Before anything is started."""

    def train(lr: float) -> None: ...

    with pytest.raises(TypeError, match=says):
        tsnb.sweep(train, **wrong)
    assert not list(tsnb.trials)


def test_a_typed_list_is_not_taken_for_several_values() -> None:
    """`lr=[0.1,0.01]` would be one trial with a list."""
    with pytest.raises(ValueError, match=r"has one value, a list\. For its values, write lr=0\.1,0\.01\."):
        read_grid("lr=[0.1,0.01]")
    assert read_grid("sizes=[1,2],[3]") == ("sizes", [[1, 2], [3]])
