"""Groups with real processes, as docs/ddp.md has them: launchers start the ranks, gloo joins them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tests.system.conftest import Run
from tests.system.scripts import ROOT
from tsnb.config import MAX_CONSUMERS
from tsnb.errors import JoinRefused, StopRequested
from tsnb.stream.consumer.attaching import detach_all
from tsnb.stream.consumer.talking import line
from tsnb.telemetry.observer import Observer

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

LAUNCH_S = 200
"""Each rank imports torch; with a busy machine's other work that takes a while."""

PAGE = ROOT / "docs" / "ddp.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
"""What users are told to write: for torchrun with DDP and with FSDP, accelerate and Lightning."""

BEFORE = """
import json, os, sys
import torch
import tsnb

torch.set_num_threads(1)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
seen = []

def loss_of(model, x):
    return ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()

def step(model, x, y, optimizer=optimizer, backward=torch.Tensor.backward):
    seen.append(y.tolist())
    optimizer.zero_grad()
    backward(loss_of(model, x))
    optimizer.step()

def report(rank, trained, **more):
    weights = torch.cat([p.detach().flatten() for p in trained.parameters()]).tolist()
    with open(os.path.join(sys.argv[1], f"{rank}.json"), "w") as file:
        json.dump({"seen": seen, "weights": weights} | more, file)
"""
ALONE = """
for epoch in range(2):
    for x, y in tsnb.attach("alone", batch_size=24):
        step(network, x, y)
"""
THIRD_EPOCH = """
for x, y in batches:
    seen.append(y.tolist())
"""
BEFORE_FSDP = """
import copy
learned, seen[:] = seen[:], []
plain = copy.deepcopy(network)
trained = copy.deepcopy(network)
"""
WHOLE = """
shards, seen[:] = seen[:], []
optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
with tsnb.attach("whole", batch_size=24, rank=rank, world_size=ranks, shard=False) as same:
    for x, y in same:
        step(plain, x, y, optimizer)
fsdp = torch.cat([getattr(p, "full_tensor", p.detach)().detach().flatten() for p in model.parameters()]).tolist()
whole = torch.cat([p.detach().flatten() for p in plain.parameters()]).tolist()
more = {"len": len(batches), "batch_size": batches.batch_size, "fsdp": fsdp, "shards": shards}
report(rank, trained, whole=seen[:], plain=whole, **more, seen=learned)
torch.distributed.destroy_process_group()
"""
ACCELERATED = """
report(rank, network, ranks=ranks)
batches.close()
accelerator.end_training()
"""
LIGHTNING = """
import lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network

    def training_step(self, batch, _):
        seen.append(batch[1].tolist())
        return loss_of(self.network, batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
"""


class Numbers(Dataset[Any]):
    """Sample i is made of i, and says so."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([i, i % 7, i % 5, 1.0]) / 96, i


def serve() -> tsnb.streams.Producer:
    """Serve 96 samples, 16 in a batch, shuffled with a seed."""
    return tsnb.serve(
        DataLoader(Numbers(), batch_size=16, shuffle=True), name="numbers", seed=3, late_join=1.0
    )


def launched(folder: Path, launcher: list[str], *parts: str) -> list[dict[str, Any]]:
    """Run a script, by a launcher or alone; return what its ranks reported, in their order."""
    script = folder / "train.py"
    script.write_text("\n".join((BEFORE, *parts)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, *launcher, str(script), str(folder)],
        env=environment, capture_output=True, text=True, timeout=LAUNCH_S, check=False,
    )  # fmt: skip
    assert out.returncode == 0, out.stdout + out.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one process sees and learns, on the same stream in batches of 24."""
    threads = torch.get_num_threads()
    names: dict[str, Any] = {}
    with serve():
        exec(BEFORE + ALONE, names)  # what the ranks run, but for the group
        detach_all()
    torch.set_num_threads(threads)
    weights = torch.cat([p.detach().flatten() for p in names["network"].parameters()])
    return {"seen": names["seen"], "weights": weights}


