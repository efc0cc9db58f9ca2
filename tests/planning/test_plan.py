"""`tsnb.plan` with real trials: what they cost, nothing left behind, and the chosen way carried out."""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import tsnb
from tests.by_value import by_value
from tsnb.errors import NotShippable, TsnbError
from tsnb.experiments.cells import run_cell
from tsnb.experiments.overview import board
from tsnb.kernels.cargo.capture import UndefinedNames
from tsnb.planners.timeline import newest
from tsnb.planning.conducting import still_to_come
from tsnb.planning.waves import next_wave
from tsnb.planning.ways import TOGETHER
from tsnb.planning.wishes import wanted
from tsnb.telemetry.forecast.eta import NO_ETA, Eta

pytestmark = pytest.mark.system

BATCH, SAMPLES = 4, 160

SOURCE = """
def train(ms=1.0, mb=0, epochs=1, fails=False, leaves=False):
    import time
    import tsnb
    taken = []
    hold = bytearray(mb << 20)
    for _ in range(epochs):
        for number, batch in enumerate(tsnb.attach()):
            if fails and number == 3:
                raise RuntimeError("out of luck")
            if leaves and number == 3:
                return 0
            taken += batch.tolist()
            end = time.thread_time() + ms / 1000 * len(batch)
            while time.thread_time() < end:
                pass
    return taken
"""


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


class Hoarder(Numbers):
    """Its workers keep 200 MiB each."""

    held = b""

    def __getitem__(self, index: int) -> torch.Tensor:
        self.held = self.held or random.randbytes(200 << 20)
        return super().__getitem__(index)


class Endless(IterableDataset[Any]):
    """Says nothing of its length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(torch.tensor, range(SAMPLES))


def iter_only() -> DataLoader[Any]:
    return DataLoader(Endless(), BATCH)


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    tsnb.trials.clear()


@pytest.mark.slow
def test_trials_are_profiled_planned_and_run() -> None:
    """Costs as they were made, memory as it was taken, a choice in words; every trial gets every sample."""
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH, shuffle=True)
    state = torch.random.get_rng_state()
    found = tsnb.plan(
        {"small": (train, {"ms": 2.0}), "large": (train, {"ms": 6.0, "mb": 200, "epochs": 2})},
        loader=loader,
        seconds=0.2,
    )
    assert not tsnb.streams.list() and not list(tsnb.trials)  # nothing of it is kept
    assert torch.equal(torch.random.get_rng_state(), state)
    small, large = found.costs["small"], found.costs["large"]
    assert 0.002 * 0.9 < small.cpu_s < large.cpu_s and large.cpu_s > 0.006 * 0.9
    assert small.cpu_s * 0.9 <= small.step_s + 0.001
    assert large.memory_bytes - small.memory_bytes > 150 << 20
    assert found.choice in found.ways and found.choice.makespan_s > 2 * SAMPLES * 0.006 * 0.9
    assert [bar.name for bar in tsnb.plot("plan").data] == ["planned"]
    assert json.loads(json.dumps(found.to_dict()))["choice"] == found.choice.way
    assert "large" in repr(found) and "80% interval" in repr(found) and "<table" in found._repr_html_()
    assert "white-space:pre" in found._repr_html_(), "a page that breaks long lines would break the bars"
    done = found.run(name="numbers")
    assert {trial.state for trial in done.values()} == {"done"}
    assert {bar.name for bar in tsnb.plot("plan").data} == {"planned", "actual"}
    assert found.gantt().count("actual") == 2 and newest() == found.timeline
    assert found.timeline.streams and all(name.startswith("numbers") for name in found.timeline.streams)
    for each in found.to_dict()["trials"]:
        start_s, end_s = each["actual_s"]
        assert 0 <= start_s < end_s
    assert sorted(done["small"].result()) == list(range(SAMPLES))
    assert sorted(done["large"].result()) == sorted(2 * list(range(SAMPLES)))
    assert not tsnb.streams.list()


def shifted(batch: torch.Tensor) -> torch.Tensor:
    """Stand for a frozen network, which takes much longer than its loader."""
    time.sleep(0.02)
    return batch + 10_000


@pytest.mark.slow
def test_trials_on_a_frozen_part_are_planned_and_run_on_its_features() -> None:
    """The plan knows what limits; the stream that it serves computes the same."""
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH, shuffle=True)
    found = tsnb.plan({"a": train, "b": train}, loader=loader, then=shifted, seconds=0.2)
    assert found.loading.frozen is not None
    assert found.loading.frozen.name == "shifted"
    assert found.loading.frozen.share > 0.5
    if found.choice.way == TOGETHER:
        assert "The frozen part is the limit: shifted takes" in found.text
    done = found.run(name="features")
    assert sorted(done["a"].result()) == [10_000 + number for number in range(SAMPLES)]


@pytest.mark.slow
def test_trials_run_with_the_threads_that_were_planned() -> None:
    """Each is profiled with one and with two; the table, the JSON and the processes say the same."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "import time, torch, tsnb\n"
        "def train(width, epochs=2):\n"
        "    net = torch.randn(width, width)\n"
        "    for _ in range(epochs):\n"
        "        for batch in tsnb.attach():\n"
        "            net @ net\n"
        "            time.sleep(0.005)  # else it is over between two looks at it\n"
        "    return torch.get_num_threads()\n",
        made,
    )
    trials = {"wide": (made["train"], {"width": 1500}), "narrow": (made["train"], {"width": 8})}
    loader = DataLoader(Numbers(), BATCH, shuffle=True)
    found = tsnb.plan(trials, loader=loader, seconds=0.2, threads=(1, 2), cores=2)
    planned = found.choice.threads
    assert planned["narrow"] == 1 and planned["wide"] in (1, 2)
    chosen = next(way for way in found.to_dict()["ways"] if way["way"] == found.choice.way)
    assert chosen["threads"] == dict(planned)
    assert ("threads" in found.table[0]) == any(2 in way.threads.values() for way in found.ways)
    done = found.run(name="numbers")
    assert {name: trial.result() for name, trial in done.items()} == dict(planned)


