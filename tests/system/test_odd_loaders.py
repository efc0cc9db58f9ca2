"""Loaders as real scripts have them: half-made subclasses, wrappers with workers, open databases, replay buffers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

import tsnb
from tests.system.conftest import Run
from tests.system.scripts import ROOT
from tsnb.errors import BatchNotShareable, TsnbError
from tsnb.stream.loader import packing
from tsnb.stream.loader.leaves import classify

pytestmark = pytest.mark.system


class Own(DataLoader[Any]):
    """A DataLoader by its class alone."""

    def __init__(self) -> None:
        self.batches = [torch.full((2,), float(k)) for k in range(4)]

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return 4


class Unsized(Own):
    """One that says nothing of its length."""

    __len__ = DataLoader.__len__


class Endless(IterableDataset[int]):
    """One whose writer has taken the largest length for endless."""

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[int]:
        return iter(range(1000))


class Empty(DataLoader[Any]):
    """One that forgot its dataset."""

    def __init__(self) -> None:
        self.size = 3


def test_a_loader_that_calls_itself_endless_is_as_long_as_it_says() -> None:
    """For its trials, for screens, and for a trial that plans as many epochs."""
    numbers = TensorDataset(torch.arange(40.0))
    drawn = RandomSampler(numbers, replacement=True, num_samples=10**18)
    for loader in (DataLoader(numbers, 4, sampler=drawn), DataLoader(Endless(), 4)):
        with tsnb.serve(loader, name="s") as stream, tsnb.attach("one", "s", join="here") as one:
            assert len(next(iter(one))) in (1, 4) and len(one) == len(loader)
            assert stream.status().epoch_batches == len(loader)


def test_a_stream_goes_on_from_the_last_epoch_that_may_be_asked_for() -> None:
    """From a state, or from its start: there are as many again."""
    with (
        tsnb.serve([torch.zeros(2)] * 3, name="s", first_epoch=(1 << 31) - 1),
        tsnb.attach("one", "s") as one,
    ):
        assert [sum(1 for _ in one) for _ in range(4)] == [3] * 4
    with tsnb.serve([torch.zeros(2)] * 3, name="s") as stream, tsnb.attach("one", "s") as one:
        state = {**one.state_dict(), "epoch": (1 << 31) - 1}
        one.load_state_dict(state)
        assert [sum(1 for _ in one) for _ in range(4)] == [3] * 4
        assert stream.status().epoch > 1 << 31
        with pytest.raises(ValueError, match="not a state"):
            one.load_state_dict({**state, "epoch": 1 << 31})


@pytest.mark.parametrize("seconds", [1e10, 1e300])
def test_a_stream_that_waits_for_ever_can_be_attached_to(seconds: float) -> None:
    """Longer than a message can say is three years."""
    batches = [torch.zeros(2)] * 3
    with tsnb.serve(batches, name="s", reconnect_s=seconds, stall_timeout_s=seconds) as stream:
        with tsnb.attach("one", "s") as one:
            assert sum(1 for _ in one) == 3
        assert stream.status().batches == 3


def test_a_dataloader_that_never_called_its_own_init_is_what_it_iterates() -> None:
    """Given as it is, and made by a function; one with nothing to iterate is refused with what to write."""
    for source, batches in ((Own(), 4), (lambda epoch: Own(), None), (Unsized(), None)):
        with tsnb.serve(source, name="s"), tsnb.attach("one", "s") as one:
            assert [float(x[0]) for x in one] == [0.0, 1.0, 2.0, 3.0]
            if batches is not None:
                assert len(one) == batches
            else:
                with pytest.raises(TypeError):
                    len(one)
    with pytest.raises(TypeError, match=r"Empty is a DataLoader without a dataset.*super\(\).__init__"):
        tsnb.serve(Empty(), name="s")


@pytest.mark.slow
def test_workers_of_a_loader_inside_an_object_do_not_end_the_script(run: Run) -> None:
    """The script has looked at a batch, so torch has a handler for signals; the object keeps its iterator."""
    script = run(
        """
    class Wrapped:
        def __init__(self, loader): self.loader = loader
        def __iter__(self):
            self.batches = iter(self.loader)
            return self
        def __next__(self): return next(self.batches)
    class Slow(Numbers):
        def __getitem__(self, i):
            time.sleep(0.05)
            return super().__getitem__(i)
    looked = iter(DataLoader(Slow(40), batch_size=4, num_workers=2))
    next(looked)
    for source in (Wrapped(DataLoader(Slow(40), batch_size=4, num_workers=2)), ):
        for served in (source, lambda epoch: source):
            with tsnb.serve(served, name="s"):
                batches = iter(tsnb.attach("c"))
                next(batches), next(batches)
                del batches
            for _ in range(100): time.sleep(0.01)
            say("goes", "on")
    say("own", len(list(looked)))
    """
    )
    assert script.expect("goes") == "on" and script.expect("goes") == "on"
    assert script.expect("own") == "9"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_database_that_is_open_already_is_told_with_the_way_out(workers: int, run: Run) -> None:
    """SQLite refuses another thread than the one that opened it."""
    script = run(
        f"""
    import sqlite3
    class Rows(torch.utils.data.Dataset):
        def __init__(self, **how): self.base = sqlite3.connect(":memory:", **how)
        def __len__(self): return 8
        def __getitem__(self, i): return torch.tensor(self.base.execute("select ?", (i,)).fetchone()[0])
    try: tsnb.serve(DataLoader(Rows(), batch_size=4, num_workers={workers}), name="s")
    except Exception as error: say("told", str(error).splitlines()[0])
    with tsnb.serve(DataLoader(Rows(check_same_thread=False), batch_size=4, num_workers={workers}), name="s"):
        say("rows", sum(map(len, tsnb.attach("c"))))
    """
    )
    assert "check_same_thread=False" in script.expect("told")
    assert script.expect("rows") == "8"


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_by_its_spawned_worker(tmp_path: Path) -> None:
    """It runs once more in the worker: it had been told that its own stream is being served already."""
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(
            """
            import torch, tsnb
            from torch.utils.data import DataLoader
            loader = DataLoader(torch.zeros(8, 2), batch_size=2, num_workers=1, multiprocessing_context="spawn")
            with tsnb.serve(loader, name="x"):
                print(len(list(tsnb.attach("c"))))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode and "if __name__ == '__main__':" in done.stderr
    assert "has been served for" not in done.stderr


