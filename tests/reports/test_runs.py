"""A name that ran several times on one stream: reports, results and panel tell the runs apart, and alike."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.by_value import by_value
from tests.promises import HANG_S
from tests.reports.made import START_S, consumer, reading
from tests.waiting import wait_until as until
from tsnb.experiments import trials
from tsnb.reports import Report
from tsnb.reports.figures import draw_word
from tsnb.telemetry.lives.runs import runs_apart
from tsnb.telemetry.lives.spent import spent
from tsnb.telemetry.readings import EndReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.shown.view import StreamNews, StreamView
from tsnb.telemetry.watching import listen, watch

SOURCE = """
def train(epochs):
    import tsnb
    for _ in tsnb.epochs(epochs):
        for (batch,) in tsnb.attach():
            tsnb.log(loss=float(epochs))
"""


def run(pid: int, number: int, from_s: float, name: str = "a", *, end: str = "done") -> list[StreamReading]:
    """One run of a name: eight seconds, of which it computes four, and its end."""
    host = HostReading(2, 1.0, 1, 2, consumers={name: ProcessReading(0.5, 1, 2)})
    told = EndReading(name, end, START_S + from_s + 9, pid, "", {"loss": 1.0 / pid}, 4.0, START_S + from_s)
    beside = consumer("b", 1.0 + from_s, pid=99)
    return [
        reading(from_s, consumer(name, pid=pid), beside),
        reading(from_s + 4, consumer(name, 2.0, pid=pid, run=number), beside, host=host),
        reading(from_s + 8, consumer(name, 4.0, pid=pid, run=number), beside),
        reading(from_s + 10, beside, ends=(told,)),
    ]


def test_a_former_run_has_the_number_of_the_results() -> None:
    """Each run has a row with its own counters, CPU seconds, last number and end; the last one has the plain name."""
    readings = runs_apart([*run(1, 3, 0, end="stopped"), *run(2, 4, 20)])
    former, b, last = spent(readings)
    assert (former.name, b.name, last.name) == ("a run 3", "b", "a")
    assert former.computing_s == last.computing_s == 4.0
    assert former.cpu_s == last.cpu_s == pytest.approx(4.0)
    assert (former.state, last.state) == ("stopped", "done")
    assert (former.metrics["loss"], last.metrics["loss"]) == (1.0, 0.5)
    assert runs_apart(readings) == readings, "names that were given stay"
    assert runs_apart(run(1, 3, 0)) == run(1, 3, 0), "one run has nothing to be told from"


def test_processes_of_one_run_are_one() -> None:
    """A trial that was extended, or whose process was lost and started again, goes on in its row."""
    both = spent(runs_apart([*run(1, 3, 0), *run(2, 3, 20)]))
    assert [trial.name for trial in both] == ["a", "b"]
    assert both[0].computing_s == 8.0


def test_a_run_without_a_number_has_its_process() -> None:
    """A script attaches twice, or the recording is older than the numbers."""
    assert [t.name for t in spent(runs_apart([*run(71, 0, 0), *run(72, 0, 20)]))] == ["a pid 71", "b", "a"]


def test_a_run_that_never_attached_is_the_last_one_too() -> None:
    """It failed before its first batch: the numbers of the run before are not its own."""
    failed = EndReading("a", "failed", START_S + 30, 0, "ValueError: no", {})
    rows = spent(runs_apart([*run(1, 3, 0), reading(31, ends=(failed,))]))
    assert [(t.name, t.state, t.samples) for t in rows if t.name != "b"] == [
        ("a run 3", "done", 320),
        ("a", "failed", 0),
    ]
    first = replace(failed, time_s=START_S)
    rows = spent(runs_apart([reading(0, ends=(first,)), *run(1, 3, 1)]))
    assert [t.name for t in rows] == ["a", "b"], "of a former one that never attached nothing is told"


def test_a_panels_row_is_of_the_last_run_though_it_never_attached() -> None:
    """As in the report: nothing of the run before is left, and a run that comes after it counts on."""
    failed = EndReading("a", "failed", START_S + 30, 0, "ValueError: no", {})
    view = StreamView()
    for each in [*run(1, 3, 0), reading(31, ends=(failed,)), reading(32, ends=(failed,))]:
        view.feed(each)
    row = view.rows["a"]
    assert (row.state, row.error, row.run) == ("failed", "ValueError: no", 1)
    assert (row.reading.samples, row.batches, row.metrics) == (0, 0, {})
    assert math.isnan(row.epochs)
    for each in run(2, 5, 40):
        view.feed(each)
    assert (row.state, row.error, row.run, row.metrics) == ("done", "", 2, {"loss": 0.5})


def test_the_end_of_a_former_run_that_is_told_late_takes_nothing_from_the_next() -> None:
    """Its process is another one too, but it had ended before this one came."""
    late = EndReading("a", "failed", START_S + 19, 7, "ValueError: no", {})
    view = StreamView()
    *all_but_end, _ = run(2, 4, 20)
    for each in [*all_but_end, reading(29, consumer("a", 4.0, pid=2, run=4), ends=(late,)), reading(30)]:
        view.feed(each)
    assert view.rows["a"].reading.samples == 320


def test_a_report_and_its_figures_have_a_line_a_run_in_one_colour() -> None:
    """The colour is the panel's, which knows one trial of that name; marks say which run came and went."""
    made = Report([*run(1, 3, 0), *run(2, 4, 20)], ended=True)
    assert made.text.startswith("stream mnist, ended: 2 trials in 3 runs, ")
    assert "a run 3 left" in made.text and "a joined" in made.text
    lines = {line.name: line.line.color for line in draw_word("lag", made._readings).data}
    assert list(lines) == ["a run 3", "b", "a"]
    assert lines["a run 3"] == lines["a"] != lines["b"]


