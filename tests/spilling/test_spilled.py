"""A model in a file: the same losses, less memory, and nothing left; what cannot be had is refused by name."""

from __future__ import annotations

import copy
import gc
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tsnb
from tests.system.conftest import Run, run
from tsnb.errors import TsnbError
from tsnb.machine.disks import in_memory
from tsnb.spilling.pages import Pages

__all__ = ["run"]

WIDTH = 128
LIMIT = "400KiB"  # of 2.2 MB: a matrix with two states takes 192 KiB
DISK = Path(__file__).parents[2]  # where a temporary directory may be memory

Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    **{
        name: lambda p, name=name: getattr(torch.optim, name)(p, lr=0.01)  # type: ignore[misc]
        for name in (
            "Adam",
            "AdamW",
            "NAdam",
            "RAdam",
            "Adamax",
            "Adadelta",
            "ASGD",
            "Adagrad",
            "RMSprop",
            "Rprop",
        )
    },
}


class Tied(nn.Module):
    """A deep net whose first matrix is used twice, with a norm and a part that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.deep = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.again = nn.Linear(WIDTH, WIDTH)
        self.again.weight = self.first.weight
        self.norm = nn.LayerNorm(WIDTH)
        self.frozen = nn.Linear(WIDTH, 10)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        for layer in self.deep:
            x = x + layer(x).relu()
        made: torch.Tensor = self.frozen(self.norm(self.again(x)))
        return made


def net(seed: int = 0) -> Tied:
    torch.manual_seed(seed)
    return Tied()


def spilled(
    model: nn.Module, optimizer: torch.optim.Optimizer, limit: str = LIMIT, directory: str | Path = DISK
) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it would fit
        return tsnb.offload(model, optimizer, limit, directory=directory)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, scheduler: Any = None
) -> list[float]:
    losses = []
    device = next(model.parameters()).device
    for step in steps:
        draws = torch.Generator().manual_seed(step)
        inputs = torch.randn(8, WIDTH, generator=draws)
        labels = torch.randint(10, (8,), generator=draws)
        loss = cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_and_parameters_are_the_same_bit_for_bit(name: str) -> None:
    """With every optimizer that steps by parameter, a schedule, tied and frozen parameters, several groups."""

    def groups(model: Tied) -> list[dict[str, Any]]:
        biases = [p for p in model.parameters() if p.dim() == 1 and p.requires_grad]
        return [
            {"params": [p for p in model.parameters() if p.dim() > 1 and p.requires_grad]},
            {"params": biases, "lr": 0.001},
        ]

    found = []
    for spill in (False, True):
        model = net()
        optimizer = OPTIMIZERS[name](groups(model))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        held = spilled(model, optimizer) if spill else None
        losses = train(model, optimizer, range(5), scheduler)
        if held is not None:
            assert held.present_bytes <= held.limit_bytes
            assert held.moved_bytes > held.need_bytes, "it went out and came back"
            held.close()
            assert model.first.weight is model.again.weight
            losses += train(model, optimizer, range(5, 7))
        else:
            losses += train(model, optimizer, range(5, 7))
        found.append((losses, [p.detach().clone() for p in model.parameters()]))
    (losses, parameters), (ours, mine) = found
    assert losses == ours
    assert all(map(torch.equal, parameters, mine))


def test_a_saved_run_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    """Saved from the file and loaded into it, also spilled first by a model that has no values yet."""
    model = net()
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    wanted = train(model, optimizer, range(8))
    model = net()
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    held = spilled(model, optimizer)
    assert train(model, optimizer, range(4)) == wanted[:4]
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved.pt")
    held.close()
    with torch.device("meta"):
        other = Tied()
    optimizer = OPTIMIZERS["AdamW"](other.parameters())
    spilled(other, optimizer)
    assert other.first.weight is other.again.weight
    saved = torch.load(tmp_path / "saved.pt", mmap=True)
    other.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    del saved
    assert train(other, optimizer, range(4, 8)) == wanted[4:]


def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is moved; and a second backward for one step, which would step twice."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(TypeError, match="LBFGS needs all gradients at once"):
        spilled(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(
        ValueError, match=r"limit=102,400 bytes is too low: the largest parameter takes 65,536 bytes"
    ):
        spilled(model, optimizer, "100KiB")
    with pytest.raises(ValueError, match="is not a size"):
        spilled(model, optimizer, "much")
    with pytest.raises(TsnbError, match="optimizer's parameters do not belong to the model"):
        spilled(model, OPTIMIZERS["Adam"](net().parameters()))
    with pytest.raises(TsnbError, match="is not writable"):
        tsnb.offload(model, optimizer, LIMIT, directory=tmp_path / "away")
    if in_memory(Path("/dev/shm")):
        with pytest.raises(TsnbError, match="/dev/shm is in memory, where a file saves no memory"):
            tsnb.offload(model, optimizer, LIMIT, directory="/dev/shm")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    held = spilled(model, optimizer)
    with pytest.raises(TsnbError, match="already offloaded"):
        spilled(model, optimizer)
    model(torch.ones(2, WIDTH)).sum().backward()
    with pytest.raises(TsnbError, match=r"backward\(\) ran twice before optimizer.step\(\)"):
        model(torch.ones(2, WIDTH)).sum().backward()
    held.close()


def test_it_advises_against_itself_where_the_model_fits() -> None:
    """It is slower, and a user who has the memory should know."""
    model = net()
    with pytest.warns(RuntimeWarning, match="They fit, so offloading only makes each step slower") as said:
        tsnb.offload(model, OPTIMIZERS["Adam"](model.parameters()), "1GiB", directory=DISK).close()
    assert said[0].filename == __file__


def test_the_file_goes_with_the_last_tensor() -> None:
    """It has no name, and no descriptor stays."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = spilled(model, optimizer)
    train(model, optimizer, range(2))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2, "a model has thousands of tensors"
    held.close()
    del held
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_the_file_goes_with_a_model_that_is_never_closed() -> None:
    """A cell of a notebook is run again, and makes another model."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    spilled(model, optimizer)
    train(model, optimizer, range(2))
    del model, optimizer
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_full_disk_is_an_error_and_not_a_signal() -> None:
    """Room is taken before it is written to."""
    pages = Pages(1 << 20, DISK)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(
            TsnbError, match=r"The disk has no room for 4,194,304 more bytes.*`ulimit -f`, 1\.0 MiB per"
        ):
            pages.tensor(torch.ones(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        pages.close()


TRAINING = """
import resource, torch
from torch import nn
from pathlib import Path
spills = sys.argv[1] == "spill"
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(64)])  # 64 MiB; with gradients and Adam's states 256
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
torch.randn(1024, 1024) @ torch.randn(1024, 1024)                          # its libraries have their memory by now
now = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (now + (40 << 20), -1))           # with the 64: 0.4 of the need
import warnings; warnings.simplefilter("ignore")
if spills: tsnb.offload(model, optimizer, "40MiB", directory=sys.argv[2])
try:
    for step in range(3):
        inputs = torch.randn(4, 512, generator=torch.Generator().manual_seed(step))
        loss = model(inputs).square().mean()
        say("loss", repr(loss.item()))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    say("well")
