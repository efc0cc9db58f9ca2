"""CPU seconds of trials: what looks at the machine see, and what a trial says at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.by_value import by_value
from tests.promises import HANG_S
from tests.reports.made import START_S, consumer, reading
from tsnb.errors import TrialFailed
from tsnb.experiments import trials
from tsnb.machine.clocks import cpu_here_s
from tsnb.machine.energy import NOT_MEASURABLE
from tsnb.machine.processes import children_of, use_of
from tsnb.reports import Report
from tsnb.reports.cost import Prices, costs
from tsnb.telemetry.lives.cpu_time import LOADER, cpu_until, stretches
from tsnb.telemetry.lives.spent import spent
from tsnb.telemetry.readings import EndReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.watching import watch

SOURCE = """
def train(how, kept=()):
    import os
    import time
    import tsnb
    for (batch,) in tsnb.attach():
        tsnb.log(loss=0.5)
        if how == "at once":
            return os.getpid()
        if how == "killed":
            while True:
                time.sleep(0.05)
"""


def seen(after_s: float, *cores: float, **more: Any) -> StreamReading:
    """A reading of the trial "a", with a look at the machine where cores are told."""
    uses = {"a": ProcessReading(cores[0], 0, 1)} if cores else {}
    host = HostReading(2, 1.0, 0, 1, producer=ProcessReading(1.0, 0, 2), consumers=uses) if cores else None
    return reading(after_s, *more.pop("here", (consumer("a", batches=int(10 * after_s)),)), host=host, **more)


def ended(after_s: float, cpu_s: float | None, since_s: float = 0.0) -> EndReading:
    return EndReading("a", "done", START_S + after_s, 1, "", {"loss": 0.1}, cpu_s, START_S + since_s)


def test_a_look_tells_of_the_time_since_the_one_before() -> None:
    """The first, of the time since the trial came; of what comes before and behind nothing is made up."""
    readings = [seen(0, 0.0, here=()), seen(1), seen(2, 0.5), seen(4, 1.0), seen(6)]
    its = stretches(readings)["a"]
    assert [(one.from_s - START_S, one.until_s - START_S, one.cpu_s) for one in its] == [
        (1, 2, 0.5),
        (2, 4, 2.0),
    ]
    assert cpu_until(its, START_S + 3) == 1.5
    assert cpu_until(its, START_S + 1) is None and cpu_until(()) is None
    assert cpu_until(stretches(readings)[LOADER]) == 4.0


def test_what_it_says_at_its_end_is_the_sum() -> None:
    """What no look has seen lies before the first and behind the last, by their part of that time."""
    looks = [seen(1), seen(2, 0.5), seen(4, 1.0)]
    over = seen(6, here=(), ends=(ended(5, 4.0, since_s=0.5),))
    its = stretches([*looks, over])["a"]
    assert [(one.from_s - START_S, round(one.cpu_s, 6)) for one in its] == [
        (0.5, 0.5),
        (1, 0.5),
        (2, 2.0),
        (4, 1.0),
    ]
    assert spent([*looks, over])[0].cpu_s == pytest.approx(4.0)
    less = [*looks, replace(over, ends=(ended(5, 2.0, since_s=0.5),))]
    assert cpu_until(stretches(less)["a"]) == pytest.approx(2.0), "looks go by steps of 10 ms"
    told_twice = [*looks, over, replace(over, time_s=over.time_s + 1)]
    assert spent(told_twice)[0].cpu_s == pytest.approx(4.0)


def test_a_trial_that_no_look_has_seen_has_what_it_said() -> None:
    """Also one that came and went between two readings; without its word, as of old records, it has nothing."""
    over = seen(2, here=(), ends=(ended(1.5, 0.25, since_s=1.0),))
    (cost,) = costs([seen(0, here=()), over], {"loss": 0.1}, {"loss": "min"}, Prices(vcpu=3600.0))
    assert (cost.after_s, cost.cpu_s, cost.price) == (0.5, 0.25, 0.25)
    (cost,) = costs([seen(0, here=()), seen(1.25), over], {"loss": 0.1}, {"loss": "min"}, Prices())
    assert (cost.after_s, cost.cpu_s) == (0.25, 0.25)
    old = StreamReading.from_json(over.to_json().replace('"cpu_s":0.25,"since_s"', '"later":0.25,"then"'))
    assert old.ends[0].cpu_s is None and old.ends[0].metrics == {"loss": 0.1}
    (cost,) = costs([seen(1.25), old], {"loss": 0.1}, {"loss": "min"}, Prices())
    assert cost.cpu_s is None and f"CPU time {NOT_MEASURABLE}" in cost.text
    (trial,) = spent([seen(1.25), old])
    assert trial.cpu_s != trial.cpu_s, "it is not known, and not zero"


def test_a_second_life_of_a_name_is_counted_apart() -> None:
    """The end of the first does not take the place of what is seen of the second."""
    again = (consumer("a", batches=0, pid=2),)
    readings = [seen(1), seen(3, here=(), ends=(ended(2, 1.0, since_s=1),)), seen(5, here=again)]
    readings += [seen(7, 0.5, here=again)]
    assert spent(readings)[0].cpu_s == pytest.approx(2.0)


def cpu_cell(readings: list[StreamReading]) -> str:
    """What stands below "CPU s" in the report's text, of the trial "a"."""
    lines = Report(readings, ended=True).text.splitlines()
    (head,) = (line for line in lines if line.startswith("trial "))
    (row,) = (line for line in lines if line.startswith("a "))
    end = head.index("CPU s") + len("CPU s")
    return row[end - 7 : end].strip()


