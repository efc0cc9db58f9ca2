"""Populations: which trials are replaced by clones of which, what a clone changes, and what cannot be one."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tsnb
from tsnb.conducting.conductor import Conductor
from tsnb.errors import TsnbError
from tsnb.planners.queueing import Places
from tsnb.sweeps import choice, loguniform, randint, uniform
from tsnb.sweeps import population as sweeps_population
from tsnb.sweeps.generations import Generations, explored
from tsnb.sweeps.population import Breeding

LIMIT_S = 120


def generation(values: dict[str, float], mode: str = "min", share: float = 0.2) -> Generations:
    """A population at the end of its first generation."""
    made = Generations("loss", mode, 10, share)
    made.start(values)
    made.cuts = [cut for name, value in values.items() for cut in made.log(name, 10, value)]  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("values", "replaced", "by"),
    [
        ([4.0, 1.0], {"0"}, {"1"}),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], {"8", "9"}, {"0", "1"}),
        ([1.0, math.nan, 2.0], {"1"}, {"0"}),
        ([1.0, 1.0, 1.0, 1.0], set(), set()),
        ([math.nan, math.nan], set(), set()),
        ([1.0], set(), set()),
    ],
    ids=["two", "ten", "nan", "equal", "all nan", "one is left"],
)
def test_the_last_part_is_replaced_by_the_first(
    values: list[float], replaced: set[str], by: set[str]
) -> None:
    """Truncation selection: a fifth, one at least, and nobody by a trial that is no better."""
    made = generation({str(place): value for place, value in enumerate(values)})
    assert {cut.name for cut in made.cuts} == replaced  # type: ignore[attr-defined]
    assert {parent for cut in made.cuts for parent in cut.parents} == by  # type: ignore[attr-defined]


def test_a_clone_has_come_as_far_as_its_parent_and_who_is_kept_is_compared_again() -> None:
    """The next generation waits for it, and for the trial that could not be replaced."""
    made = generation({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, share=0.5)
    assert [cut.name for cut in made.cuts] == ["c", "d"]  # type: ignore[attr-defined]
    made.adopt("e", "a")
    made.keep("c")
    made.check()
    assert [made.log(name, 20, value) for name, value in (("a", 5.0), ("b", 6.0), ("e", 1.0))] == [[]] * 3
    parents = {cut.name: set(cut.parents) for cut in made.log("c", 20, 2.0)}
    assert parents == {"a": {"e", "c"}, "b": {"e", "c"}}


@given(st.lists(st.floats(0, 9, width=16) | st.just(math.nan), min_size=2, max_size=9), st.randoms())
def test_nobody_is_replaced_and_cloned_at_once(values: list[float], order: Any) -> None:
    """And never more than half, whatever the values and the order of arrival."""
    items = [(str(place), value) for place, value in enumerate(values)]
    made = Generations("loss", "min", 10, 0.5)
    made.start([name for name, _ in items])
    order.shuffle(items)
    cuts = [cut for name, value in items for cut in made.log(name, 10, value)]
    gone = {cut.name for cut in cuts}
    assert len(gone) <= len(values) // 2
    assert not gone & {parent for cut in cuts for parent in cut.parents}


def test_a_clones_values_are_near_its_parents_and_within_the_space() -> None:
    """Times 0.8 or 1.2; at an edge the other way; a whole number by one at least; a choice is drawn anew."""
    source = random.Random(0)
    space = {
        "lr": loguniform(1e-4, 1e-1),
        "wd": uniform(0, 1),
        "k": randint(1, 9),
        "how": ["a", "b"],
        "bits": choice([8]),
    }
    seen = [
        explored(space, {"lr": 1e-2, "wd": 1.0, "k": 2, "how": "a", "bits": 8}, source) for _ in range(60)
    ]
    assert {round(found["lr"], 6) for found in seen} == {0.008, 0.012}
    assert {found["wd"] for found in seen} == {0.8}
    assert {found["k"] for found in seen} == {1, 3} and type(seen[0]["k"]) is int
    assert {found["how"] for found in seen} == {"a", "b"} and {found["bits"] for found in seen} == {8}
    assert all(0 <= explored(space, {"wd": 0.0}, source)["wd"] <= 1 for _ in range(9)), (
        "0 times 1.2 is 0: drawn anew"
    )


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for the records."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))


TRAIN = """
def train(lr, epochs=60, go=""):
    import time, tsnb
    from pathlib import Path
    from tsnb.stream.this_process import this_process
    weight, seen = 0.0, []
    lr = tsnb.live("lr", lr, bounds=(0.0, 1.0))
    for epoch in range(epochs):
        for number, (labels,) in enumerate(tsnb.attach()):
            weight += float(lr)
            seen.append((epoch, labels.tolist()))
            tsnb.log(gain=weight)
            while go and len(seen) == 100 and not (this_process.boundary or Path(go).exists()):
                time.sleep(0.005)  # until a clone is wished for
    return weight, seen
