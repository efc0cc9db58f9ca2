"""The measurements: costs that are known come out, and nothing is left behind.

Loader and step burn CPU time, counted by the clock of their own thread, so a busy machine does not change what is
expected.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

import tsnb
from tests.system.scripts import ROOT
from tsnb.errors import LoaderFailed, TsnbError
from tsnb.machine.processes import children_of
from tsnb.stalling.measured_code import undisturbed
from tsnb.stalling.measuring import fresh, rows, run, wait_for_gpu

SAMPLE_S = 0.002
STEP_S = 0.012
BATCH = 8


def numpy_draws() -> float:
    """Return a number of numpy's global generator."""
    return float(np.random.random())  # noqa: NPY002  # it is what users' transforms draw from


def burn(cpu_s: float) -> None:
    """Keep a core busy for so much CPU time."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


class Costly(Dataset[Any]):
    """Each sample takes `SAMPLE_S` of CPU."""

    def __init__(self, samples: int, failing: bool = False) -> None:
        self.samples, self.failing = samples, failing

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.failing:
            raise OSError("the disk is on fire")
        burn(SAMPLE_S)
        return torch.zeros(4), index


class Sleepy(Dataset[Any]):
    """Each of 64 samples takes a while and no core, so workers finish at one moment."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(0.05)
        return index


class Endless(IterableDataset[Any]):
    """Never ends, and has no length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.zeros(4)


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize(("workers", "samples"), [(2, 4000), (0, 400), (1, 40)])
def test_known_costs_come_out(workers: int, samples: int) -> None:
    """CPU a sample of loader and step, whether workers load or not, in long epochs and in one of five batches."""
    steps = []

    def step(batch: Any) -> None:
        steps.append(len(batch[0]))
        burn(STEP_S)

    loader = DataLoader(Costly(samples), BATCH, shuffle=True, num_workers=workers)
    told = tsnb.stalls(loader, train_step=step, seconds=1.0)
    assert told.computing is not None and told.batch_size == BATCH and set(steps) == {BATCH}
    # a busy machine makes even CPU time longer, by its caches; never shorter
    assert 0.85 < (told.plain.cpu_s + told.plain.taking_s) / SAMPLE_S < 2
    assert 0.85 < (told.served.cpu_s + told.served.taking_s) / SAMPLE_S < 2
    assert 0.95 < told.computing.cpu_s / (STEP_S / BATCH) < 1.6
    assert told.plain.workers == workers
    if workers:  # it is they who load, not the training thread
        assert told.plain.cpu_s > 3 * told.plain.taking_s
    else:
        assert told.plain.taking_s > 3 * told.plain.cpu_s
    assert told.stalled is not None and 0 <= told.stalled < 1
    assert "samples/s" in repr(told) and "num_workers" in told.text + repr(told.plain) + "num_workers"


@pytest.mark.slow
@pytest.mark.system
def test_nothing_is_changed_and_nothing_is_left() -> None:
    """A loop over persistent workers goes on, torch's threads and random numbers are as before, no process stays."""
    dataset = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    loop = iter(loader)
    seen = [next(loop)[0]]
    threads = torch.get_num_threads()
    below = {*children_of(os.getpid())}
    state = torch.random.get_rng_state()
    torch.set_num_threads(2)
    told = tsnb.stalls(loader, seconds=0.2, threads=1)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not tsnb.streams.list()
    workers = {
        p.pid
        for p in psutil.Process().children(recursive=True)
        if "resource_tracker" not in " ".join(p.cmdline())
    }
    assert workers <= below
    seen += [batch[0] for batch in loop]
    assert torch.equal(torch.cat(seen), torch.arange(64.0))
    assert told.computing is None and told.model_per_s is None and told.stalled is None


class Drawing(Dataset[Any]):
    """Each sample draws from every global generator, and from some of its own."""

    def __init__(self) -> None:
        self.luck = random.Random(1)
        self.generator = np.random.default_rng(1)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        own = self.luck.random() + self.generator.random()
        return torch.rand(4) + random.random() + numpy_draws() + own


