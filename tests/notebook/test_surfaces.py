"""Every surface says the same of a trial: panel, report, `tsnb top`, recording, results, tables and plain text."""

from __future__ import annotations

import contextlib
import html
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.cli import main
from tsnb.experiments import trials
from tsnb.experiments.memory_queue import MemoryQueue
from tsnb.experiments.running import own_life
from tsnb.machine.cores import usable_cores
from tsnb.machine.memory import Free
from tsnb.notebook import streams
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.records.notices import Notice
from tsnb.reports.plain import plain
from tsnb.reports.sources import recorded, streamed
from tsnb.reports.story import story
from tsnb.show.view_text import as_text
from tsnb.show.words import remaining
from tsnb.telemetry.following import Follower, look
from tsnb.telemetry.observer import Observer, status
from tsnb.telemetry.readings import CacheReading
from tsnb.telemetry.shown.view import StreamView
from tsnb.telemetry.watching import watch
from tsnb.text.numbers import clock
from tsnb.top.live import _Heard
from tsnb.top.view import screen

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

LIMIT_S = 120.0

SOURCE = """
def train(how, accuracy=0.5):
    import time, tsnb
    if how == "early":
        raise ValueError("no such model")
    tsnb.records.direction(churn="min")
    stream = tsnb.attach()
    for epoch in range(2):
        for k, (batch,) in enumerate(stream):
            tsnb.log(loss=1 / (1 + k), accuracy=0.1, churn=5.0)
    if how == "done":
        stream.close()
    tsnb.log(accuracy=accuracy, churn=10 * accuracy, final=42.0)
    if how == "fails":
        raise ValueError("too bad")
    while how == "waits":
        time.sleep(0.05)
"""


PART = """
def part(share):
    import tsnb
    got, seen = 0, []
    with tsnb.attach(subset=range(0, 80, share), batch_size=6, drop_last=share > 1) as train:
        for epoch in range(3):
            for number, (batch,) in enumerate(train):
                got += len(batch)
                tsnb.log(got=got)
                if share == 2 and number == 1:
                    break  # its epochs are left
        seen.append(train.stats().samples)
    for (batch,) in (held := tsnb.attach(fold=(0, 5), held_out=True)):
        got += len(batch)
        tsnb.log(got=got)
    seen.append(held.stats().samples)
    tsnb.log(got=got)
    return got, seen
"""

SLOW = """
def slow(epochs=400):
    import time, tsnb
    stream = tsnb.attach()
    for epoch in range(epochs):
        for (batch,) in stream:
            time.sleep(0.02)
"""


def until(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.fixture
def train() -> Any:
    """A function that travels by value."""
    import __main__

    exec(compile(SOURCE, "<cell>", "exec"), vars(__main__))
    return vars(__main__)["train"]


@pytest.fixture(autouse=True)
def nothing_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records of its own: a notebook of another test may have had a trial of the same name."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path / "project"))
    yield
    trials.clear()


@contextlib.contextmanager
def served(name: str) -> Iterator[tsnb.streams.Producer]:
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(80.0)), batch_size=4), name=name) as producer:
        yield producer


@pytest.fixture
def numbers() -> Iterator[tsnb.streams.Producer]:
    with served("numbers") as producer:
        yield producer


_numbers = itertools.count(1)


@pytest.fixture
def alone() -> Iterator[tsnb.streams.Producer]:
    """A stream of which this process knows no former trials: a panel goes on where one of its name has ended.

    Two tests that took one name knew each other's trials.
    """
    with served(f"alone{next(_numbers)}") as producer:
        yield producer


def lines(name: str, text: str) -> str:
    """The lines of a text that are about a trial."""
    return "\n".join(line for line in text.splitlines() if name in line)


def printed(text: Any) -> str:
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(text)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


