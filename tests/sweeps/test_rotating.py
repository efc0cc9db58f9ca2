"""A sweep whose trials take turns: more of them side by side than train at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tests.promises import HANG_S, promptly
from tests.system.scripts import Script, runs, scripts
from tsnb.config import MAX_CONSUMERS
from tsnb.errors import ProducerNotFound

pytestmark = pytest.mark.system

LIMIT_S = 120
SAMPLES = 48


class Noted(Dataset[torch.Tensor]):
    """Numbers; it notes each that is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.path.open("a") as notes:
            notes.write(f"{index}\n")
        return torch.tensor(float(index))


@pytest.fixture
def loads(tmp_path: Path) -> Iterator[Path]:
    """Serve 12 batches of 4; return where each sample that is loaded is noted."""
    path = tmp_path / "loads"
    loader = DataLoader(Noted(path), batch_size=4, shuffle=True, num_workers=1)
    with tsnb.serve(loader, name="turns", window=2):
        yield path


def make_train() -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    source = """
def train(number, notes, epochs=2, dies=False):
    import os, signal, tsnb

    def note(mark):
        where = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(where, mark.encode())
        os.close(where)

    taken = []
    for epoch in range(epochs):
        samples = []
        for batch in tsnb.attach():
            note("+")
            samples += batch.int().tolist()
            if dies and number == 1 and len(samples) == 8:
                note("-")
                os.kill(os.getpid(), signal.SIGKILL)
            note("-")
        taken.append(samples)
    return taken
"""
    import __main__

    variables = vars(__main__)
    exec(compile(source, "<cell>", "exec"), variables)
    return variables["train"]


def most_at_once(notes: Path) -> int:
    """Return how many trials were in a step at the same time."""
    now = most = 0
    for mark in notes.read_text():
        now += 1 if mark == "+" else -1
        most = max(most, now)
    return most


def test_eight_trials_on_two_slots_see_each_sample_once_and_each_is_loaded_once(
    loads: Path, tmp_path: Path
) -> None:
    """In both epochs, in one order; no more than two are in a step at any moment; all live from the start."""
    notes = tmp_path / "notes"
    sweep = tsnb.sweep(
        make_train(), grid={"number": list(range(8))}, notes=str(notes), at_once=2, rotate=3, seed=1
    )
    assert len(sweep) == 8, "all are started, and two of them train"
    sweep.wait(LIMIT_S)
    results = [trial.result() for trial in sweep.values()]
    for epoch in range(2):
        assert sorted(results[0][epoch]) == list(range(SAMPLES))
        assert all(result[epoch] == results[0][epoch] for result in results), "they are not paired"
    assert Counter(loads.read_text().split()) == {str(index): 2 for index in range(SAMPLES)}
    assert most_at_once(notes) <= 2


def test_a_trial_that_is_killed_in_its_turn_holds_up_none_of_the_others(loads: Path, tmp_path: Path) -> None:
    """Its turn is over at once, and the others take all of the epoch."""
    sweep = tsnb.sweep(
        make_train(),
        grid={"number": [0, 1, 2]},
        notes=str(tmp_path / "notes"),
        epochs=1,
        dies=True,
        at_once=1,
        rotate=5,
    ).wait(LIMIT_S)
    assert [trial.state for trial in sweep.values()] == ["done", "crashed", "done"]
    for name in ("train-number0", "train-number2"):
        assert sorted(*sweep[name].result()) == list(range(SAMPLES))
    assert Counter(loads.read_text().split()) == {str(index): 1 for index in range(SAMPLES)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rotate": 0}, "rotate=0 is invalid. Pass the batches per turn"),
        ({"rotate": 2.5}, "a whole number, 1 or more"),
        ({"rotate": 9, "plan": True}, "rotate= excludes plan= and deadline="),
        ({"rotate": 9, "engine": "ray"}, "trials take turns on one machine"),
    ],
)
def test_what_does_not_go_with_turns_is_refused_before_anything_starts(
    options: dict[str, Any], said: str
) -> None:
    """The message says what to leave out."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=said):
        tsnb.sweep(make_train(), grid={"number": [0, 1]}, notes="", **options)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 2


def test_turns_need_a_stream_and_room_for_all_trials() -> None:
    """All attach to it at once."""
    with pytest.raises(ProducerNotFound, match="No stream is running"):
        tsnb.sweep(make_train(), grid={"number": [0, 1]}, notes="", rotate=3)
    many = list(range(MAX_CONSUMERS + 1))
    with pytest.raises(ValueError, match=f"a stream takes {MAX_CONSUMERS}"):
        tsnb.sweep(make_train(), grid={"number": many}, notes="", rotate=3)


COUNTED = """
def count(number, epochs=2, wait_s=0.02):
    import time, tsnb
    taken, step = [], 0
    for epoch in range(epochs):
        samples = []
        for batch in tsnb.attach():
            samples += batch.int().tolist()
            tsnb.log(loss=1 + number * min(1, step / 10) + 0.1 * ((7 * step) % 5))
            step += 1
            time.sleep(wait_s)
        taken.append(samples)
    return taken
