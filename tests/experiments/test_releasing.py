"""A trial is paused and gives GPU memory back: by its method, the magic, the command and the panel, the same on each.

Real kernels. Where there is no GPU, a stand-in for one in the trial's kernel takes note of what is moved.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from IPython.core.error import UsageError
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb import cli
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.in_kernel import cloning, device_memory
from tsnb.experiments.in_kernel.device_memory import DeviceMemory
from tsnb.notebook.magics import TsnbMagics
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.stream.this_process import this_process

pytestmark = pytest.mark.system

Until = Callable[..., None]
Surface = Callable[[str], str]

STAND_IN = """
import torch
from tsnb.experiments.in_kernel import device_memory

class Held:
    is_cuda, device = True, "cuda:0"

held, moves = Held(), []

def move(tensors, to_host):
    for tensor, _ in tensors:
        tensor.is_cuda = not to_host
        moves.append("to the host" if to_host else "to the GPU")

device_memory._tensors, device_memory._move = lambda objects: [held], move
torch.cuda.is_initialized, torch.cuda.empty_cache = lambda: True, lambda: None
"""
KEEPS = "import torch\nnet = torch.nn.Linear(2, 2)\ntsnb.checkpoint(net=net)\n"
CELL = """
import time
from pathlib import Path
taken, away = [], []
for (rows,) in tsnb.attach():
    away.append("held" in globals() and not held.is_cuda)
    taken += rows.tolist()
    tsnb.log(rows=len(taken))
    while len(taken) == 20 and not Path(go).exists():
        time.sleep(0.005)
"""
ROWS = 48


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))


def magic(line: str) -> Any:
    """Run `%trials` as a cell does."""
    magics: Any = TsnbMagics
    return magics(None).trials(line)


@pytest.fixture(params=["method", "magic", "command", "panel"])
def release(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Surface:
    """Pauses a trial by name, with release; returns why not, empty: it was done."""

    def by_method(name: str) -> str:
        try:
            tsnb.trials[name].pause(release=True)
        except TsnbError as error:
            return str(error)
        return ""

    def by_magic(name: str) -> str:
        try:
            magic(f"pause {name} --release")
        except UsageError as error:
            return str(error)
        return ""

    def by_command(name: str) -> str:
        capsys.readouterr()
        status = cli.main(["pause", f"numbers/{name}", "--release", "--json"])
        told = json.loads(capsys.readouterr().out)
        assert status == ("error" in told)
        assert "error" in told or told == {"stream": "numbers", "paused": [name], "release": True}
        return str(told.get("error", ""))

    def by_panel(name: str) -> str:
        panel, sent = Panel("numbers"), []
        panel.send = lambda content, *_: sent.append(content)
        panel.logs.source = TrialLogs()
        panel._hear(panel, {"op": "release", "name": name}, [])
        for thread in threading.enumerate():
            if thread.name == f"tsnb-release-{name}":
                thread.join(120)
        panel.close()
        return next((content["why"] for content in sent if content["op"] == "refused"), "")

    found = {"method": by_method, "magic": by_magic, "command": by_command, "panel": by_panel}
    return found[request.param]


class Alone:
    """What gives memory back, without a trial around it: one tensor, and whether the training stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_gpu, self.stands, self.room = True, True, True
        self.memory = DeviceMemory("cnn", lambda: {"net": self}, lambda: self.stands)
        monkeypatch.setattr(device_memory, "_tensors", lambda _objects: [self])
        monkeypatch.setattr(device_memory, "_move", self.move)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(this_process, "boundary", None)

    @property
    def is_cuda(self) -> bool:
        return self.on_gpu

    device = "cuda:0"

    def move(self, tensors: list[tuple[Any, Any]], *, to_host: bool) -> None:
        if to_host and not self.room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        for tensor, _ in tensors:
            tensor.on_gpu = not to_host

    def ask(self, *, wanted: bool = True) -> None:
        """Wish for it, and come to the boundary between two batches."""
        self.memory.request({"wanted": wanted})
        wish, this_process.boundary = this_process.boundary, None
        if wish is not None:
            wish()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Alone:
    return Alone(monkeypatch)