ENDS = (
    # name, what its function does, the accuracy that it logs last, its end, the error's last line or who stopped it
    ("done", "done", 0.9, "done", ""),
    ("fails", "fails", 0.7, "failed", "ValueError: too bad"),
    ("early", "early", 0.0, "failed", "ValueError: no such model"),
    ("stops", "waits", 0.6, "stopped", "by trial.stop()"),
    ("interrupted", "waits", 0.5, "interrupted", ""),
    ("killed", "waits", 0.4, "crashed", "its kernel was killed by SIGKILL"),
)


@pytest.mark.slow
def test_ends_and_last_numbers_are_the_same_everywhere(
    numbers: tsnb.streams.Producer, train: Callable[..., Any], tmp_path: Path
) -> None:
    """Logged after the last loop, after the stream was left, by one that fails, is killed, or never attached."""
    notices: list[Notice] = []
    tsnb.records.notify(notices.append)
    panel, heard = Panel("numbers"), _Heard()
    top = heard.view.rows
    panel.follow()
    follower = Follower("numbers", heard.take, heard.note)
    follower.start()
    recorder = tsnb.streams.record("numbers", tmp_path / "numbers.jsonl")
    started = {name: tsnb.run(train, name=name, how=how, accuracy=value) for name, how, value, *_ in ENDS}
    for name in ("stops", "interrupted", "killed"):
        trial = started[name]
        until(lambda trial=trial: "final" in trial.metrics, LIMIT_S)  # type: ignore[misc]
    until(
        lambda: (
            "interrupted"
            in (c.name for c in tsnb.streams.status("numbers").consumers if "final" in c.metrics)
        ),
        LIMIT_S,
    )
    started["stops"].stop()
    started["interrupted"].interrupt()
    os.kill(started["killed"].pid or 0, signal.SIGKILL)
    for trial in started.values():
        with contextlib.suppress(tsnb.errors.TrialFailed):
            trial.wait(LIMIT_S)

    until(lambda: len(notices) == len(ENDS), LIMIT_S)
    tsnb.records.notify(None)
    assert {one.name: (one.state, one.metrics) for one in notices} == {
        name: (trial.state, dict(trial.metrics)) for name, trial in started.items()
    }
    assert {one.name: one.error for one in notices if one.failed} == {
        name: started[name].life.failure.partition("\n")[0] for name in ("fails", "early", "killed")
    }

    # this notebook's own surfaces know at once, others with the next reading
    told = {one.name: one for one in story(streamed("numbers").readings).trials}
    lanes = {lane.name: lane for lane in panel._tape.view.rows.values()}
    table = tsnb.results().set_index("name")
    with contextlib.suppress(AssertionError):
        until(lambda: [top[name].state for name, *_ in ENDS if name in top] == [end[3] for end in ENDS], 120)
    assert {name: row.state for name, row in top.items()} == {name: state for name, _, _, state, _ in ENDS}
    newcomer = StreamView()
    newcomer.feed(tsnb.streams.status("numbers"))
    texts = {
        "panel": as_text(panel._tape.view, "numbers"),
        "status": as_text(look("numbers", 0.5)[1], "numbers"),
        "report": plain(story(streamed("numbers").readings)),
        "top": printed(heard.draw(200)),
        "trials": repr(tsnb.trials),
    }
    for name, _, accuracy, state, error in ENDS:
        states = (
            started[name].state,
            table.loc[name, "state"],
            lanes[name].end,
            told[name].state,
            top[name].state,
        )
        assert {*states, newcomer.rows[name].state} == {state}, name
        errors = (lanes[name].error, told[name].error, top[name].error, newcomer.rows[name].error)
        assert all(said.startswith(error) and bool(said) == bool(error) for said in errors), name
        assert all(state in lines(name, text) for text in texts.values()), name
        told_by = [surface for surface in texts if surface != "trials" or state == "stopped"]
        assert all(error in texts[surface] for surface in told_by), name
        if name == "early":
            assert not lanes[name].here and lanes[name].metrics == {} and told[name].epochs == 0
            continue
        rows = (top[name].metrics, newcomer.rows[name].metrics)
        numbers_told = (lanes[name].metrics, told[name].metrics, started[name].metrics, *rows)
        assert (
            {numbers["accuracy"] for numbers in numbers_told} == {table.loc[name, "accuracy"]} == {accuracy}
        )
        assert {numbers["final"] for numbers in numbers_told} == {table.loc[name, "final"]} == {42.0}
        if name != "killed":  # which could not say any more how far it was
            assert (
                told[name].epochs
                == table.loc[name, "epochs"]
                == top[name].epochs
                == lanes[name].epochs
                == 2.0
            )
    assert "accuracy 0.9 (best)" in texts["trials"] and panel._tape.view.best["accuracy"] == "done"

    numbers.stop()
    assert recorder.wait(60)
    again = story(recorded(tmp_path / "numbers.jsonl").readings, ended=True).trials
    assert {one.name: (one.state, one.error, one.metrics) for one in again} == {
        name: (one.state, one.error, one.metrics) for name, one in told.items()
    }
    follower.close()
    panel.close()