def draws(dataset: Drawing) -> list[Any]:
    """Return the next number of each generator."""
    given = [random.random(), numpy_draws(), torch.rand(1).item()]
    return [*given, dataset.luck.random(), dataset.generator.random()]


@pytest.mark.system
def test_random_numbers_go_on_as_if_nothing_had_drawn() -> None:
    """Python's, numpy's, torch's, a dataset's own and a sampler's: without workers the loader draws in this process."""

    def step(batch: torch.Tensor) -> None:
        batch.add(random.random() + numpy_draws() + torch.rand(1).item())

    def seeded() -> Drawing:
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(7)
        return Drawing()

    wanted = draws(seeded())
    for given in (None, step):
        dataset = seeded()
        order = torch.Generator().manual_seed(3)
        sampler = torch.utils.data.RandomSampler(dataset, generator=order)
        loader = DataLoader(dataset, batch_sampler=torch.utils.data.BatchSampler(sampler, 4, drop_last=False))
        tsnb.stalls(loader, train_step=given, seconds=0.05)
        assert draws(dataset) == wanted
        assert torch.equal(order.get_state(), torch.Generator().manual_seed(3).get_state())


def test_the_generators_of_a_gpu_are_put_back_where_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for them would start CUDA where nothing has; what a step starts begins anew as it was seeded."""
    states = [torch.tensor([1]), torch.tensor([2])]
    began = [torch.Generator().manual_seed(9), torch.Generator().manual_seed(8)]
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(states))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda found: states.__setitem__(slice(None), found))
    monkeypatch.setattr(torch.cuda, "default_generators", began, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with undisturbed([]):
        states[:] = [torch.tensor([5]), torch.tensor([6])]
    assert [int(state) for state in states] == [1, 2]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with undisturbed([]):
        states[:] = [torch.tensor([5]), torch.tensor([6])]
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        torch.rand(3, generator=began[0])
    assert torch.equal(began[0].get_state(), torch.Generator().manual_seed(9).get_state())
    assert [int(state) for state in states] == [5, 6]


def test_waiting_for_a_gpu_starts_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tsnb.stalls` measures in the notebook, where `torch.cuda.is_available()` would start CUDA's driver."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("this starts the driver"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: pytest.fail("there is nothing to wait for"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not wait_for_gpu()
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert wait_for_gpu() and waits == [1]


def iter_again(batches: list[Any]) -> Any:
    """Return an iterable without a length."""

    class Again:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches)

    return Again()


@pytest.mark.slow
@pytest.mark.system
def test_any_iterable_that_begins_anew_can_be_measured() -> None:
    """A list of batches, and a stream without length or end."""
    steps: list[int] = []
    told = tsnb.stalls([torch.zeros(5, 2)] * 20, train_step=lambda _: steps.append(1), seconds=0.1)
    assert told.batch_size == 5 and told.plain.workers == 0 and steps
    assert told.steps == len(steps) and f"The step ran {told.steps:,} times" in told.text
    assert len(told.rounds) == 3
    low, high = told.sharing(2).gain_interval or (0.0, 0.0)
    assert 0 < low <= told.sharing(2).gain <= high
    assert tsnb.stalls([torch.zeros(5, 2)] * 2, seconds=0.1).batch_size == 5
    unmeasured = iter_again([torch.zeros(5, 2)] * 20)
    assert tsnb.stalls(unmeasured, seconds=0.1).batch_size == 5
    assert tsnb.stalls(DataLoader(Endless(), 16, num_workers=1), seconds=0.1).batch_size == 16


@pytest.mark.system
def test_what_cannot_be_measured_says_why() -> None:
    """Iterators, emptiness, odd numbers; an error in the loader or in the step is the user's own."""
    batches = [torch.zeros(5, 2)] * 9
    with pytest.raises(TypeError, match=r"Pass the DataLoader, not iter\(loader\)"):
        tsnb.stalls(iter(batches))
    with pytest.raises(TypeError, match="loader=int"):
        tsnb.stalls(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a batch"):
        tsnb.stalls(batches, train_step=torch.zeros(3))  # type: ignore[arg-type]
    odd: dict[str, list[Any]] = {
        "n_trials": [0, -1, 2.5, True, "4", None, float("nan")],
        "seconds": [0, -1.0, float("nan"), float("inf"), True, "2", None],
        "threads": [0, -1, 1.5, True, "1", None],
        "cold": [None, "no", 2],
    }
    for name, values in odd.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{name}={value!r}(: give| is invalid\. Pass) .*[a-z]"):
                tsnb.stalls(batches, **{name: value})
    with pytest.raises(LoaderFailed, match="no batch"):
        tsnb.stalls([])
    with pytest.raises(ValueError, match="epoch of one batch"):
        tsnb.stalls(batches[:1])
    with pytest.raises(LoaderFailed, match="the disk is on fire"):
        tsnb.stalls(DataLoader(Costly(64, failing=True), BATCH, num_workers=1))
    with pytest.raises(TsnbError, match="the step raised ZeroDivisionError at its first batch"):
        tsnb.stalls(batches, train_step=lambda _: 1 / 0)
    assert not tsnb.streams.list()


class Pair(NamedTuple):
    """A batch as some people build it."""

    name: str
    images: Any


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(7, 2), 7),
        ({"text": ["a", "b"], "ids": np.zeros((3, 2))}, 3),
        (Pair("train", [torch.zeros(6, 1)]), 6),
        ((torch.tensor(1.0), torch.zeros(4)), 4),
        ("words", 1),
    ],
)
def test_the_samples_of_a_batch_are_counted_in_any_nesting(batch: Any, samples: int) -> None:
    """By the first tensor or array that has a first dimension."""
    assert rows(batch) == samples