"""


def made(source: str) -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    import __main__

    exec(compile(source, "<cell>", "exec"), vars(__main__))
    return vars(__main__)["train"]


@pytest.mark.system
@pytest.mark.slow
def test_the_worst_goes_on_as_a_changed_clone_of_the_best_and_loses_no_sample(
    numbers: Any, records: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real trials: a clone has its parent's weight, takes each sample once, and the tables say whose clone it is."""
    found: Any = tsnb.sweep(
        made(TRAIN),
        space={"lr": loguniform(1e-3, 1.0)},
        n=3,
        evolve=tsnb.search.population("gain", every=60, mode="max"),
        epochs=5,
        seed=3,
        go=str(tmp_path / "go"),
    )
    deadline = time.monotonic() + LIMIT_S
    while not any(trial.parent for trial in found.values()) and not found.over:
        assert time.monotonic() < deadline, capsys.readouterr().out
        time.sleep(0.02)
    (tmp_path / "go").touch()
    found.wait(LIMIT_S)
    clones = [trial for trial in found.values() if trial.parent is not None]
    assert clones, capsys.readouterr().out
    # one that is to be replaced may come to its end before it can be stopped
    assert len([trial for trial in found.values() if trial.state == "done"]) >= 3
    assert {cut.step for cut in found.stopped_early.values()} <= {60 * k for k in range(1, 9)}
    rows = {row["name"]: row for row in found.results().to_dict("records")}
    for clone in clones:
        assert clone.parent is not None
        parent = found[clone.parent.name]
        assert rows[clone.name]["parent"] == f"{parent.name}, {clone.parent.place}"
        assert clone.changes[-1].name == "lr"
        if clone.state == "done":
            weight, seen = clone.result()
            assert weight > 0
            for epoch in range(5):
                assert sorted(x for e, labels in seen if e == epoch for x in labels) == [
                    float(i) for i in range(400)
                ]
    assert "takes its place (lr " in capsys.readouterr().out
    assert "parent" in repr(found).splitlines()[1]
    kept = tsnb.results(trial=found.name).to_dict("records")
    assert {row["name"] for row in kept} == set(found), "clones are of the population"
    assert found.best().state == "done"
    figure = tsnb.plot("lineage", trial=found.name)
    assert len(figure.layout.yaxis.ticktext) == len(found)


@pytest.mark.system
@pytest.mark.slow
def test_the_command_line_breeds_as_the_function_does(numbers: Any, tmp_path: Path) -> None:
    """`tsnb sweep --population` tells of the clones, too, each with the trial that it came from."""
    (tmp_path / "bred.py").write_text(
        TRAIN.replace("epochs=60", "epochs=20"), encoding="utf-8"
    )  # 33 generations
    line = "bred:train --stream numbers --space lr=loguniform(1e-3,1) --n 3 --seed 3 --json"
    rule = "--population gain --every 60 --mode max --share 34%"
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "sweep", *line.split(), *rule.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}", "TSNB_PROJECT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    began, *ends = [json.loads(row) for row in done.stdout.splitlines()]
    assert began["sweep"] == "train" and list(began["trials"]) == ["train-1", "train-2", "train-3"]
    clones = {end["trial"]: end["parent"] for end in ends if "parent" in end}
    assert clones and clones["train-4"] in began["trials"], done.stderr
    assert {end["state"] for end in ends} <= {"done", "pruned"}