def test_one_score_chooses_the_same_trial_everywhere(train: Callable[..., Any]) -> None:
    """Which was best in the middle does not count; `best`, `compare`, tables and panel name the same trial."""
    panel = Panel("scores")
    panel.follow()
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(80.0)), batch_size=4), name="scores"):
        sweep = tsnb.sweep(train, grid={"accuracy": [0.2, 0.9, 0.4]}, how="runs", name="s").wait(LIMIT_S)
    assert sweep.best("accuracy").params["accuracy"] == 0.9
    assert sweep.best("churn").params["accuracy"] == 0.2, "its direction was told inside of the trials"
    best = sweep.best("accuracy").name
    assert tsnb.results("s", sort="accuracy", by="accuracy")["best_trial"].iloc[0] == best
    assert tsnb.results("s", sort="accuracy")["name"].iloc[0] == best
    assert "accuracy 0.9 (best)" in lines(best, repr(tsnb.trials)) and "accuracy 0.9 (best)" in repr(sweep)
    until(lambda: panel._tape.view.best.get("accuracy") == best, LIMIT_S)
    assert [note.text for note in tsnb.plot("accuracy", trial="s").layout.annotations] == [f"best: {best}"]
    panel.close()


def test_what_is_logged_after_the_stream_has_ended_counts(train: Callable[..., Any]) -> None:
    """No reading can say so any more: the notebook knows it."""
    panel = Panel("short")
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(80.0)), batch_size=4), name="short"):
        panel.follow()
        trial = tsnb.run(train, name="waits", how="waits", accuracy=0.75)
        until(lambda: trial.metrics.get("final") == 42.0, LIMIT_S)
    until(lambda: panel.state == "gone", 120)
    trial.interrupt()
    trial.wait(LIMIT_S)
    (lane,) = panel._tape.view.rows.values()
    assert (lane.end, lane.metrics["accuracy"], panel.state) == ("interrupted", 0.75, "gone")
    (one,) = story(streamed("short").readings, ended=True).trials
    assert (one.state, one.metrics["accuracy"]) == ("interrupted", 0.75)
    panel.close()


