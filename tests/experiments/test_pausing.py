"""A trial is paused and goes on: in its own process, alone and beside others, through deaths on either side."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb import cli
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.in_kernel import device_memory
from tsnb.experiments.pausing import pause_trials
from tsnb.records.run import Run
from tsnb.show.view_text import as_text
from tsnb.telemetry.following import look
from tsnb.telemetry.observer import Observer, status

pytestmark = pytest.mark.system

Until = Callable[..., None]

CELL = """
import time
from pathlib import Path
taken = []
for epoch in range(epochs):
    taken.append([])
    for (rows,) in tsnb.attach():
        taken[-1] += rows.tolist()
        tsnb.log(step=sum(map(len, taken)), rows=len(rows))
        while len(taken[-1]) == stop_at and epoch == 0 and not Path(go).exists():
            time.sleep(0.005)
    while stop_at == -1 and epoch == 0 and not Path(go).exists():
        time.sleep(0.005)
"""
ROWS = 48


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))


def serve(**options: Any) -> Any:
    loader = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)
    return tsnb.serve(loader, name="numbers", window=4, late_join=1.0, **options)


def start(page: Any, name: str, go: Path, stop_at: int, epochs: int = 2, **options: Any) -> Trial:
    return run_cell(name, CELL, {"go": str(go), "stop_at": stop_at, "epochs": epochs}, outlet=page, **options)


def states() -> dict[str, str]:
    return {c.name: c.state for c in status("numbers").consumers}


def recorded(name: str) -> str:
    run = Run.find(name)
    record = None if run is None else run.read()
    return "" if record is None else record.state


def test_a_trial_that_is_resumed_has_not_timed_out(page: Any, until: Until, tmp_path: Path) -> None:
    """It is still at its last batch: nothing says that it stalled."""
    with serve():
        trial = start(page, "one", tmp_path / "go", 20, epochs=1)
        until(lambda: sum(trial.metrics.by_step("rows").values()) == 20, 120)
        trial.pause()
        trial.resume()
        assert states() == {"one": "between epochs"}
        (tmp_path / "go").touch()
        trial.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop_at", [20, ROWS, -1], ids=["in the epoch's middle", "in its last batch", "between epochs"]
)
def test_a_paused_trial_stands_still_wherever_it_was_and_then_gets_each_sample_once(
    page: Any, until: Until, tmp_path: Path, stop_at: int
) -> None:
    """On a stream without a seed, where nothing is given again; every surface says that it is paused."""
    with serve():
        trial = start(page, "one", tmp_path / "go", stop_at)
        until(lambda: sum(trial.metrics.by_step("rows").values()) == (ROWS if stop_at < 0 else stop_at), 120)
        trial.pause()
        assert (trial.state, states()) == ("paused", {"one": "paused"})
        (tmp_path / "go").touch()
        until(lambda: recorded("one") == "paused", 60)
        assert trial.state == "paused"
        assert "paused" in repr(trial)
        _, view = look("numbers")
        assert "one: paused" in as_text(view, "numbers").replace("  ", " ") or "paused" in as_text(
            view, "numbers"
        )
        with pytest.raises(TimeoutError, match="is still paused"):
            trial.wait(0.3)
        assert len(trial.metrics.rows) == (ROWS if stop_at < 0 else stop_at) / 4, "it took nothing"
        trial.resume()
        trial.wait(60)
        assert [sorted(epoch) for epoch in trial["taken"]] == [list(range(ROWS))] * 2
        assert recorded("one") == "done"
        with pytest.raises(TsnbError, match="'one' is done"):
            trial.pause()


def test_two_are_paused_and_resumed_together_by_the_command_line_and_one_that_is_killed_harms_nobody(
    page: Any, until: Until, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tsnb pause STREAM`; kill -9 of one that is paused; the other goes on, and gets each sample once."""
    with serve():
        both = [start(page, name, tmp_path / "go", 20) for name in ("one", "two")]
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in both), 120)
        assert cli.main(["pause", "numbers/three"]) == 1
        assert "No trial named 'three'" in capsys.readouterr().err
        assert cli.main(["pause", "numbers"]) == 0
        assert "paused" in capsys.readouterr().out
        (tmp_path / "go").touch()
        until(lambda: all(trial.state == "paused" for trial in both), 60)
        one, two = both
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: one.state == "crashed", 60)
        with pytest.raises(TsnbError, match="'one' has crashed"):
            pause_trials([one.life, two.life], on=False)
        two.wait(60)
        assert [sorted(epoch) for epoch in two["taken"]] == [list(range(ROWS))] * 2