def test_a_step_that_raises_is_told_with_its_line_and_the_batch_it_got() -> None:
    """The usual mistake is a batch of another form than the step takes; nothing is left of the measurement."""
    loader = DataLoader(TensorDataset(torch.zeros(64, 2), torch.zeros(64)), 4)

    def step(batch: Any) -> None:
        batch["image"].sum()

    with pytest.raises(
        TsnbError,
        match=r"the step raised TypeError at its first batch, in .*test_measuring\.py, line \d+: list indices .*"
        r"\nThe batch is a list of 2: Tensor \[4, 2\], Tensor \[4\]\..*step\(next\(iter\(loader\)\)\)",
    ) as raised:
        tsnb.stalls(loader, train_step=step, seconds=0.1)
    assert isinstance(raised.value.__cause__, TypeError)
    assert not tsnb.streams.list()


class Interrupted(Dataset[Any]):
    """Ctrl-C reaches all processes of a terminal, workers too."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGINT)
        return torch.tensor(index)


@pytest.mark.system
def test_batches_that_workers_finish_together_are_counted_together() -> None:
    """Those of one round come at one moment: from the last of one to the first of another there is one too few.

    Of a plain loader and of a served one it was not the same one: sharing looked a quarter slower, or faster.
    """
    loader = DataLoader(Sleepy(), batch_size=1, num_workers=3)
    for ahead in range(3):
        counted = run(fresh(loader), None, 0.2, ahead, 64, workers=3)
        assert counted.batches and counted.batches % 3 == 0


FORKED = """
import os, signal, sys, torch
from torch.utils.data import DataLoader, TensorDataset
import tsnb
came = []

def press():
    if not came:
        came.append(True)
        signal.raise_signal(signal.SIGINT)

os.register_at_fork(after_in_parent=press)
try:
    tsnb.stalls(DataLoader(TensorDataset(torch.zeros(64, 2)), 4, num_workers=1), seconds=0.1)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.system