def test_samples_are_those_that_a_trial_got_everywhere(
    numbers: tsnb.streams.Producer, tmp_path: Path
) -> None:
    """A part in batches of its own that drops the rest, a consumer that is closed, a held-out one after it."""
    import __main__

    exec(compile(PART, "<cell>", "exec"), vars(__main__))
    recorder = tsnb.streams.record("numbers", tmp_path / "numbers.jsonl")
    panel = Panel("numbers")
    panel.follow()
    started = [tsnb.run(vars(__main__)["part"], share=share, name=f"part{share}") for share in (1, 2, 5)]
    for trial in started:
        trial.wait(LIMIT_S)
    got = {trial.name: trial.result() for trial in started}
    assert [total for total, _ in got.values()] == [3 * 80 + 16, 36 + 16, 3 * 12 + 16]
    until(lambda: not tsnb.streams.status("numbers").consumers, LIMIT_S)
    read = recorder.readings
    until(lambda: recorder.readings > read + 1, LIMIT_S)
    until(lambda: not any(lane.here for lane in panel._tape.view.rows.values()), LIMIT_S)
    recorder.stop()
    results, history = tsnb.results().set_index("name"), tsnb.records.history("got")
    told = {one.name: one.samples for one in story(streamed("numbers").readings).trials}
    again = {one.name: one.samples for one in story(recorded(tmp_path / "numbers.jsonl").readings).trials}
    lanes = {lane.name: lane.reading.samples for lane in panel._tape.view.rows.values()}
    drawn = {line.name: list(line.x) for line in tsnb.plot("got", x="samples").data}
    for trial in started:
        name, (total, seen) = trial.name, got[trial.name]
        logged = history[history["name"] == name]
        assert list(logged["samples"]) == list(logged["value"]) == drawn[name], name
        assert {trial.report["samples"], results.loc[name, "samples"], sum(seen)} == {total}, name
        for surface in (told, again, lanes):
            assert [surface[name], surface[f"{name}-held-out"]] == seen, name
    panel.close()


def test_both_statuses_say_the_same_below_the_trials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was given up, a data set that grows, the cache: a line each."""
    cache = CacheReading("serving", "", 50, 20, 1 << 20, 2 << 20, 0, 30, 70, 0.1)
    view = StreamView()
    view.feed(replace(stream(replace(consumer("a"), skipped=7)), found=3, cache=cache))
    for module in ("tsnb.telemetry.following", "tsnb.notebook.streams"):
        monkeypatch.setattr(f"{module}.look", lambda _name: ("numbers", view))
    assert main(["status", "numbers"]) == 0
    text = capsys.readouterr().out.rstrip("\n")
    assert text == streams.status("numbers")
    below = ["a skipped 7 batches", "3 samples found", "cache: serving, 20 of 50 samples"]
    assert [line.startswith(said) for line, said in zip(text.splitlines()[-3:], below, strict=True)] == [
        True
    ] * 3


def test_what_is_left_is_the_same_everywhere(numbers: tsnb.streams.Producer) -> None:
    """The trial's own number, its table, `tsnb top` and `status` tell one estimate; a report too."""
    import __main__

    exec(compile(SLOW, "<cell>", "exec"), vars(__main__))
    there = watch("numbers")
    trial = tsnb.run(vars(__main__)["slow"], name="slow")
    until(lambda: trial.eta.whole, LIMIT_S)
    with there.view.lock:  # no reading comes in between
        eta, left = trial.eta, remaining(trial.eta)
        assert eta.epochs == 400, "the function's default"
        assert eta.low_s < eta.left_s < eta.high_s
        assert there.view.eta == eta, "it is the last of all of them"
        assert left in repr(tsnb.trials) and " left " in repr(tsnb.trials)
        assert left in as_text(there.view, "numbers")
        assert f"all done in {left}" in as_text(there.view, "numbers").splitlines()[0]
        console = Console(width=180, file=io.StringIO(), color_system=None)
        console.print(screen(there.view, 180))
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue().count(left) >= 2, "in the header and in its row"
        told = story(there.readings())
        assert told.etas["slow"].left_s == pytest.approx(eta.left_s, rel=0.02)
        assert f"Left: slow {remaining(told.etas['slow'])}" in plain(told)
    trial.stop()
    assert not trial.eta.known
    assert " left " not in repr(tsnb.trials), "nothing runs, so nothing is left"