def require_same(ranks: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """The parts of each step make up the single process's batch, in the ranks' order; so do the weights come out."""
    steps = zip(*(rank["seen"] for rank in ranks), strict=True)
    assert [list(chain(*parts)) for parts in steps] == alone["seen"]
    for rank in ranks:
        assert {len(part) for part in rank["seen"]} == {24 // len(ranks)}
        assert torch.allclose(torch.tensor(rank["weights"]), alone["weights"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_ddp_ranks_learn_what_a_single_process_learns(
    size: int, alone: dict[str, Any], tmp_path: Path
) -> None:
    """Over gloo, by torchrun: with DDP, then FSDP. With `shard=False` every rank gets every batch whole."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    with serve():
        ranks = launched(
            tmp_path, launcher, BLOCKS[0], BEFORE_FSDP, BLOCKS[1] if size == 2 else THIRD_EPOCH, WHOLE
        )
    assert len(ranks) == size
    require_same(ranks, alone)
    for rank in ranks:
        assert (rank["len"], rank["batch_size"]) == (4, 24 // size)
        assert rank["whole"] == ranks[0]["whole"]
        if size == 2:
            assert torch.allclose(torch.tensor(rank["fsdp"]), torch.tensor(rank["plain"]), atol=1e-5)
    steps = [list(chain(*parts)) for parts in zip(*(rank["shards"] for rank in ranks), strict=True)]
    assert steps == ranks[0]["whole"], "the same epoch, in parts and whole"
    assert sorted(chain(*steps)) == list(range(96))


@pytest.mark.slow
def test_accelerate_leaves_a_ranks_loader_as_it_is(alone: dict[str, Any], tmp_path: Path) -> None:
    """`accelerate launch` on two ranks: `prepare` neither shards again nor reads on one rank alone."""
    pytest.importorskip("accelerate")
    # the launcher of several GPUs, on a machine without one: with --cpu it would start a single process
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
                "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]  # fmt: skip
    cpu = BLOCKS[2].replace("accelerate.Accelerator()", "accelerate.Accelerator(cpu=True)")
    with serve():
        ranks = launched(tmp_path, launcher, "import accelerate", cpu, ACCELERATED)
    assert [rank["ranks"] for rank in ranks] == [2, 2]
    require_same(ranks, alone)


NOT_A_RANK = """
loader = tsnb.attach(stream="numbers").as_dataloader()
accelerator = accelerate.Accelerator(cpu=True, **MORE)
try:
    accelerator.prepare(network, loader)
except tsnb.errors.TsnbError as error:
    report(accelerator.process_index, network, error=str(error))
accelerator.end_training()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", ["{}", "{'dataloader_config': accelerate.DataLoaderConfiguration(split_batches=True)}"]
)
def test_accelerate_is_not_let_divide_the_loader_of_a_process_that_is_no_rank(
    more: str, tmp_path: Path
) -> None:
    """Also where that was made before accelerate knew of several processes: both trained on nothing, without a word."""
    pytest.importorskip("accelerate")
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
                "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]  # fmt: skip
    with serve():
        ranks = launched(tmp_path, launcher, "import accelerate", f"MORE = {more}", NOT_A_RANK)
    assert len(ranks) == 2
    assert all("with rank=accelerator.process_index and world_size=2" in rank["error"] for rank in ranks)


@pytest.mark.slow
def test_lightning_attaches_where_it_knows_its_rank(alone: dict[str, Any], tmp_path: Path) -> None:
    """`strategy="ddp"` starts the second rank itself; both attach in `train_dataloader`."""
    pytest.importorskip("lightning")
    with serve():
        ranks = launched(tmp_path, [], LIGHTNING, BLOCKS[3], "report(trainer.global_rank, network)")
    assert len(ranks) == 2
    require_same(ranks, alone)


def test_a_killed_rank_ends_its_group_and_nobody_else(run: Run) -> None:
    """The other ranks raise `GroupBroken` at their next batch; who is outside goes on; the name is free again."""
    with serve():
        code = """
        rank = int(sys.argv[1])
        batches = tsnb.attach("job", "numbers", batch_size=4, rank=rank, world_size=2)
        try:
            for step, (x, number) in enumerate(batches):
                say("step", step)
                if step == 1:
                    sys.stdin.readline()
        except tsnb.errors.GroupBroken as error:
            say("broken", error)
        """
        ranks = [run(code, str(rank), stdin=True) for rank in range(2)]
        for rank in ranks:
            rank.expect("step 1", LAUNCH_S)
        with tsnb.attach("outside", "numbers") as outside:
            ranks[1].send(signal.SIGKILL)
            ranks[1].end()
            # nobody waits any more: all of an epoch can be had, though the other stands still
            assert sum(len(number) for _, number in outside) == 96
        ranks[0].answer("go on")
        said = ranks[0].expect("broken", LAUNCH_S)
        assert "Rank 1 of group 'job' died" in said and "torchrun" in said
        assert not [line for line in ranks[0].lines if line.startswith("step 2")], "it took a batch more"
        assert ranks[0].end() == 0
        with (
            tsnb.attach("job", "numbers", rank=0, world_size=2) as one,
            tsnb.attach("job", "numbers", rank=1, world_size=2) as two,
        ):
            loops = iter(one), iter(two)
            parts = [[number.tolist() for _, number in loop] for loop in loops]
            assert sorted(chain(*parts[0], *parts[1])) == list(range(96))


def test_a_batch_smaller_than_the_group_gives_every_rank_a_row() -> None:
    """Ranks without a row of their own repeat one, so all make the same number of steps; drop_last leaves it out."""
    batches = [torch.arange(8), torch.arange(8, 10)]
    with tsnb.serve(batches, name="ragged", late_join=1.0):
        group = [tsnb.attach("g", "ragged", rank=r, world_size=4) for r in range(4)]
        loops = [iter(one) for one in group]
        parts = [[batch.tolist() for batch in loop] for loop in loops]
        assert [p[0] for p in parts] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert [p[1] for p in parts] == [[8], [8], [9], [9]]
        for one in group:
            one.close()
        group = [
            tsnb.attach("d", "ragged", batch_size=2, drop_last=True, rank=r, world_size=4) for r in range(4)
        ]
        loops = [iter(one) for one in group]
        assert [[batch.tolist() for batch in loop] for loop in loops] == [
            [[0, 1]],
            [[2, 3]],
            [[4, 5]],
            [[6, 7]],
        ]
        for one in group:
            one.close()


def test_a_rank_goes_on_where_another_ranks_state_was_saved() -> None:
    """The place is that of the whole group: rank 0's `state_dict()` resumes all, in the middle of a batch too."""
    with serve():
        group = [tsnb.attach("s", batch_size=5, rank=r, world_size=2) for r in range(2)]
        loops = [iter(one) for one in group]
        began = [next(loop)[1].tolist() for _ in range(3) for loop in loops]
        state = group[0].state_dict()
        del loops
        for one in group:
            one.close()
        group = [tsnb.attach("s", batch_size=5, rank=r, world_size=2) for r in range(2)]
        group[0].load_state_dict(state)
        loops = [iter(one) for one in group]
        for loop in loops:  # they would never be in step
            with pytest.raises(JoinRefused, match=r"a whole epoch in rank 1\. Load the same state in all"):
                next(loop)
        for one in group:
            one.load_state_dict(state)
        loops = [iter(one) for one in group]
        rest = [[number.tolist() for _, number in loop] for loop in loops]
        assert sorted(chain(*began, *rest[0], *rest[1])) == list(range(96))
        assert len(rest[0]) == len(rest[1]) == 7
        for one in group:
            one.close()


def test_what_cannot_be_a_group_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that differ, two of one number, options that are not for groups, a forgotten rank."""
    with serve(), tsnb.attach("g", rank=0, world_size=2, batch_size=4):
        with pytest.raises(JoinRefused, match="differ in world_size: 2 in rank 0, 3 in this rank"):
            tsnb.attach("g", rank=1, world_size=3, batch_size=4)
        with pytest.raises(JoinRefused, match=r"batch_size=4.*batch_size=8"):
            tsnb.attach("g", rank=1, world_size=2, batch_size=8)
        with pytest.raises(ValueError, match="ranks count from 0"):
            tsnb.attach("g", rank=2, world_size=2)
        with pytest.raises(ValueError, match="on_lag"):
            tsnb.attach("g", rank=1, world_size=2, on_lag="skip")
        with pytest.raises(ValueError, match="Attach all of them with the same name"):
            tsnb.attach(rank=1, world_size=2, batch_size=4)
        with pytest.raises(ValueError, match="world_size=None"):
            tsnb.attach("g", rank=1, world_size=None)  # type: ignore[arg-type]
        with pytest.raises(JoinRefused, match=f"{MAX_CONSUMERS + 1} ranks"):
            tsnb.attach("h", rank=1, world_size=MAX_CONSUMERS + 1)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.warns(UserWarning, match="one of 2 ranks"):
            tsnb.attach().close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tsnb.attach("own-name").close()


def test_a_rank_that_waits_for_the_others_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two has attached: after a while a warning names the group, and what to look at."""
    monkeypatch.setattr(line, "RANKS_S", 0.1)
    with serve(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        alone = tsnb.attach("pair", rank=0, world_size=2)
        waiting = threading.Thread(target=lambda: next(iter(alone), None))
        waiting.start()
        while not told:
            time.sleep(0.01)
        (reading,) = tsnb.streams.status("numbers").consumers
        assert (reading.state, reading.awaits) == ("awaits ranks", "rank 1 of 2")
        other = tsnb.attach("pair", rank=1, world_size=2)
        assert next(iter(other)) is not None
        waiting.join()
        alone.close()
        other.close()
    assert "Rank 0 of group 'pair' has waited" in str(told[0].message)
    assert "all 2 ranks" in str(told[0].message)


def test_each_rank_goes_on_by_itself_with_a_producer_that_was_started_again() -> None:
    """One is a batch behind, and is in the middle of a step: the other must not wait for it to come back first."""
    producer = serve()
    group = [tsnb.attach("again", batch_size=6, rank=r, world_size=2, reconnect_s=60) for r in range(2)]
    loops = [iter(one) for one in group]
    seen = [next(loop)[1].tolist() for loop in (loops[0], loops[1], loops[0])]
    producer.stop()
    with serve():
        seen += [number.tolist() for loop in loops for _, number in loop]
        assert sorted(chain(*seen)) == list(range(96))
        assert [one.stats().reconnects for one in group] == [1, 1]
        for one in group:
            one.close()


def test_who_stops_one_rank_stops_its_group() -> None:
    """The panel's button at `bert[0]` ends the loops of all of its ranks, and of nobody else."""
    with serve(), tsnb.attach("bert-too") as other:
        group = [tsnb.attach("bert", rank=r, world_size=2) for r in range(2)]
        loops = [iter(one) for one in group]
        observer = Observer("numbers")
        observer.request_consumer_stop("bert[0]")
        for one, loop in zip(group, loops, strict=True):
            with pytest.raises(StopRequested):
                deque(chain(loop, one), maxlen=0)  # it may have had all of an epoch before it is told
        observer.close()
        assert sum(1 for _ in other) == 6
        for one in group:
            one.close()


def test_a_rank_that_closed_did_not_die_though_the_producer_had_something_to_tell_it() -> None:
    """Two close at once: what the producer sends to the second finds nobody, while its goodbye is still unread."""
    with serve() as producer:
        group = [tsnb.attach("all", rank=r, world_size=3) for r in range(3)]
        loops = [iter(one) for one in group]
        for _ in range(6):
            assert len([next(loop) for loop in loops]) == 3
        core = producer._core
        first = next(s for s in core.sessions.values() if s.name == "all[0]")
        while not group[0]._inner._line.connection.arrived or first.channel.wait(0):
            time.sleep(0.001)  # until it has been told of the end, and has been heard
        with core.lock:
            assert next(loops[0], None) is None
            began = (
                time.monotonic()
            )  # until the serving thread is busy with this one, or waits for us with a tick
            while first.channel.wait(0) and time.monotonic() - began < 0.5:
                time.sleep(0.001)
            group[0].close()
            assert next(loops[1], None) is None
            group[1].close()
        while "all[1]" in {one.name for one in tsnb.streams.status("numbers").consumers}:
            time.sleep(0.001)
        assert next(loops[2], None) is None, "its epoch ends, like theirs"
        group[2].close()