@pytest.mark.slow
def test_a_cells_trial_stands_for_its_code() -> None:
    """With other values of what it reads; it runs as it was planned, on the device that was asked for."""
    cell = SOURCE + "taken = len(train(ms=ms, epochs=epochs))\n"
    with tsnb.serve(DataLoader(Numbers(), BATCH), name="first"):
        first = run_cell("first", cell, {"ms": 1.0, "epochs": 1}, stream="first")
        first.wait()
    found = tsnb.plan(
        {"one": first, "two": (first, {"ms": 4.0, "epochs": 3})},
        loader=DataLoader(Numbers(), BATCH),
        seconds=0.2,
        device=["cpu"],
    )
    assert found.costs["two"].cpu_s > found.costs["one"].cpu_s + 0.002 and not found.open_ended
    assert found.to_dict()["trials"][0]["gets_device"] == "cpu" and found.soonest_s > 0.4
    done = found.run(name="numbers")
    assert (done["one"]["taken"], done["two"]["taken"]) == (SAMPLES, 3 * SAMPLES)
    assert {trial.options["device"] for trial in done.values()} == {"cpu"}


@pytest.mark.slow
def test_what_is_assumed_is_said_and_a_loaders_memory_counts() -> None:
    """A trial that does not say how many epochs it takes; a loader whose workers keep more than there is for all."""
    unsaid = SOURCE.replace("epochs=1", "rounds=1").replace("range(epochs)", "range(rounds)")
    loader = DataLoader(Hoarder(), BATCH, shuffle=True, num_workers=1)
    trials = {"a": (by_value(unsaid), {"ms": 2.0}), "b": (by_value(SOURCE), {"ms": 2.0})}
    found = tsnb.plan(trials, loader=loader, seconds=0.2, memory="300MiB")
    assert found.open_ended == found.to_dict()["open_ended"] == ["a"]
    assert "a is assumed to train for one epoch" in found.text and "b is taken" not in found.text
    fits = {way.way: way.fits for way in found.ways}
    assert fits["in turn"] and not fits["separate loaders"] and "not enough memory" in found.text