class ReplayBuffer(Dataset[Any]):
    """As agents use it."""

    def __init__(self) -> None:
        self.steps = [torch.zeros(2)] * 8

    def append(self, step: Any) -> None:
        """Add one."""
        self.steps.append(step)

    def sample(self) -> Any:
        """Draw one."""
        return self.steps[0]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Any:
        return self.steps[index]


def test_a_replay_buffer_is_served_with_a_word_on_what_does_not_come_back() -> None:
    """And nothing is said of an ordinary dataset."""
    with pytest.warns(RuntimeWarning, match="a ReplayBuffer from this stream.* does not come back"):
        tsnb.serve(DataLoader(ReplayBuffer(), batch_size=2), name="s").stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tsnb.serve(DataLoader(torch.zeros(8, 2), batch_size=2), name="s").stop()  # type: ignore[arg-type]


def test_a_consumer_under_accelerate_asks_for_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two processes, `prepare` cannot divide what has no batch size: it had raised TypeError of None."""
    state = pytest.importorskip("accelerate.state")
    with tsnb.serve(DataLoader(torch.zeros(8, 2), batch_size=2), name="s"):  # type: ignore[arg-type]
        monkeypatch.setitem(state.PartialState._shared_state, "num_processes", 2)
        with (
            tsnb.attach("one", "s") as one,
            pytest.raises(TsnbError, match=r"rank=accelerator\.process_index"),
        ):
            one.as_dataloader()
        with tsnb.attach("two", "s", rank=0, world_size=2) as two:
            assert len(two.as_dataloader()) == 4


def test_far_too_many_tensors_are_refused_before_they_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred thousand took minutes. So many cannot be told in a packet, and the rest is not looked at."""
    looked: list[Any] = []

    def counted(node: Any) -> Any:
        looked.append(node)
        return classify(node)

    monkeypatch.setattr(packing, "classify", counted)
    with pytest.raises(BatchNotShareable, match=r"more than 8,192 tensors.*Stack"):
        packing.batch_bytes([torch.zeros(1) for _ in range(300_000)])
    assert len(looked) < 10_000