def test_a_paused_trial_that_is_started_again_after_its_death_stays_paused(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """It takes nothing until somebody resumes it, and every surface says so; then it gets each sample once."""
    with serve():
        trial = start(page, "one", tmp_path / "go", 20, restart="on-crash")
        until(lambda: sum(trial.metrics.by_step("rows").values()) == 20, 120)
        trial.pause()
        (tmp_path / "go").touch()
        until(lambda: recorded("one") == "paused", 60)
        former = trial.pid
        assert former is not None
        os.kill(former, signal.SIGKILL)
        until(lambda: trial.restarts == 1 and trial.state == "paused" and recorded("one") == "paused", 120)
        assert "It stays paused" in page.text
        assert trial.pid != former
        assert states() == {"one": "paused"}
        with pytest.raises(TimeoutError, match="is still paused"):
            trial.wait(0.5)
        trial.resume()
        trial.wait(60)
        assert [sorted(epoch) for epoch in trial["taken"]] == [list(range(ROWS))] * 2


def test_each_stream_is_asked_once_however_many_trials_pause(
    page: Any, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one connection, over which it says who is there and is asked to pause them."""
    connected = []
    begin = Observer.__init__

    def counted(self: Observer, name: str | None = None) -> None:
        begin(self, name)
        connected.append(self.name)

    letters = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4)
    with serve(), tsnb.serve(letters, name="letters", window=4, late_join=1.0):
        streams = {"one": "numbers", "two": "numbers", "three": "letters"}
        trials = [
            start(page, name, tmp_path / "go", 20, 1, stream=stream) for name, stream in streams.items()
        ]
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in trials), 120)
        monkeypatch.setattr(Observer, "__init__", counted)
        pause_trials([trial.life for trial in trials], on=True)
        assert sorted(connected) == ["letters", "numbers"]
        connected.clear()
        pause_trials([trial.life for trial in trials], on=False)
        assert sorted(connected) == ["letters", "numbers"]
        connected.clear()
        for verb in ("pause", "resume"):
            assert cli.main([verb, "numbers"]) == 0
        assert connected == ["numbers", "numbers"], "the command line too, for each command"
        monkeypatch.undo()
        (tmp_path / "go").touch()
        for trial in trials:
            trial.wait(60)


def test_a_paused_trial_can_be_stopped_and_interrupted(page: Any, until: Until, tmp_path: Path) -> None:
    """At once: it does not wait for its next batch."""
    with serve(seed=1):
        both = [start(page, name, tmp_path / "go", 20) for name in ("one", "two")]
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in both), 120)
        pause_trials([trial.life for trial in both], on=True)
        (tmp_path / "go").touch()
        until(lambda: {recorded("one"), recorded("two")} == {"paused"}, 60)
        both[0].stop()
        assert both[0].state == "stopped"
        both[1].interrupt()
        until(lambda: both[1].state == "interrupted", 60)
        assert len(both[1]["taken"][0]) == 20


def test_memory_is_released_only_where_there_is_some(page: Any, until: Until, tmp_path: Path) -> None:
    """On a CPU `pause(release=True)` says so and pauses nothing."""
    with serve(seed=1):
        trial = start(page, "one", tmp_path / "go", 20)
        until(lambda: sum(trial.metrics.by_step("rows").values()) == 20, 120)
        with pytest.raises(TsnbError, match=r"'one': it uses no GPU, so it has no GPU memory to free"):
            trial.pause(release=True)
        assert not trial.life.states.paused
        (tmp_path / "go").touch()
        trial.wait(60)
        with pytest.raises(
            TsnbError, match=r"is done, so it cannot pause\. A trial pauses when it takes a batch"
        ):
            trial.pause(release=True)


def test_tensors_that_are_moved_stay_the_objects_that_they_are_and_share_what_they_shared() -> None:
    """Tied weights, a transposed one, moments and gradients: the same objects, values and strides."""
    first, last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)
    last.weight = torch.nn.Parameter(first.weight.data.t())
    net = torch.nn.Sequential(first, torch.nn.BatchNorm1d(4), last)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    found = list(device_memory._tensors([net, optimizer, object()]))
    kinds = [*net.parameters(), *net.buffers(), *(p.grad for p in net.parameters())]
    moments = [held for each in optimizer.state.values() for held in each.values()]
    assert {id(t) for t in found} == {id(t) for t in [*kinds, *moments]}
    before = [(t.clone(), t.stride()) for t in found]
    device_memory._move([(t, t.device) for t in found], to_host=True)
    for tensor, (value, stride) in zip(found, before, strict=True):
        assert torch.equal(tensor, value)
        assert tensor.stride() == stride
    first.weight.data[0, 1] = 7.0
    assert last.weight[1, 0] == 7.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_paused_trial_gives_its_gpu_memory_back_and_goes_on_with_the_same_numbers(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """A GiB of what is kept is free for others while it is paused; its numbers are those of one that never paused."""
    cell = (
        "import torch\ntorch.manual_seed(0)\nlarge = torch.nn.Linear(2**14, 2**14, device='cuda')\n"
        "optimizer = torch.optim.SGD(large.parameters(), lr=1e-3, momentum=0.9)\n"
        "tsnb.checkpoint(net=large, optimizer=optimizer)\ntotals = []\n"
    ) + CELL.replace("        taken[-1] += ", STEP + "        taken[-1] += ")
    given = {"stop_at": 20, "epochs": 2}
    with serve(seed=1):
        plain = run_cell("plain", cell, {**given, "go": str(tmp_path)}, outlet=page).wait(120)["totals"]
        tsnb.trials["plain"].stop()
    assert len(plain) > 20 and all(map(math.isfinite, plain))
    with serve(seed=1):  # anew: of one stream the second trial would get later epochs, in another order
        trial = run_cell("one", cell, {**given, "go": str(tmp_path / "go")}, outlet=page)
        until(lambda: sum(trial.metrics.by_step("rows").values()) == 20, 120)
        before = torch.cuda.mem_get_info()[0]
        trial.pause(release=True)
        assert cli.main(["pause", "numbers/one", "--release"]) == 0  # once more, by the command
        (tmp_path / "go").touch()
        until(lambda: torch.cuda.mem_get_info()[0] > before + 2**30, 120)
        until(lambda: trial.why_not_released == "its GPU memory is already free", 120)
        trial.pause(release=True)
        trial.resume()
        assert trial.wait(120)["totals"] == plain


STEP = """        loss = large(torch.ones(1, 2**14, device="cuda") * rows.sum().item() / 1e4).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        totals.append(loss.item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("on", [True, False], ids=["pause", "resume"])
def test_all_pause_and_go_on_though_one_ends_at_that_moment(
    page: Any, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    """It is killed after it was looked at, and before the stream is asked."""
    asked = Observer.pause

    def killed_before(self: Observer, *consumers: str, on: bool = True) -> None:
        if one.life.state == "running" and one.pid is not None:
            os.kill(one.pid, signal.SIGKILL)
            until(lambda: one.life.state == "crashed" and "one" not in states(), 60)
        asked(self, *consumers, on=on)

    with serve():
        one, two = (start(page, name, tmp_path / "go", 20) for name in ("one", "two"))
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in (one, two)), 120)
        if not on:
            pause_trials([one.life, two.life], on=True)
        monkeypatch.setattr(Observer, "pause", killed_before)
        pause_trials([one.life, two.life], on=on)
        (tmp_path / "go").touch()
        if on:
            until(lambda: two.state == "paused", 60)
            two.resume()
        two.wait(60)
        assert one.state == "crashed"
        assert [sorted(epoch) for epoch in two["taken"]] == [list(range(ROWS))] * 2
        with pytest.raises(TsnbError, match="'one' has crashed"):
            pause_trials([one.life], on=on)