@pytest.mark.parametrize(
    ("state", "eta", "said"),
    [
        ("running", Eta(8.0, 7.0, 9.0, epochs=3), (100.0, 108.0)),
        ("running", Eta(8.0, 7.0, 9.0), (100.0, 120.0)),  # to the end of an epoch, of nobody knows how many
        ("starting", NO_ETA, (100.0, 120.0)),
        ("done", NO_ETA, None),
    ],
)
def test_what_is_still_to_come_is_what_every_screen_says(state: str, eta: Eta, said: object) -> None:
    """As soon as the readings tell how long it takes; what was foretold before, until then; never before now."""
    trial = cast("Any", SimpleNamespace(state=state, eta=eta))
    assert still_to_come(trial, 100.0, 120.0) == said
    if eta is NO_ETA and said:
        assert still_to_come(trial, 130.0, 120.0) == (130.0, 130.0)


def test_what_cannot_be_run_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that cannot be one, a parameter that the function does not have: in the user's words, within moments."""
    served: list[Any] = []
    monkeypatch.setattr("tsnb.stalling.serving.serve", lambda *given, **_: served.append(given))
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH)
    with pytest.raises(ValueError, match=r"^'small & large' cannot name a trial.*Try 'small-large'"):
        tsnb.plan({"small & large": train}, loader=loader)
    with pytest.raises(TypeError, match="unexpected keyword argument 'msec'"):
        tsnb.plan([(train, {"msec": 2.0})], loader=loader)
    assert not served


def test_epochs_that_are_planned_are_those_that_are_run() -> None:
    """`epochs=` is handed to a function that has such a parameter; what a trial itself was given counts before it."""
    train, made = by_value(SOURCE), {"__name__": "__main__"}
    exec("def plain():\n    pass", made)
    names = {"default": train, "own": (train, {"epochs": 5}), "plain": made["plain"]}
    default, own, plain = wanted(names, 3)
    assert [each.epochs for each in (default, own, plain)] == [3.0, 5.0, 3.0]
    assert [each.params.get("epochs") for each in (default, own, plain)] == [3, 5, None]
    assert [each.name for each in wanted([train], 3)] == ["train"]
    assert wanted(train, 2.5)[0].params == {"epochs": 2.5} and type(default.params["epochs"]) is int
    assert wanted(train, None)[0].params == {}
    cell = run_cell("cell", "epochs = 1", {}).wait(60)
    assert wanted({"again": cell}, 3)[0].params == {}, "it does not take any from outside"