def test_a_little_is_not_0_in_the_report() -> None:
    """A trial of some milliseconds; what was not measured stands in words."""
    for told, cell in ((0.042, "0.042"), (0.0004, "<0.001"), (1.23, "1.2"), (84.4, "84")):
        assert cpu_cell([seen(0), seen(2, here=(), ends=(ended(1.5, told, since_s=0.25),))]) == cell
    for nothing in ([seen(0), seen(2)], [seen(0), seen(2, 0.0), seen(4, 0.0)]):
        assert cpu_cell(nothing) == "\u2013", "looks go by steps of 10 ms, and are no word of a trial's own"
        assert f"CPU s \u2013: {NOT_MEASURABLE}." in Report(nothing).text
    assert NOT_MEASURABLE not in cpu_cell([seen(0), seen(2, 0.5)])


def test_what_it_says_counts_where_looks_saw_nothing_in_all_of_its_time() -> None:
    """A look at 0 cores from its beginning to its end, or no time between the two."""
    looked = [seen(0), seen(2, 0.0), seen(3, here=(), ends=(ended(2, 0.004),))]
    assert spent(looked)[0].cpu_s == pytest.approx(0.004)
    assert cpu_until(stretches(looked)["a"], START_S + 1) == pytest.approx(0.002)
    at_once = [seen(0, here=()), seen(1, here=(), ends=(ended(0.5, 0.004, since_s=0.5),))]
    (one,) = stretches(at_once)["a"]
    assert cpu_until([one]) == 0.004 and one.before(START_S) == 0.0


def seen_s() -> float:
    """Return the CPU seconds of this process and all below it, other tests' too, as seen from outside."""
    uses = [use_of(pid) for pid in (os.getpid(), *children_of(os.getpid()))]
    return sum(use.cpu_s for use in uses if use is not None)


def test_the_process_counts_what_is_seen_from_outside() -> None:
    """Its own CPU seconds, those of a child that lives, and of one that has ended."""
    work = "while __import__('time').process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    with subprocess.Popen(
        [sys.executable, "-c", f"{work}\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = use_of(child.pid)
        assert living is not None and living.cpu_s >= 0.29
        assert cpu_here_s() == pytest.approx(seen_s(), abs=0.3)
        child.communicate(b"\n")
    assert cpu_here_s() == pytest.approx(seen_s(), abs=0.3)


@pytest.fixture
def numbers() -> Iterator[tsnb.streams.Producer]:
    """Serve numbers; nothing that a test started goes on behind it."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    with tsnb.serve(loader, name="spent") as producer:
        yield producer
        trials.clear()


@pytest.mark.system
def test_a_trial_that_is_over_at_once_has_its_cpu_seconds(
    numbers: tsnb.streams.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look at the machine can have seen it; report and results have the same number, which it told at its end."""
    monkeypatch.setattr("tsnb.telemetry.host._FIRST_S", 600.0)
    watch("spent").readings(HANG_S)
    trial = tsnb.run(by_value(SOURCE), how="at once", name="short").wait(HANG_S)
    told = trial.report["cpu_s"]
    assert told > 0
    report = tsnb.report("spent", target={"loss": 0.5}, vcpu_price=3600.0)
    row = tsnb.results("short", target={"loss": 0.5}, vcpu_price=3600.0).to_dict("records")[0]
    (cost,) = report.story.costs
    assert (
        cost.cpu_s is not None
        and 0 < cost.cpu_s <= told
        and row["cpu_s"] == pytest.approx(cost.cpu_s) == row["price"]
    )
    assert report.story.trials[0].cpu_s == pytest.approx(told)


@pytest.mark.system
def test_a_trial_that_was_killed_has_what_was_seen_of_it_or_words(
    numbers: tsnb.streams.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells nothing at its end: never 0."""
    monkeypatch.setattr("tsnb.telemetry.host._FIRST_S", 600.0)
    watch("spent")
    trial = tsnb.run(by_value(SOURCE), how="killed", name="killed")
    deadline = time.monotonic() + HANG_S
    while not (
        trial.metrics and any(c.name == "killed" for r in watch("spent").readings() for c in r.consumers)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert trial.pid is not None
    os.kill(trial.pid, signal.SIGKILL)
    with pytest.raises(TrialFailed):
        trial.wait(HANG_S)
    assert trial.state == "crashed"
    (cost,) = tsnb.report("spent", target={"loss": 0.5}).story.costs
    assert cost.cpu_s is None and f"CPU time {NOT_MEASURABLE}" in cost.text
    row = tsnb.results("killed", target={"loss": 0.5}).to_dict("records")[0]
    assert row["cpu_s"] == NOT_MEASURABLE
