"""A sweep whose trials take turns: more of them side by side than train at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
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
    assert [trial.state for trial in sweep.values()] == ["done", "lost", "done"]
    for name in ("train-number0", "train-number2"):
        assert sorted(*sweep[name].result()) == list(range(SAMPLES))
    assert Counter(loads.read_text().split()) == {str(index): 1 for index in range(SAMPLES)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rotate": 0}, "rotate=0: give the batches of a turn"),
        ({"rotate": 2.5}, "a whole number, 1 or more"),
        ({"rotate": 9, "plan": True}, "rotate= trains all trials side by side"),
        ({"rotate": 9, "engine": "ray"}, "turns are taken on one machine"),
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
    with pytest.raises(ProducerNotFound, match="no producer is running"):
        tsnb.sweep(make_train(), grid={"number": [0, 1]}, notes="", rotate=3)
    many = list(range(MAX_CONSUMERS + 1))
    with pytest.raises(ValueError, match=f"a stream takes {MAX_CONSUMERS}"):
        tsnb.sweep(make_train(), grid={"number": many}, notes="", rotate=3)