@pytest.mark.slow
def test_a_trial_that_never_takes_a_batch_is_told_so_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It did not end by itself: it was stopped, after the time that it was given. Meanwhile a line says who is late."""
    monkeypatch.setattr("tsnb.planning.waves.LIMIT_S", 4.0)
    monkeypatch.setattr("tsnb.planning.waves.SILENT_S", 1.0)
    monkeypatch.setattr("tsnb.planning.trial_costs.LIMIT_S", 4.0)
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def sleeps():\n    import time\n    time.sleep(600)", made)
    with pytest.raises(
        TsnbError, match=r"'sleeps' took no batch within 4 s\. Let it take its batches from tsnb\.attach"
    ):
        tsnb.plan(made["sleeps"], loader=DataLoader(Numbers(), BATCH), seconds=0.1)
    assert capsys.readouterr().out.count("sleeps: no batch yet after 1 s, it has to take its batches") == 1


def test_trials_are_profiled_in_waves_that_fit_the_memory() -> None:
    """One alone, since nothing is known; then as many as fit if each needs twice the largest; never none."""
    assert next_wave(8, 0.0, 16.0) == 1
    assert next_wave(7, 1.0, 16.0) == 7
    assert next_wave(7, 2.0, 16.0) == 4
    assert next_wave(7, 30.0, 16.0) == 1, "one that is larger than the memory runs alone"
    assert next_wave(7, 1.0, math.inf) == 7
    assert next_wave(0, 1.0, 16.0) == 0
    left, seen, most = [3.0, 0.5, 2.0, 1.0, 2.5, 0.5], 0.0, 0.0
    while left:  # by waves, eight trials of 0.5 to 3 GiB in 8 GiB
        wave = left[: next_wave(len(left), seen, 8.0)]
        left = left[len(wave) :]
        most, seen = max(most, sum(wave)), max(seen, *wave)
    assert most <= 8.0


@pytest.mark.slow
def test_two_plans_at_the_same_time_profile_trials_of_one_name() -> None:
    """In two threads of a process, whose trials are on one board: the second had stopped those of the first."""
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH)

    def planned(_: int) -> set[str]:
        return set(tsnb.plan({"one": train, "two": train}, loader=loader, seconds=0.1).costs)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(planned, range(2))) == [{"one", "two"}] * 2
    assert not tsnb.streams.list() and not list(tsnb.trials)


@pytest.mark.slow
def test_a_trial_that_cannot_be_profiled_says_why_and_leaves_nothing() -> None:
    """One that raises, one that takes too few batches; the message names the way out."""
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH)
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def idle(): return 1", made)
    idle = made["idle"]
    with pytest.raises(TsnbError, match=r"'bad' failed while it was profiled: \w+: .*out of luck.*tsnb.run"):
        tsnb.plan({"good": train, "bad": (train, {"fails": True})}, loader=loader, seconds=0.1)
    with pytest.raises(TsnbError, match=r"'short' took only [234] batches, and profiling needs 8"):
        tsnb.plan({"short": (train, {"leaves": True})}, loader=loader, seconds=0.1)
    with pytest.raises(TsnbError, match=r"'none' ended without taking a batch.*tsnb\.attach"):
        tsnb.plan({"none": idle}, loader=loader, seconds=0.1)
    assert not tsnb.streams.list() and not list(tsnb.trials)
    with pytest.raises(ValueError, match="cores=0 is invalid"):
        tsnb.plan(train, loader=loader, cores=0)
    for wrong in ({"cores": "2"}, {"samples": -1}, {"samples": True}, {"seconds": 0}, {"seconds": math.nan}):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}=.* is invalid. Pass "):
            tsnb.plan(train, loader=loader, **wrong)
    with pytest.raises(ValueError, match=r'Pass a list, for example device=\["cuda:0", "cuda:1"\]'):
        tsnb.plan(train, loader=loader, device="cuda:0")
    with pytest.raises(ValueError, match="cuda:77"):
        tsnb.plan(train, loader=loader, device=["cuda:77"])
    with pytest.raises(ValueError, match=r"tsnb\.plan needs at least one trial"):
        tsnb.plan([], loader=loader)
    with pytest.raises(ValueError, match="has two trials named 'train'"):
        tsnb.plan([train, train], loader=loader)
    for wrong_loader, why in (
        (None, "Pass a DataLoader"),
        (iter(loader), "which can be read only once"),
    ):
        with pytest.raises(TypeError, match=why):
            tsnb.plan(train, loader=wrong_loader)
    with pytest.raises(ValueError, match="Pass samples="):
        tsnb.plan(train, loader=iter_only())
    for threads in (0, (), (1, 0), ("2",), 1.5, True):
        with pytest.raises(ValueError, match=r"threads=.* is invalid. Pass a number of torch threads"):
            tsnb.plan(train, loader=loader, threads=threads)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="8GiB"):
        tsnb.plan(train, loader=loader, memory="plenty")


UNFIT = """
def reads_nothing(x=1): return nowhere
def yields(): yield 1
async def waits(): pass
"""


def test_what_cannot_start_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of `tsnb.run`, by the trial's own name; nothing is said of how long it will take."""

    def measured(*_: Any, **__: Any) -> None:
        raise AssertionError("the loader was measured")

    monkeypatch.setattr("tsnb.planning.predicting.stalls", measured)
    made = vars(sys.modules["__main__"])  # undefined names are looked for in the script's own functions
    for name in ("reads_nothing", "yields", "waits"):
        monkeypatch.setitem(made, name, None)
    exec(UNFIT, made)
    train, loader = by_value(SOURCE), DataLoader(Numbers(), BATCH)
    trials: list[tuple[Any, type[Exception], str]] = [
        (made["reads_nothing"], UndefinedNames, "reads 'nowhere'"),
        (made["yields"], TypeError, "yields is a generator"),
        (made["waits"], TypeError, "waits is an async function"),
        (
            (train, {"ms": threading.Lock()}),
            NotShippable,
            "^Trial 'odd' cannot copy its parameter 'ms'",
        ),
        (tsnb.trial(engine="ray")(train), ValueError, "'odd' has engine='ray'"),
        (tsnb.trial(device="banana")(train), ValueError, "device='banana' does not exist here"),
    ]
    for given, error, words in trials:
        with pytest.raises(error, match=words):
            tsnb.plan({"good": train, "odd": given}, loader=loader)
    with pytest.raises(ValueError, match=r"device='banana' does not exist here\. Available: .*cpu"):
        tsnb.plan(train, loader=loader, device=("banana",))
    with pytest.raises(ValueError, match=r"cold='yes' is invalid\. Pass True or False"):
        tsnb.plan(train, loader=loader, cold="yes")  # type: ignore[arg-type]
    assert not capsys.readouterr().out and not tsnb.streams.list()


