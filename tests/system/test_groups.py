"""Groups with real processes: torchrun and accelerate start the ranks, gloo joins them, one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tests.system.conftest import Run
from tests.system.scripts import ROOT
from tsnb.errors import JoinRefused

pytestmark = pytest.mark.system

LAUNCH_S = 150
"""Each rank imports torch; with a busy machine's other work that takes a while."""

TRAINING = """
import json, os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import tsnb

torch.set_num_threads(1)
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

def train(model, batches, epochs=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(epochs):
        for x, number in batches:
            seen.append(number.tolist())
            optimizer.zero_grad()
            ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
            optimizer.step()
    return seen

def report(model, seen, **more):
    plain = getattr(model, "module", model)
    weights = torch.cat([p.detach().flatten() for p in plain.parameters()]).tolist()
    with open(os.path.join(sys.argv[1], f"{rank}.json"), "w") as file:
        json.dump({"seen": seen, "weights": weights, **more}, file)
"""

DDP = (
    TRAINING
    + """
dist.init_process_group("gloo")
with tsnb.attach("ddp", "numbers", batch_size=24 // ranks, rank=rank, world_size=ranks) as batches:
    model = DistributedDataParallel(net())
    seen = train(model, batches)
    sizes = (len(batches), batches.batch_size)
with tsnb.attach("whole", "numbers", rank=rank, world_size=ranks, shard=False) as same:
    whole = [number.tolist() for _, number in same]
report(model, seen, sizes=sizes, whole=whole, same=(len(same), same.batch_size))
dist.destroy_process_group()
"""
)

ACCELERATE = (
    TRAINING
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
rank, ranks = accelerator.process_index, accelerator.num_processes
batches = tsnb.attach("acc", "numbers", batch_size=24 // ranks, rank=rank, world_size=ranks)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, batches.as_dataloader())
seen = []
for _ in range(2):
    for x, number in loader:
        seen.append(number.tolist())
        optimizer.zero_grad()
        accelerator.backward(((model(x) - x.sum(1, keepdim=True)) ** 2).mean())
        optimizer.step()
report(model, seen, kind=type(loader).__name__, ranks=ranks)
batches.close()
accelerator.end_training()
"""
)


class Numbers(Dataset[Any]):
    """Sample i is made of i, and says so."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([i, i % 7, i % 5, 1.0]) / 96, i


def serve() -> tsnb.Producer:
    """Serve 96 samples, 16 in a batch, shuffled with a seed."""
    return tsnb.serve(
        DataLoader(Numbers(), batch_size=16, shuffle=True), name="numbers", seed=3, rubber_band=1.0
    )


def launched(launcher: list[str], code: str, folder: Path) -> list[dict[str, Any]]:
    """Run a script with a launcher; return what its ranks reported, in their order."""
    script = folder / "train.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-m", *launcher, str(script), str(folder)],
        env=environment, capture_output=True, text=True, timeout=LAUNCH_S, check=False,
    )  # fmt: skip
    assert out.returncode == 0, out.stdout + out.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]


def trained_alone() -> tuple[list[list[int]], list[float]]:
    """Train in this process on the same stream, in batches of 24; return the samples of each step, and the weights."""
    space: dict[str, Any] = {}
    exec(TRAINING, space)  # the very code that the ranks run
    threads = torch.get_num_threads()
    with serve(), tsnb.attach("alone", batch_size=24) as batches:
        model = space["net"]()
        seen = space["train"](model, batches)
    torch.set_num_threads(threads)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    return seen, weights


@pytest.fixture(scope="module")
def alone() -> tuple[list[list[int]], list[float]]:
    """What a single process sees and learns."""
    return trained_alone()


def joined(reports: list[dict[str, Any]], key: str = "seen") -> list[list[int]]:
    """Return the samples of each step over all ranks, in the ranks' order."""
    return [list(chain(*parts)) for parts in zip(*(r[key] for r in reports), strict=True)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp_ranks_learn_what_a_single_process_learns(
    ranks: int, alone: tuple[list[list[int]], list[float]], tmp_path: Path
) -> None:
    """Over gloo, by torchrun: each step's parts make up the single process's batch, and the same weights come out.

    With `shard=False` every rank gets every batch whole.
    """
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    with serve():
        reports = launched(launcher, DDP, tmp_path)
    assert len(reports) == ranks
    assert joined(reports) == alone[0]
    for report in reports:
        assert torch.allclose(torch.tensor(report["weights"]), torch.tensor(alone[1]), atol=1e-5)
        assert report["sizes"] == [4, 24 // ranks]
        assert report["same"] == [6, 16]
        assert report["whole"] == reports[0]["whole"]
    assert sorted(chain(*reports[0]["whole"])) == list(range(96))


def test_accelerate_leaves_a_ranks_loader_as_it_is(
    alone: tuple[list[list[int]], list[float]], tmp_path: Path
) -> None:
    """`accelerate launch` on two ranks: `prepare` neither shards again nor reads on one rank alone."""
    pytest.importorskip("accelerate")
    launcher = ["accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_machines=1",
                "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]  # fmt: skip
    with serve():
        reports = launched(launcher, ACCELERATE, tmp_path)
    assert [report["ranks"] for report in reports] == [2, 2]
    assert joined(reports) == alone[0]
    for report in reports:
        assert torch.allclose(torch.tensor(report["weights"]), torch.tensor(alone[1]), atol=1e-5)


def test_a_killed_rank_ends_its_group_and_nobody_else(run: Run) -> None:
    """The other ranks raise `GroupBroken` at their next batch; who is outside goes on; the name is free again."""
    with serve():
        code = """
        rank = int(sys.argv[1])
        batches = tsnb.attach("job", "numbers", batch_size=4, rank=rank, world_size=3)
        try:
            for step, (x, number) in enumerate(batches):
                say("step", step)
                if step == 1:
                    sys.stdin.readline()
        except tsnb.errors.GroupBroken as error:
            say("broken", error)
        """
        ranks = [run(code, str(rank), stdin=True) for rank in range(3)]
        for rank in ranks:
            rank.expect("step 1", LAUNCH_S)
        with tsnb.attach("outside", "numbers") as outside:
            ranks[1].send(signal.SIGKILL)
            ranks[1].end()
            # nobody waits any more: all of an epoch can be had, though the other two stand still
            assert sum(len(number) for _, number in outside) == 96
        for rank in (ranks[0], ranks[2]):
            rank.answer("go on")
            said = rank.expect("broken", LAUNCH_S)
            assert "rank 1 of the group 'job' died" in said and "torchrun" in said
            assert not [line for line in rank.lines if line.startswith("step 2")], "it took a batch more"
            assert rank.end() == 0
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
    with tsnb.serve(batches, name="ragged", rubber_band=1.0):
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
        with pytest.raises(JoinRefused, match="differ in world_size: 2 in rank 0, 3 in this one"):
            tsnb.attach("g", rank=1, world_size=3, batch_size=4)
        with pytest.raises(JoinRefused, match=r"batch_size=4.*batch_size=8"):
            tsnb.attach("g", rank=1, world_size=2, batch_size=8)
        with pytest.raises(ValueError, match="ranks count from 0"):
            tsnb.attach("g", rank=2, world_size=2)
        with pytest.raises(ValueError, match="on_lag"):
            tsnb.attach("g", rank=1, world_size=2, on_lag="skip")
        with pytest.raises(JoinRefused, match="40 ranks"):
            tsnb.attach("h", rank=1, world_size=40)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.warns(UserWarning, match="one of 2 ranks"):
            tsnb.attach().close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tsnb.attach("own-name").close()
