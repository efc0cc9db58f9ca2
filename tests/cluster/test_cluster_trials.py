"""Trials on the nodes of a real Ray cluster: real actors and kernels, SIGKILL, a node that is lost."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import tsnb
from tests.cluster import jobs
from tests.cluster.conftest import Machines, until
from tests.cluster.takers import digest, loader
from tests.house.pages import blocks_of
from tests.notebook.conftest import ipython, shell
from tsnb.cluster.actor import KernelActor
from tsnb.cluster.room import Needs, cannot_start, cause_of_loss
from tsnb.errors import ExtraMissing, TrialFailed, TsnbError
from tsnb.experiments.plan import TrialOptions
from tsnb.experiments.trial import NoSuchVariable, Trial
from tsnb.records.project import project_directory
from tsnb.records.reading import read_runs

__all__ = ["ipython", "shell"]

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

ROOT = Path(__file__).parents[2]
ENDS_S = 180.0
ALONE = [digest(batch) for batch in loader()]


@pytest.fixture(autouse=True)
def no_trials(machines: Machines) -> Iterator[None]:
    """End what a test has started."""
    yield
    tsnb.trials.clear()


def start(fn: Callable[..., Any], name: str, **given: Any) -> Trial:
    return tsnb.run(fn, name=name, engine="ray", **given)


def begun(*trials: Trial) -> None:
    """Wait until their code says so."""
    until(lambda: all(jobs.BEGUN in trial.logs() for trial in trials), ENDS_S)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_trial_on_the_cluster_is_like_one_of_this_machine(machines: Machines) -> None:
    """Output, numbers, records, artifacts and results are here; it ran there. Its room is free when it is done."""
    trial = start(jobs.learn, "far", lr=0.5, seed=3, threads=2, env={"FLAVOUR": "mint"})
    second = start(jobs.surroundings, "next", threads=2)  # fits beside nothing else, behind the first
    result = trial.result(ENDS_S)
    assert result["TSNB_RUNTIME_DIR"] == str(machines.directory / "2"), "no other node has two cores"
    assert (result["OMP_NUM_THREADS"], result["FLAVOUR"], result["seed"]) == ("2", "mint", 3)
    assert trial.metrics.by_step("loss") == {0: 0.5, 1: 0.25, 2: pytest.approx(1 / 6)}
    assert "learning with 0.5\n" in trial.logs()
    assert "learning with 0.5\n" in trial.log_path.read_text()
    [record] = read_runs(project_directory(), name="far")
    assert (record.state, record.options["engine"], record.metrics["loss"].count) == ("done", "ray", 3)
    assert record.versions["tsnb"] == tsnb.__version__
    artifacts = project_directory() / "artifacts" / "far-1"
    assert result["kept"] == str(artifacts / "all")
    assert (artifacts / "net.pt").read_bytes() == bytes(range(256)) * 40_000
    assert (artifacts / "all" / "deep" / "net.pt").stat().st_size == 256 * 40_000
    assert second.result(ENDS_S)["TSNB_RUNTIME_DIR"] == result["TSNB_RUNTIME_DIR"]
    assert trial.pull("result") == result, "its kernel is there still"
    with pytest.raises(NoSuchVariable, match="no variable 'net'"):
        trial.pull("net")
    assert trial.pid is not None
    pid = trial.pid
    again = trial.rerun(lr=0.25, steps=1)
    assert again.result(ENDS_S)["drawn"] == result["drawn"], "the same seed"
    assert (again.number, dict(again.metrics)) == (2, {"loss": 0.25})
    assert gone(pid), "the run that it took the place of has been ended"


def test_trials_of_a_sweep_share_the_clusters_stream_from_the_first_batch_on(machines: Machines) -> None:
    """One on each node, through relays that they have started there: the same batches of the same epoch."""
    with tsnb.serve(loader(), name="main", engine="ray"):
        sweep = tsnb.sweep(jobs.take, grid={"lr": [1.0, 2.0]}, engine="ray", stream="main", threads=1)
        assert sweep.wait(ENDS_S).best("loss", "min").params == {"lr": 1.0}
        taken = [trial.result(1.0) for trial in sweep.values()]
    assert [rows for _, rows in taken] == [ALONE] * 2
    assert len({epoch for epoch, _ in taken}) == 1
    assert all(trial.report["stream"] == "main" for trial in sweep.values())
    assert all(run.report["samples"] for run in read_runs(project_directory()) if run.sweep == "take")


def test_a_cross_validation_runs_its_folds_on_all_machines(machines: Machines, tmp_path: Path) -> None:
    """Each trains on what it does not validate on, and each sample is prepared once an epoch for all of them."""
    rows, seen = 80, tmp_path / "seen"
    served = tsnb.serve(loader(rows, shuffle=True, seen=str(seen)), name="digits", seed=2, engine="ray")
    with served:
        found = tsnb.sweep(
            jobs.validate, folds=3, engine="ray", stream="digits", threads=1, env={"FLAVOUR": "plum"}
        )
        found.wait(ENDS_S)
        results = [trial.result(ENDS_S) for trial in found.values()]
    everything = list(range(rows))
    assert sorted(n for one in results for n in one["validated"]) == everything
    for one in results:
        assert one["epochs"] == (2, 3), "all folds were to share the stream's epochs"
        assert all(sorted(epoch + one["validated"]) == everything for epoch in one["taken"])
        assert len({tuple(epoch) for epoch in one["taken"]}) == 3, "each epoch has an order of its own"
    places = {one["TSNB_RUNTIME_DIR"] for one in results}
    assert len(places) > 1, "no machine has room for three"
    assert found.score("mean").trials == 3
    assert found.score("mean").mean == pytest.approx(
        sum(sum(r["validated"]) / len(r["validated"]) for r in results) / 3
    )
    assert seen.stat().st_size == 4 * rows, "three epochs of training, and one to validate"


def test_a_killed_process_is_told_one_with_restart_begins_again_and_what_raises_has_failed(
    machines: Machines,
) -> None:
    """The kernel's own process; the actor that it belongs to, with which it ends; an error, whose traceback comes."""
    lost, back, bad = (
        start(jobs.spin, "lost"),
        start(jobs.spin, "back", restart=True),
        start(jobs.fail, "bad"),
    )
    begun(lost, back)
    assert lost.pid is not None
    assert back.pid is not None
    os.kill(lost.pid, signal.SIGKILL)
    with pytest.raises(TrialFailed, match="killed by SIGKILL"):
        lost.wait(ENDS_S)
    assert lost.state == "crashed"
    pid, actor = back.pid, psutil.Process(back.pid).ppid()
    os.kill(actor, signal.SIGKILL)
    until(lambda: back.logs().count(jobs.BEGUN) == 2, ENDS_S)
    assert (
        "has ended; it starts again from the top, because it has no checkpoint (tsnb.checkpoint) (1 of 3)"
        in back.logs()
    )
    assert (back.state, back.restarts) == ("running", 1)
    assert gone(pid)
    pid = back.pid
    back.stop()
    assert back.state == "stopped"
    until(lambda: gone(pid))
    with pytest.raises(TrialFailed, match=r"ZeroDivisionError: nothing to divide by(?s:.*)jobs\.py"):
        bad.wait(ENDS_S)