TIDY = """
def train(place, count, epochs=1):
    import os, time
    from pathlib import Path
    import tsnb
    here = Path(place)
    try:
        for _ in range(epochs):
            for number, batch in enumerate(tsnb.attach()):
                if number == 3:
                    (here / f"begun-{os.getpid()}").touch()  # one for each trial: epochs are many
                time.sleep(0.01)
    except KeyboardInterrupt:
        (here / f"told-{time.monotonic_ns()}").touch()
        end = time.monotonic() + 30
        while time.monotonic() < end and len(list(here.glob("told-*"))) < count:
            time.sleep(0.01)
        (here / f"saw-{len(list(here.glob('told-*')))}-{time.monotonic_ns()}").touch()
        raise
"""


@pytest.mark.slow
def test_an_interrupt_stops_all_trials_of_a_plan_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None trains on while another puts its things in order, and nothing is left; the interrupt comes out."""
    monkeypatch.setattr(board, "STOP_GRACE_S", 60.0)  # each waits until all were told
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(TIDY, made)
    found = tsnb.plan(
        {name: (made["train"], {"place": str(tmp_path), "count": 3, "epochs": 1000}) for name in "abc"},
        loader=DataLoader(Numbers(), BATCH),
        seconds=0.2,
    )
    for file in tmp_path.iterdir():
        file.unlink()  # of the profiles

    def interrupt() -> None:
        while len(list(tmp_path.glob("begun-*"))) < 3:
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert sorted(file.name.split("-")[1] for file in tmp_path.glob("saw-*")) == ["3", "3", "3"]
    assert {trial.state for trial in tsnb.trials.values()} == {"stopped"} and not tsnb.streams.list()


def test_a_number_of_epochs_may_be_numpys() -> None:
    """As a grid over `np.arange` gives it."""

    def train(epochs: int) -> None:
        """Do nothing."""

    assert [each.epochs for each in wanted([(train, {"epochs": np.int64(2)})], None)] == [2.0]