"""


def make_count() -> Any:
    """A function that travels by value, and logs a loss that is soon the lower, the lower its number."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(COUNTED, made)
    return made["count"]


@pytest.mark.slow
def test_whoever_is_behind_in_a_race_leaves_the_turns(loads: Path) -> None:
    """The one that is ahead gets every sample of every epoch, and the places of those that were ended."""
    race = tsnb.search.race("loss", error=0.01)
    options: dict[str, Any] = {"epochs": 30, "wait_s": 0.0, "seed": 0}
    sweep = tsnb.sweep(
        make_count(), grid={"number": [0, 1, 2, 3]}, at_once=2, rotate=5, prune=race, **options
    )
    sweep.wait(LIMIT_S)
    states = {name: trial.state for name, trial in sweep.items()}
    assert states == {
        "count-number0": "done",
        **dict.fromkeys(["count-number1", "count-number2", "count-number3"], "pruned"),
    }
    assert set(sweep.stopped_early) == {name for name, state in states.items() if state == "pruned"}
    found = sweep["count-number0"].result()
    assert len(found) == 30 and all(sorted(samples) == list(range(SAMPLES)) for samples in found)


PRODUCE = """
class Values(Numbers):
    def __getitem__(self, i): return torch.tensor(float(i))

loader = DataLoader(Values(48), 4, shuffle=True, num_workers=1)
with tsnb.serve(loader, name="turns", seed=1, window=2, reconnect_s=60) as producer:
    say("served")
    producer.wait()
"""


@pytest.mark.slow
def test_a_producer_that_is_killed_while_trials_take_turns_is_followed_by_another() -> None:
    """Each of them gets each sample once, in both epochs, whoever's turn it was."""
    with scripts() as running:
        first = Script(PRODUCE)
        running.append(first)
        first.expect("served")
        sweep = tsnb.sweep(make_count(), grid={"number": [0, 1, 2]}, at_once=1, rotate=3, stream="turns")
        deadline_s = time.monotonic() + HANG_S
        while (batches := max((c.batches for c in tsnb.streams.status("turns").consumers), default=0)) < 5:
            assert time.monotonic() < deadline_s, batches
            time.sleep(0.01)
        first.process.kill()
        first.process.wait()
        second = Script(PRODUCE)
        running.append(second)
        second.expect("served")
        sweep.wait(LIMIT_S)
        assert {trial.state for trial in sweep.values()} == {"done"}, sweep
        for trial in sweep.values():
            assert [sorted(samples) for samples in trial.result()] == 2 * [list(range(SAMPLES))]
        tsnb.streams.stop("turns")
        assert second.end() == 0


NOTEBOOK = (
    "code = '''"
    + COUNTED
    + """'''
exec(code)
sweep = tsnb.sweep(count, grid={"number": [0, 1, 2]}, epochs=10**6, at_once=1, rotate=3, stream="turns")
while sum(trial.attached for trial in sweep.values()) < 3: time.sleep(0.01)
if sys.argv[1] == "paused":
    for trial in sweep.values(): trial.pause()
    while {c.state for c in tsnb.streams.status("turns").consumers} != {"paused"}: time.sleep(0.01)
say("pids", *(trial.pid for trial in sweep.values()))
time.sleep(1000)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["running", "paused"])
def test_a_notebook_that_is_killed_takes_its_trials_along_and_the_stream_goes_on(
    loads: Path, when: str
) -> None:
    """Whether they take turns or stand still: no process stays, and others get all of the next epoch."""
    with scripts() as running:
        notebook = Script(NOTEBOOK, when)
        running.append(notebook)
        pids = [int(word) for word in notebook.expect("pids").split()]
        left = [psutil.Process(pid) for pid in pids]
        assert len(left) == 3 and all(map(runs, left))
        notebook.process.kill()
        promptly(lambda: not any(map(runs, left)), promised_s=2.0)
    promptly(
        lambda: not [c for c in tsnb.streams.status("turns").consumers if c.state != "gone"], promised_s=2.0
    )
    trial = tsnb.run(make_count(), number=0, epochs=1, stream="turns").wait(LIMIT_S)
    assert [sorted(samples) for samples in trial.result()] == [list(range(SAMPLES))]


@pytest.mark.slow
def test_the_command_line_has_them_take_turns_as_the_function_does(loads: Path, tmp_path: Path) -> None:
    """`tsnb sweep --rotate`: all are started, all are done, and each sample was loaded once an epoch."""
    (tmp_path / "counted.py").write_text(COUNTED, encoding="utf-8")
    line = "counted:count --stream turns --grid number=0,1,2 --at-once 1 --rotate 3 --json"
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "sweep", *line.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}", "TSNB_PROJECT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    began, *ends = [json.loads(row) for row in done.stdout.splitlines()]
    assert {end["trial"]: end["state"] for end in ends} == dict.fromkeys(began["trials"], "done")
    assert Counter(loads.read_text().split()) == {str(index): 2 for index in range(SAMPLES)}