@pytest.mark.slow
def test_when_all_of_a_planned_sweep_are_done_is_the_same_everywhere(numbers: tsnb.streams.Producer) -> None:
    """While one still waits for its place: no screen says less than that, and none says nothing."""
    import __main__

    exec(compile(SLOW, "<cell>", "exec"), vars(__main__))
    there = watch("numbers")
    sweep = tsnb.sweep(vars(__main__)["slow"], grid={"epochs": [40, 41]}, plan=True, at_once=1, name="p")
    until(lambda: there.view.eta.known and any(row.here for row in there.view.rows.values()), LIMIT_S)
    with there.view.lock:
        (plan,), eta = status("numbers").plans, there.view.eta
        assert plan.waiting == 1 and [each.name for each in plan.trials] == [next(iter(sweep))]
        assert eta.left_s > max(each.end_s for each in plan.trials) - time.time()
        assert f"all done in {clock(eta.left_s)}" in as_text(there.view, "numbers").splitlines()[0]
        console = Console(width=180, file=io.StringIO(), color_system=None)
        console.print(screen(there.view, 180))
        assert isinstance(console.file, io.StringIO)
        assert f"all done in {clock(eta.left_s)}" in console.file.getvalue()
        told = story(there.readings())
        assert told.all_done.left_s == pytest.approx(eta.left_s, rel=0.02)
        assert told.left in plain(told)
    first = next(iter(sweep.values()))
    until(lambda: first.eta.whole, LIMIT_S)
    assert first.eta.left_s < there.view.eta.left_s
    sweep.stop()
    until(lambda: not status("numbers").plans, LIMIT_S)


@pytest.mark.slow
def test_a_stream_knows_when_another_one_ends(numbers: tsnb.streams.Producer) -> None:
    """The readings of both tell whoever follows until when the other one's cores are busy, and that it has ended."""
    import __main__

    exec(compile(SLOW, "<cell>", "exec"), vars(__main__))
    slow = vars(__main__)["slow"]
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(80.0)), batch_size=4), name="beside") as other:
        long = tsnb.run(slow, name="long", stream="numbers")
        short = tsnb.run(slow, name="short", stream=other.name, epochs=25)
        for name in ("numbers", "beside"):
            watch(name)

        def told() -> bool:
            (seen,) = status("numbers").beside or [None]
            said_s = seen.end_s if seen is not None and seen.name == "beside" else None
            return said_s is not None and abs(said_s - time.time() - short.eta.left_s) < 3

        until(told, LIMIT_S)
        (seen,) = status("beside").beside
        assert seen.name == "numbers" and 0 <= seen.cores <= usable_cores()
        short.wait(LIMIT_S)
        until(lambda: not status("numbers").beside, LIMIT_S)
    long.stop()


HOLDS = """
def hold(path):
    import os, time, tsnb
    stream = tsnb.attach()
    for (batch,) in stream:
        break
    while not os.path.exists(path):
        time.sleep(0.02)
"""