def test_what_was_moved_first_is_what_comes_back(alone: Alone) -> None:
    """Asked for it once more while its memory is given back."""
    alone.ask()
    assert not alone.on_gpu
    alone.ask()
    assert alone.memory.why_not() == "its GPU memory is already free"
    alone.memory.take_again()
    assert alone.on_gpu


def test_memory_counts_as_given_back_when_it_is_free(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a GPU: it was said to be free while half of it still lay in the allocator's cache."""
    said: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: said.append(alone.memory.why_not()))
    monkeypatch.setattr(device_memory, "_tensors", lambda _objects: [alone])
    alone.ask()
    assert said == [""]
    assert alone.memory.why_not() == "its GPU memory is already free"


def test_waiting_for_room_holds_nothing_that_was_copied_back(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that wait for room for one would each hold half of it for good: the error's frames hold what was copied."""

    class Copied:
        """What stands for a tensor that was copied to the GPU before the next one did not fit."""

    copied: list[weakref.ref[Copied]] = []
    held: list[bool] = []

    def move(tensors: list[tuple[Any, Any]], *, to_host: bool) -> None:
        if not to_host and not copied:
            first = Copied()
            copied.append(weakref.ref(first))
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        alone.move(tensors, to_host=to_host)

    monkeypatch.setattr(device_memory, "_move", move)
    monkeypatch.setattr("time.sleep", lambda _s: held.append(copied[0]() is not None))
    alone.ask()
    alone.memory.take_again()
    assert held == [False] and alone.on_gpu


def test_a_trial_that_has_gone_on_keeps_its_memory(alone: Alone) -> None:
    """It was resumed between the wish and the boundary: it trains."""
    alone.memory.request({"wanted": True})
    alone.stands = False
    assert this_process.boundary is not None
    this_process.boundary()
    assert alone.on_gpu


def test_a_wish_that_is_taken_back_is_none_at_the_next_pause(alone: Alone) -> None:
    """Its stream was gone, so it was not paused."""
    alone.stands = False
    alone.ask()
    alone.ask(wanted=False)
    alone.stands = True
    alone.memory.give_back()
    assert alone.on_gpu


def test_while_it_is_being_cloned_its_memory_is_not_asked_for(alone: Alone) -> None:
    """Both want the same boundary: neither is dropped without a word."""
    this_process.boundary = clone = lambda: None
    with pytest.raises(TsnbError, match=r"it is being cloned\. Release its memory after that"):
        alone.memory.request({"wanted": True})
    assert this_process.boundary is clone


def test_while_it_gives_memory_back_it_is_not_cloned(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clone's wish would take the place of the other."""
    consumer, trial = SimpleNamespace(iterating=True, epoch=0), SimpleNamespace(branch=None)
    monkeypatch.setattr(cloning, "_consumers", lambda: [consumer])
    alone.memory.request({"wanted": True})
    wish: dict[str, Any] = {"changes": {}}
    with pytest.raises(TsnbError, match=r"it is freeing GPU memory\. Clone it when that is done"):
        cloning.Cloning(cast("Any", trial), "cnn")._wish(wish)
    assert this_process.boundary == alone.memory.give_back


def test_without_room_on_the_host_it_is_paused_as_it_is(
    alone: Alone, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the middle of a pause would end the training."""
    alone.room = False
    with caplog.at_level("WARNING", "tsnb"):
        alone.ask()
    assert "trial 'cnn' keeps its GPU memory while it is paused: DefaultCPUAllocator" in caplog.text
    assert alone.on_gpu
    alone.memory.take_again()
    assert alone.on_gpu


def serve() -> Any:
    loader = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)
    return tsnb.serve(loader, name="numbers", window=4, late_join=1.0, seed=1)


def start(page: Any, name: str, until: Until, go: Path, before: str) -> Trial:
    """Start a trial that stands in its fifth batch until the file is there."""
    trial = run_cell(name, before + CELL, {"go": str(go)}, outlet=page)
    until(lambda: trial.metrics.get("rows") == 20, 120)
    return trial


@pytest.mark.slow
def test_what_cannot_be_released_is_refused_with_the_reason_and_is_not_paused(
    page: Any, until: Until, tmp_path: Path, release: Surface
) -> None:
    """On the CPU; on a GPU without anything kept; one that is done. The panel knows the reason before it is asked."""
    with serve():
        cpu = start(page, "cpu", until, tmp_path / "go", KEEPS)
        plain = start(page, "plain", until, tmp_path / "go", STAND_IN)
        why = "it uses no GPU, so it has no GPU memory to free. Pause it without release"
        assert release("cpu").endswith(f"trial 'cpu': {why}")
        until(lambda: cpu.why_not_released == why, 120)
        assert "Put tsnb.checkpoint(net=net, optimizer=optimizer) before its loop" in release("plain")
        until(lambda: plain.why_not_released.startswith("only checkpointed state"), 120)
        facts = TrialLogs().facts("cpu") or {}
        assert facts["cannot"]["release"] == why
        assert not cpu.life.states.paused
        assert not plain.life.states.paused
        (tmp_path / "go").touch()
        for trial in (cpu, plain):
            trial.wait(120)
            assert trial.why_not_released == "is done, and only a running trial can be paused"
        assert "'cpu'" in release("cpu")


@pytest.mark.slow
def test_memory_is_given_back_at_the_next_batch_once_and_is_there_again_when_it_goes_on(
    page: Any, until: Until, tmp_path: Path, release: Surface
) -> None:
    """Asked for twice, and once more while it stands still: what was moved first is what comes back."""
    with serve():
        trial = start(page, "one", until, tmp_path / "go", STAND_IN + KEEPS)
        until(lambda: not trial.why_not_released, 120)
        assert release("one") == ""
        assert release("one") == ""
        (tmp_path / "go").touch()
        until(lambda: trial.why_not_released == "its GPU memory is already free", 120)
        assert trial.state == "paused"
        assert release("one") == ""
        trial.resume()
        trial.wait(120)
        assert sorted(trial["taken"]) == list(range(ROWS))
        assert trial["moves"] == ["to the host", "to the GPU"]
        assert not any(trial["away"]), "it trains with what it keeps on the GPU"


def test_a_trial_that_is_paused_already_gives_it_back_now(page: Any, until: Until, tmp_path: Path) -> None:
    with serve():
        trial = start(page, "one", until, tmp_path / "go", STAND_IN + KEEPS)
        trial.pause()
        (tmp_path / "go").touch()
        until(lambda: tsnb.results(trial="one")["state"].iloc[0] == "paused", 120)
        trial.pause(release=True)
        until(lambda: trial.why_not_released == "its GPU memory is already free", 120)
        trial.resume()
        trial.wait(120)
        assert trial["moves"] == ["to the host", "to the GPU"]


def test_of_several_those_that_can_give_it_back_are_paused_and_the_others_are_told(
    page: Any, until: Until, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`%trials pause --release`; the command wants one by name."""
    with serve():
        cpu = start(page, "cpu", until, tmp_path / "go", KEEPS)
        one = start(page, "one", until, tmp_path / "go", STAND_IN + KEEPS)
        with pytest.raises(UsageError, match="trial 'cpu': it uses no GPU"):
            magic("pause --release")
        assert (one.life.states.paused, cpu.life.states.paused) == (True, False)
        assert cli.main(["pause", "numbers", "--release"]) == 1
        assert "is not a trial. Write STREAM/TRIAL" in capsys.readouterr().err
        (tmp_path / "go").touch()
        cpu.wait(120)
        one.resume()
        one.wait(120)
        assert one["moves"] == ["to the host", "to the GPU"]