def test_what_came_out_counts_the_last_run_of_each_name_on_every_screen() -> None:
    """A report had counted former runs, too, and might have called one of them the best."""
    readings = [*run(3, 3, 0), *run(2, 4, 20, end="failed"), *run(5, 1, 40, "c")]
    readings.append(reading(60, ends=(EndReading("b", "stopped", START_S + 59, 99, "", {"loss": 0.3}),)))
    view = StreamView()
    for one in readings:
        view.feed(one)
    made = Report(readings, ended=True)
    assert view.outcome == ("c is best: loss 0.200.", "1 done, 1 failed, 1 stopped.")
    assert " ".join(view.outcome) in made.text
    better = Report([*run(9, 3, 0), *run(2, 4, 20), *run(5, 1, 40, "c")], ended=True)
    better.story = replace(better.story, state="gone")
    assert "c is best: loss 0.200. 2 done, 1 ended." in better.text and "trials['c']" in better.text
    assert "c is best" in re.sub("<[^>]*>", "", better.svg)


@pytest.fixture
def numbers(project: Path) -> Iterator[tsnb.streams.Producer]:
    loader = DataLoader(TensorDataset(torch.arange(160.0)), batch_size=4)
    with tsnb.serve(loader, name="again") as producer:
        yield producer
        trials.clear()


@pytest.mark.system
def test_report_results_and_panel_say_the_same_of_a_name_that_ran_twice(
    numbers: tsnb.streams.Producer,
) -> None:
    """Samples, epochs, CPU seconds, last numbers: run by run; by the plain name everywhere that of the last run."""
    there = watch("again")
    there.readings(HANG_S)
    train = by_value(SOURCE)
    ran = [tsnb.run(train, epochs=epochs, name="cnn").wait(HANG_S) for epochs in (1, 3)]
    report = tsnb.report("again", target={"loss": 1.0})
    rows = {trial.name: trial for trial in report.story.trials}
    assert list(rows) == ["cnn run 1", "cnn"]
    table = tsnb.results("cnn", all_runs=True).to_dict("records")
    for row, trial, told in zip(table, rows.values(), ran, strict=True):
        assert trial.samples == row["samples"] == 160 * row["epochs"]
        assert trial.epochs == row["epochs"] == row["epochs (param)"]
        assert trial.metrics["loss"] == row["loss"]
        assert (trial.state, row["state"]) == ("done", "done")
        assert trial.cpu_s == pytest.approx(told.report["cpu_s"])
        spent_s = told.report["computing_s"] + told.report["waiting_s"]
        assert spent_s <= told.report["attached_s"] + 0.01, "validation and pauses count, too"
        pace = trial.samples / (told.report["attached_here_s"] - told.report["paused_here_s"])
        assert row["samples_per_s"] == pytest.approx(pace, rel=1e-3)
        assert row["samples_per_s"] == pytest.approx(trial.samples_per_s, abs=0.06), (
            "results round to a tenth"
        )
    (last,) = tsnb.results("cnn").to_dict("records")
    shown = there.view.rows["cnn"]
    assert shown.reading.samples == rows["cnn"].samples == last["samples"]
    assert shown.epochs == rows["cnn"].epochs == last["epochs"]
    assert shown.whole.pace.samples_per_s == pytest.approx(last["samples_per_s"], abs=0.06)
    assert shown.metrics == rows["cnn"].metrics == {"loss": last["loss"]}
    assert shown.reading.run == last["run"] == 2
    reached = {cost.name: cost.after_s is not None for cost in report.story.costs}
    assert reached == {"cnn run 1": True, "cnn": False}, "the second run never logged so much"


CLONED = """
def train(ms):
    import time, tsnb
    for batch in tsnb.attach():
        time.sleep(ms / 1000)
        tsnb.log(loss=1.0)
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_clone_s_time_is_its_own_on_every_screen(numbers: tsnb.streams.Producer) -> None:
    """Its process inherits counters: what its trial had been attached for was told as time between its epochs."""
    there = watch("again")
    there.readings(HANG_S)
    trial = tsnb.run(by_value(CLONED), ms=100, name="cnn")
    until(lambda: trial.report.get("batches", 0) >= 15, HANG_S)
    twin = trial.clone("twin")
    trial.wait(HANG_S)
    twin.wait(HANG_S)
    report = tsnb.report("again")
    told = {one.name: one for one in report.story.trials}["twin"]
    row, (found,) = there.view.rows["twin"], tsnb.results("twin").to_dict("records")
    attached_s = row.whole.active_s
    assert attached_s <= found["duration_s"] + 0.1, (row.whole, found)
    assert row.whole.pace.computing > 0.9 and told.samples == row.whole.samples < 160
    assert row.whole.pace.samples_per_s == pytest.approx(found["samples_per_s"], rel=0.02)
    assert told.samples_per_s == pytest.approx(found["samples_per_s"], rel=0.02)


class Slow:
    """A screen that takes its time, as on a busy machine, on the thread that follows the stream."""

    def tell(self, tick: StreamNews) -> None:
        time.sleep(0.2)  # four readings a second come: late, and not later with each

    def note(self, state: str, text: str, name: str) -> None:
        pass


@pytest.mark.system
def test_what_a_trial_did_is_known_as_soon_as_it_has_ended(numbers: tsnb.streams.Producer) -> None:
    """What follows the stream in its process may be late: `wait` lasts until that has heard of the end too."""
    watch("again").readings(HANG_S)
    listen("again", Slow())
    tsnb.run(by_value(SOURCE), epochs=1, name="cnn").wait(HANG_S)
    (trial,) = tsnb.report("again").story.trials
    assert (trial.samples, trial.state) == (160, "done")