def test_a_gpu_is_asked_for_and_given_to_the_next_when_the_code_has_ended(machines: Machines) -> None:
    """There is one: who comes second waits and says so. Its process ends with the code, what it returned is kept.

    The code of the first is interrupted, and ends in order.
    """
    first = start(jobs.spin, "holds", device="gpu")
    begun(first)
    second = start(jobs.surroundings, "waits", device="gpu")
    until(
        lambda: "it waits for room in the cluster, 1 CPU and 1 GPU on one machine.\n" in second.logs(), ENDS_S
    )
    huge = start(jobs.surroundings, "huge", threads=64)
    until(lambda: "No machine of the cluster has that much now" in huge.logs(), ENDS_S)
    assert (second.state, huge.state) == ("queued", "queued")
    assert second.state_text == "queued: it waits for room in the cluster, 1 CPU and 1 GPU on one machine"
    assert f"queued: {huge.waits_for}" in repr(tsnb.trials) and "No machine of the cluster" in huge.waits_for
    huge.stop()
    assert huge.state == "stopped"
    first.interrupt()
    assert first.wait(ENDS_S).state == "interrupted"
    assert jobs.ENDED in first.logs()
    result = second.result(ENDS_S)
    assert result["CUDA_VISIBLE_DEVICES"] == "0"
    assert second.pid is None and not second.waits_for
    assert second.result() == result
    second.stop()
    with pytest.raises(TsnbError, match="has ended"):
        second.result()


SET_UP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import tsnb
class Net:
    def __init__(self, width): self.width = width
def step(net, images, labels): return net.width * images.sum() / labels.sum()
def train(lr):
    for images, labels in tsnb.attach():
        tsnb.log(loss=lr * images.sum())