def test_where_no_clone_can_be_made_the_trial_goes_on_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its parent cannot be cloned, or has just ended; it is compared again at the next generation."""

    class Member:
        live: ClassVar[dict[str, float]] = {"lr": 0.1}
        report: ClassVar[dict[str, Any]] = {}

        def __init__(self, name: str) -> None:
            self.name, self.state, self.life = name, "running", SimpleNamespace(plan=None)
            self.parent = None

    class News(NamedTuple):
        trial: Member
        rows: list[Any]
        state: str = "running"

    said: list[str] = []
    params: dict[str, dict[str, Any]] = {"p-1": {}, "p-2": {}}
    plan: Any = SimpleNamespace(options=SimpleNamespace(seed=0))
    source = Breeding("p", plan, params, None, {"lr": uniform(0, 1)})  # type: ignore[arg-type]
    monkeypatch.setattr(source, "say", said.append)
    generations = Generations("loss", "min", 10, 0.5)
    conductor = Conductor(source, Places(2), generations)
    members = {name: Member(name) for name in ("p-1", "p-2")}
    conductor.trials = members  # type: ignore[assignment]
    generations.start(members)

    def refuse(*_: Any) -> None:
        raise TsnbError("it has a running thread")

    monkeypatch.setattr(sweeps_population, "launch", refuse)
    monkeypatch.setattr(source, "_outlet", lambda _: None)

    def log(name: str, step: int, loss: float) -> list[Any]:
        row = SimpleNamespace(step=step, samples=step, numbers={"loss": loss})
        news: Any = News(members[name], [row])
        return conductor._judged(news)

    assert log("p-1", 10, 1.0) + log("p-2", 10, 2.0) == []
    assert said == ["p-2 continues at step 10, loss 2, rank 2 of 2: it has a running thread"]
    members["p-1"].state = "crashed"
    assert log("p-1", 20, 1.0) + log("p-2", 20, 2.0) == []
    assert said[1] == "p-2 continues at step 20, loss 2, rank 2 of 2: the better trials have ended"
    generations.check()


@pytest.mark.system
def test_values_that_nothing_can_change_end_the_population_with_the_line_to_write(numbers: Any) -> None:
    """At its first number, not after the first generation."""
    plain = TRAIN.replace('tsnb.live("lr", lr, bounds=(0.0, 1.0))', "lr")
    found = tsnb.sweep(
        made(plain), space={"lr": uniform(0, 1)}, n=2, evolve=tsnb.search.population("gain", mode="max")
    )
    with pytest.raises(TsnbError, match=r"Write lr = tsnb.live\('lr', lr\) at the top"):
        found.wait(LIMIT_S)
    assert found.over and all(trial.state == "stopped" for trial in found.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 1}, "n=1 is invalid. Pass a whole number, 2 or more"),
        ({"every": 0}, "every=0 is invalid. Pass a whole number, 1 or more"),
        ({"share": 0.7}, "share=0.7 is invalid. Pass a number above 0 and at most 0.5"),
        ({"at_once": 2}, "at_once= does not work with evolve="),
        ({"space": {}}, "A population needs hyperparameters to change"),
        ({"space": {"seed": [1, 2]}}, "seed cannot be in the space"),
        ({"space": {"lr": 3}}, "lr=3 cannot be drawn from"),
        ({"metric": "gain"}, "tsnb cannot tell whether a high or a low 'gain' is better"),
        ({"detach": True}, "detach=True is invalid, because a population clones its trials"),
        ({"device": "cuda:0"}, "device='cuda:0' is invalid, because a population clones its trials"),
        ({"engine": "ray"}, "engine='ray' is invalid, because a population clones its trials"),
        ({"name": "no name"}, "cannot name a sweep"),
    ],
)
def test_what_cannot_be_a_population_is_told_before_anything_starts(
    options: dict[str, Any], said: str
) -> None:
    """With the way out."""
    given: dict[str, Any] = {"space": {"lr": uniform(0, 1)}, "n": 2, **options}
    rule = {word: given.pop(word) for word in ("metric", "every", "share") if word in given}
    with pytest.raises((ValueError, TsnbError), match=said.replace("(", r"\(").replace(".", r"\.")):
        tsnb.sweep(made(TRAIN), evolve=tsnb.search.population(**rule), **given)
    assert not list(tsnb.trials)