def test_what_a_queued_trial_waits_for_is_the_same_everywhere(
    numbers: tsnb.streams.Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Memory, or another trial: in tables, panel, `tsnb top`, `status`, report, results; until it is attached."""
    import __main__

    exec(compile(HOLDS, "<cell>", "exec"), vars(__main__))
    free = [1 << 30]
    monkeypatch.setattr(own_life, "_memory", MemoryQueue(lambda: Free(free[0], "this machine")))
    panel, heard = Panel("numbers"), _Heard()
    panel.follow()
    follower = Follower("numbers", heard.take, heard.note)
    follower.start()
    hold, path = vars(__main__)["hold"], tmp_path / "go"
    first = tsnb.run(hold, path=str(path), name="first")
    until(lambda: first.attached, LIMIT_S)
    until(lambda: tsnb.streams.status("numbers").pending == {}, LIMIT_S)
    assert "waits_for" not in tsnb.results()
    tsnb.run(hold, path=str(path), name="large", needs="3GiB")
    tsnb.run(hold, path=str(path), name="later", after="first")
    whys = {
        "large": "it needs 3.0 GiB, and 1.0 GiB are free (this machine)",
        "later": "it starts when 'first' is done",
    }
    queued = {name: f"queued: {why}" for name, why in whys.items()}  # a moment before, without why
    until(lambda: tsnb.streams.status("numbers").pending == queued, LIMIT_S)
    views = (heard.view, panel._tape.view)
    until(lambda: all({*whys} <= {*view.rows} for view in views), LIMIT_S)
    until(lambda: all(queued == {n: view.rows[n].pending for n in whys} for view in views), LIMIT_S)
    capsys.readouterr()
    main(["results", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    told = story(streamed("numbers").readings)
    lanes = {lane["name"]: lane for lane in panel._tape.scene()["lanes"]}
    texts = {
        "trials": repr(tsnb.trials),
        "html": html.unescape(tsnb.trials._repr_html_()),
        "panel": as_text(panel._tape.view, "numbers"),
        "status": as_text(look("numbers", 0.5)[1], "numbers"),
        "report": plain(told),
        "top": printed(heard.draw(200)),
    }
    for name, why in whys.items():
        trial, said = tsnb.trials[name], f"queued: {why}"
        here = (
            trial.state_text,
            tsnb.streams.status("numbers").pending[name],
            told.pending[name],
            lanes[name]["pending"],
            heard.view.rows[name].pending,
            dict(TrialLogs().trials())[name],
            f"{rows[name]['state']}: {rows[name]['waits_for']}",
        )
        assert {*here} == {said}, name
        assert not [surface for surface, text in texts.items() if said not in text], name
        assert heard.view.rows[name].state == panel._tape.view.rows[name].state == trial.state == "queued"
    assert rows["first"]["waits_for"] is None and "pending" not in lanes["first"]

    free[0] = 4 << 30
    path.touch()
    for name in whys:
        until(lambda name=name: tsnb.trials[name].state == "done", LIMIT_S)  # type: ignore[misc]
        assert not tsnb.trials[name].waits_for
    until(lambda: tsnb.streams.status("numbers").pending == {}, LIMIT_S)
    until(lambda: {row.state for row in heard.view.rows.values()} == {"done"}, LIMIT_S)
    assert "waits_for" not in tsnb.results()
    follower.close()
    panel.close()


SLOW_TO_COME = """
def comes(path):
    import os, time, tsnb
    while not os.path.exists(path):
        time.sleep(0.02)
    for (batch,) in tsnb.attach():
        break
def stays_away(path):
    import os, time
    while not os.path.exists(path):
        time.sleep(0.02)
"""


@pytest.mark.slow
def test_a_trial_that_is_starting_has_a_row_from_then_on(
    alone: tsnb.streams.Producer, tmp_path: Path
) -> None:
    """The panel was empty until the first batch; a trial that reads no stream goes from its rows after seconds."""
    import __main__

    exec(compile(SLOW_TO_COME, "<cell>", "exec"), vars(__main__))
    panel, path = Panel(alone.name), tmp_path / "go"
    panel.follow()
    until(lambda: panel._tape.view.latest is not None, LIMIT_S)
    for function, name in (("comes", "soon"), ("stays_away", "never")):
        tsnb.run(vars(__main__)[function], path=str(path), name=name)

    def lanes() -> dict[str, str]:
        return {
            lane["name"]: lane.get("pending", "")
            for lane in panel._tape.scene()["lanes"]
            if not lane.get("unknown")
        }

    until(lambda: lanes() == {"soon": "starting", "never": "starting"}, LIMIT_S)
    assert panel._tape.view.say.text.endswith("2 are starting.")
    until(lambda: tsnb.trials["soon"].state == "running" == tsnb.trials["never"].state, LIMIT_S)
    until(lambda: "never" not in lanes(), LIMIT_S)
    path.touch()
    until(lambda: lanes().get("soon") == "" and tsnb.trials["soon"].state == "done", LIMIT_S)
    assert "never" not in lanes()
    panel.close()


COMPARED = """
def compared(churn):
    import tsnb
    for (batch,) in tsnb.attach():
        tsnb.log(accuracy=churn, churn=churn)
"""


@pytest.mark.slow
def test_another_process_knows_what_decides_in_a_sweep_and_what_limited_it(
    alone: tsnb.streams.Producer,
) -> None:
    """`tsnb status` and `tsnb top` went by an accuracy, starred nobody, and did not say what had limited the stream."""
    import __main__

    exec(compile(COMPARED, "<cell>", "exec"), vars(__main__))
    panel = Panel(alone.name)
    panel.follow()
    rule = tsnb.search.halving("churn", mode="min", every=1000)
    tsnb.sweep(vars(__main__)["compared"], grid={"churn": [0.25, 0.75]}, prune=rule, name="s").wait()
    until(lambda: panel._tape.view.is_over and panel._tape.view.compared.rule == "churn", LIMIT_S)
    view = panel._tape.view

    def settled() -> bool:
        """Whether both ends are known whole, and what was found of them has gone round: a share changes until then."""
        of, found = view._limited
        told = getattr(status(alone.name).outcome, "limited", "")
        return [end for _, end in of[1]] == ["done", "done"] and found == told == view.limited

    until(settled, LIMIT_S)
    limited = view.limited
    said = f"s-churn0.25 is best: churn 0.250. 2 done. {limited}"
    assert limited and " ".join([*view.outcome, limited]) == said
    for command in (["status"], ["top", "--once"]):
        asked = subprocess.run(
            [sys.executable, "-m", "tsnb", *command], capture_output=True, text=True, timeout=120, check=False
        )
        lines = [line.lstrip("▌ ").rstrip() for line in asked.stdout.splitlines()]
        assert said in " ".join(lines), (asked.stdout, asked.stderr)
        (starred,) = (line for line in lines if re.search(r"★ (churn )?0\.2", line))
        assert starred.removeprefix("■ ").startswith("s-churn0.25 "), asked.stdout
    panel.close()


def test_what_a_notebook_told_of_its_queued_trials_goes_with_it(numbers: tsnb.streams.Producer) -> None:
    """A notebook that is killed leaves no row of a trial that will never start."""
    notebook = Observer("numbers")
    notebook.tell_pending({"next": "queued: it starts when 'first' is done"})
    until(lambda: "next" in tsnb.streams.status("numbers").pending, LIMIT_S)
    view = look("numbers", 0.5)[1]
    assert "next                 queued: it starts when 'first' is done" in as_text(view, "it")
    notebook.close()
    until(lambda: not tsnb.streams.status("numbers").pending, LIMIT_S)
    view.feed(tsnb.streams.status("numbers"))
    assert "next" not in as_text(view, "it") + printed(screen(view, 200))


def test_a_trial_that_waits_for_its_turn_says_so_everywhere(numbers: tsnb.streams.Producer) -> None:
    """Of a sweep whose trials take turns: in its table too, which said that it was running."""
    import __main__

    exec(compile(SLOW, "<cell>", "exec"), vars(__main__))
    panel, heard = Panel("numbers"), _Heard()
    panel.follow()
    sweep = tsnb.sweep(vars(__main__)["slow"], grid={"epochs": [300, 400]}, at_once=1, rotate=2, name="s")
    words = "waits for its turn"

    def told() -> set[tuple[bool, ...]]:
        with watch("numbers").view.lock:
            view = watch("numbers").view
            heard.view = view
            name = next((row.name for row in view.rows.values() if row.waits == words), "")
            if not name:
                return set()
            texts = (as_text(view, "it"), printed(screen(view, 200)), repr(tsnb.trials), repr(sweep))
            return {tuple(words in lines(name, text) for text in texts)}

    until(lambda: told() == {(True,) * 4}, LIMIT_S)
    sweep.stop()
    panel.close()


def test_what_is_left_is_known_where_nothing_else_watches(numbers: tsnb.streams.Producer) -> None:
    """In a script without a panel; it was never known."""
    import __main__

    exec(compile(SLOW, "<cell>", "exec"), vars(__main__))
    trial = tsnb.run(vars(__main__)["slow"], name="alone")
    until(lambda: trial.eta.whole, LIMIT_S)
    assert trial.eta.epochs == 400
    trial.stop()