def test_an_interrupt_while_a_worker_is_forked_comes_out() -> None:
    """Python would print and drop it, with whatever is done at a fork cut short: locks taken and never given back."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.stdout, ran.returncode) == ("interrupted\n", 0), ran.stderr
    assert "ignored" not in ran.stderr


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_interrupt_is_not_for_workers(context: str) -> None:
    """They end when their owner says so: those that had ended at once held its end up, for five seconds each time."""
    loader = DataLoader(Interrupted(), 4, num_workers=1, multiprocessing_context=context)
    with tsnb.serve(loader, name="numbers"), tsnb.attach("c", "numbers") as batches:
        assert sorted(number for batch in batches for number in batch.tolist()) == list(range(64))
    assert sorted(torch.cat(list(fresh(loader))).tolist()) == list(range(64))


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_interrupt_while_workers_end_comes_out(
    number: int, *, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that was left to the iterator's destructor, Python dropped the interrupt and the measurement went on."""
    dataset = TensorDataset(torch.arange(400.0))
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=persistent)
    real, ended = _MultiProcessingDataLoaderIter._shutdown_workers, list[int]()

    def end(workers: Any) -> None:
        there = not workers._shutdown and threading.current_thread() is threading.main_thread()
        real(workers)
        ended.extend([number] * there)
        if there and len(ended) == number:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", end)
    with pytest.raises(KeyboardInterrupt):
        tsnb.stalls(loader, train_step=lambda _: None, seconds=0.1)
    assert not tsnb.streams.list()


@pytest.mark.slow
@pytest.mark.parametrize("look", ["tsnb.stalls(loader, seconds=0.2)", "next(iter(fresh(loader)))"])
def test_its_workers_end_with_a_process_that_is_killed(tmp_path: Path, look: str) -> None:
    """At once, wherever they are: torch's own notice it between two batches, and one that is just starting never."""
    (tmp_path / "looks.py").write_text(
        "import os, time, pathlib, torch, tsnb\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "from tsnb.stalling.measuring import fresh\n"
        "class Slow(Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, k):\n"
        "        pathlib.Path('made').write_text(str(os.getpid()))\n"
        "        os.rename('made', 'worker')\n"
        "        time.sleep(600)\n"
        "loader = DataLoader(Slow(), 2, num_workers=1)\n"
        f"{look}\n"
    )
    looking = subprocess.Popen(
        [sys.executable, "looks.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "worker").exists():
            assert looking.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        worker = psutil.Process(int((tmp_path / "worker").read_text()))
        assert worker.pid != looking.pid
    finally:
        looking.kill()
        looking.wait()
    try:
        _, alive = psutil.wait_procs([worker], timeout=30)
        assert alive == []
    finally:
        if worker.is_running():
            worker.kill()


class Frozen(torch.nn.Module):
    """Burns as much CPU for a batch as three of its batches cost to load."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        burn(3 * BATCH * SAMPLE_S)
        return 2 * numbers.float()


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 1])
def test_a_frozen_part_is_measured_apart_from_the_rest_of_its_loader(workers: int) -> None:
    """Its share comes out, the step gets its features, and the sentence names it."""
    seen = []

    def step(batch: Any) -> None:
        seen.append(batch[0].dtype)

    loader = DataLoader(Costly(2000), BATCH, num_workers=workers)
    told = tsnb.stalls(loader, step, then=Frozen().eval(), seconds=0.4)
    assert told.frozen is not None
    assert told.frozen.name == "Frozen"
    assert told.frozen.share == pytest.approx(0.75, abs=0.15)
    assert set(seen) == {torch.float32}
    assert "The frozen part is the limit: Frozen takes" in told.text
    assert told.to_dict()["frozen"]["share"] == told.frozen.share
    assert tsnb.stalls(DataLoader(Costly(400), BATCH), seconds=0.1).frozen is None