net = Net(7)
loader = DataLoader(TensorDataset(torch.arange(12.0), torch.arange(12)), batch_size=4)
"""


def test_the_pages_blocks_run(machines: Machines, shell: Any) -> None:
    """docs/ray-cluster.md from its top: a stream from a notebook and from Python, a cell, a function, a sweep.

    The notebook's variables and classes travel with them, and back. They compute on the CPU: no GPU is there.
    """
    page = blocks_of(ROOT / "docs/ray-cluster.md")
    blocks = [b.text.replace("gpu", "cpu") for b in page if b.run_by.endswith(Path(__file__).name)]
    shell.run_cell(SET_UP).raise_error()
    assert blocks[0].startswith("%tensorsocket start")
    for block in (blocks[0], "%tensorsocket stop imagenet", *blocks[1:]):
        shell.run_cell(block).raise_error()
    with shell.user_ns["producer"]:
        assert tsnb.trials["cnn"].wait(ENDS_S).metrics.by_step("loss") == {0: 7.0, 1: 7.0, 2: 7.0}
        assert tsnb.trials["cnn"]["net"].width == 7
        assert tsnb.trials["cnn"].options == {"engine": "ray", "device": "cpu", "stream": "imagenet"}
        for name in ("trial", "sweep"):
            shell.user_ns[name].wait(ENDS_S)
        assert tsnb.trials["train-lr0.01"].metrics["loss"] == pytest.approx(0.01 * (8 + 9 + 10 + 11))


SCRIPT = """
import sys, time, ray, torch, tsnb
from tests.cluster import jobs
name, engine = sys.argv[1:]
train, check = (tsnb.serve([torch.ones(2)], name=name + word, engine=engine) for word in "ab")
train.stop()
assert ray.is_initialized(), "the other one needs it"
trial = tsnb.run(jobs.spin, name=name, engine=engine)
check.stop()
while jobs.BEGUN not in trial.logs():
    time.sleep(0.05)
assert trial.state == "running", trial.state
print("PID", trial.pid, flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_the_process_that_started_it(machines: Machines, tmp_path: Path) -> None:
    """Of two scripts one is killed and one ends: their trials end, and the records say how.

    Streams that they serve before take the cluster with them when the last one stops, unless there are trials in it.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TSNB_PROJECT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    names = ("killed", "ended")
    runs = [
        subprocess.Popen(
            [*command, name, f"ray://{machines.cluster.address}"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        pids = [_pid_told_by(run) for run in runs]
        assert not any(map(gone, pids))
        runs[0].kill()
    finally:
        for run in runs:
            run.communicate(timeout=ENDS_S)
    until(lambda: all(map(gone, pids)))
    found = [read_runs(tmp_path / ".tsnb", name=name)[0].state for name in names]
    assert found == ["crashed", "stopped"]


def _pid_told_by(run: subprocess.Popen[str]) -> int:
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("PID"):
            return int(line.split()[1])
    pytest.fail("the script has ended")


def test_what_a_cluster_cannot_do_is_refused_before_anything_is_started(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that mean this machine, another cluster's address, no Ray: each says what to do."""
    for option in ({"detach": True}, {"mps_percent": 50}, {"log_to": "tensorboard"}):
        with pytest.raises(ValueError, match=r"does not work with engine='ray'.*Remove it"):
            start(jobs.spin, "x", **option)
    with pytest.raises(ValueError, match="Pass device='gpu' for one GPU"):
        start(jobs.spin, "x", device="cuda:1")
    with pytest.raises(ValueError, match=r'Pass "local", "ray" or "ray://HOST:PORT"'):
        tsnb.run(jobs.spin, engine="dask")
    with pytest.raises(TsnbError, match="not in the one at"):
        tsnb.run(jobs.spin, engine="ray://10.0.0.1:6379")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[ray\]'"):
        start(jobs.spin, "x")
    assert "x" not in tsnb.trials


def test_a_question_for_news_keeps_no_other_waiting() -> None:
    """Ray would call all methods of an actor with a coroutine, private ones too, on one thread."""
    assert not [name for name, value in vars(KernelActor).items() if inspect.iscoroutinefunction(value)]


def test_words_for_what_ray_says() -> None:
    """A lost machine, one out of memory, one without tsnb; and how often a need fits into a machine."""
    assert cause_of_loss("The actor is dead because its node has died.", "b").startswith("b left the cluster")
    assert "ran out of memory" in cause_of_loss("killed due to the node running low on memory", "b")
    guess = (
        "Some common causes: (1) the process was killed by the OOM killer due to high memory usage, (2) ..."
    )
    assert "on b has ended\nSome common" in cause_of_loss(guess, "b"), "Ray lists what may be"
    said = cannot_start(RuntimeError("creation task\nModuleNotFoundError: No module named 'tsnb'\n"))
    assert "No module named 'tsnb'" in said
    assert [Needs(2).times_in({"CPU": n}) for n in (1, 4, 5.0)] == [0, 2, 2]
    assert Needs(1, 1).times_in({"CPU": 8, "GPU": 2}) == 2
    assert TrialOptions(engine="local").given == {}


def test_a_lost_node_is_told(machines: Machines) -> None:
    """The last test: the node is killed under a trial."""
    trial = start(jobs.spin, "there", threads=2)
    begun(trial)
    machines.cluster.remove_node(machines.nodes[2], allow_graceful=False)
    with pytest.raises(TrialFailed, match=r"left the cluster|has ended"):
        trial.wait(ENDS_S)
    assert trial.state == "crashed"
    [record] = read_runs(project_directory(), name="there")
    assert record.state == "crashed"