except RuntimeError as error: say("failed", str(error).splitlines()[0])
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_model_trains_where_it_has_two_fifths_of_the_memory_that_it_needs(run: Run) -> None:
    """Without it the same run fails: the process may not have more private memory."""
    plain = run(TRAINING, "plain", str(DISK))
    first = plain.expect("loss", 90.0)
    assert "allocate" in plain.expect("failed", 90.0)
    script = run(TRAINING, "spill", str(DISK))
    assert script.expect("loss", 90.0) == first
    script.expect("well", 90.0)


GOES_ON = """
from tests.spilling.test_spilled import OPTIMIZERS, net, spilled, train
saved, directory = sys.argv[1:]
model = net()
optimizer = OPTIMIZERS["AdamW"](model.parameters())
held, begin = spilled(model, optimizer, directory=directory), 0
if os.path.exists(saved):
    found = torch.load(saved, mmap=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    begin = found["step"]
for step in range(begin, 8):
    loss, = train(model, optimizer, range(step, step + 1))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
    torch.save(state, saved + ".new")
    with open(saved + ".losses", "a") as file: file.write(f"{step} {loss!r}\\n")
    os.replace(saved + ".new", saved)
    say("step", step)
say("well", held.moved_bytes > 0)
"""


@pytest.mark.slow
@pytest.mark.system
def test_a_run_that_is_killed_goes_on_from_its_checkpoint_and_leaves_nothing(
    run: Run, tmp_path: Path
) -> None:
    """SIGKILL anywhere in a step: the file had no name, and the losses are those of a run that was left alone."""
    model = net()
    wanted = train(model, OPTIMIZERS["AdamW"](model.parameters()), range(8))
    with tempfile.TemporaryDirectory(dir=DISK, prefix="spilled-") as directory:
        first = run(GOES_ON, str(tmp_path / "saved.pt"), directory)
        first.expect("step 2")
        first.send(signal.SIGKILL)
        first.end()
        assert not list(Path(directory).iterdir())
        second = run(GOES_ON, str(tmp_path / "saved.pt"), directory)
        assert second.expect("well") == "True"
        assert "step 2" not in second.lines, "it went on, and did not begin anew"
    lines = [line.split() for line in (tmp_path / "saved.pt.losses").read_text().splitlines()]
    assert dict(sorted((int(step), float(loss)) for step, loss in lines)) == dict(enumerate(wanted))
