"""A model on a GPU in parts: the same losses whenever copies are over, its limit, and checkpoints that are whole.

All but what is marked `gpu` runs on the CPU, by the same code: `Transfers` copies at once, `Late` as late as a GPU may.
"""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tsnb
from tests.spilling.test_spilled import OPTIMIZERS, WIDTH, Tied, net, train
from tsnb.errors import TsnbError
from tsnb.experiments.in_kernel.device_memory import DeviceMemory, _tensors
from tsnb.spilling.offloaded import Offloaded
from tsnb.spilling.spilled import Spilled
from tsnb.spilling.transfers import CudaTransfers, Transfers, device_of
from tsnb.stream.this_process import this_process
from tsnb.text.words import bytes_of as size_of

LIMIT = "400KiB"  # of 2.2 MB; what can be copied in of it is a matrix with its states, and one more
CPU = torch.device("cpu")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

pytestmark = pytest.mark.filterwarnings("ignore:This model and its optimizer take")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products on several threads wait for each other far longer than they compute where others compute, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class _Copy:
    """A copy that is under way."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.source, self.target = source, target
        self.values = source.clone()
        self.over = False
        target.fill_(torch.nan)

    def end(self) -> None:
        if not self.over:
            assert torch.equal(self.source, self.values), "it was written to while it was copied"
            self.target.copy_(self.source)
            self.over = True


class Late(Transfers):
    """Copies that are over when they are waited for, and not before: until then what they write is nan."""

    def __init__(self, device: torch.device = CPU) -> None:
        super().__init__(device)
        self.copies: list[_Copy] = []
        self.present: dict[int, int] = {}
        self.most = 0
        self.told: list[tuple[str, int]] = []

    def bring(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Begin to copy in."""
        tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
        self.present[id(tensor)] = tensor.untyped_storage().nbytes()
        self.most = max(self.most, sum(self.present.values()))
        self.told.append(("bring", id(tensor)))
        return self._begin(home, tensor)

    def write(self, tensor: torch.Tensor, home: torch.Tensor) -> Any:
        """Begin to copy out."""
        self.told.append(("write", id(tensor)))
        return self._begin(tensor, home)

    def _begin(self, source: torch.Tensor, target: torch.Tensor) -> _Copy:
        self.copies = [copy for copy in self.copies if not copy.over]
        for one in self.copies:
            if one.target is target or one.target is source:  # copies of one direction keep their order
                one.end()
        self.copies.append(_Copy(source, target))
        return self.copies[-1]

    def wait(self, copied: Any) -> None:
        """End a copy."""
        if copied is not None:
            copied.end()

    def drop(self, tensor: torch.Tensor, written: Any) -> None:
        """Take memory, after it was written."""
        self.wait(written)
        for one in self.copies:
            if one.target is tensor:
                one.over = True  # nobody waited for it
        del self.present[id(tensor)]
        self.told.append(("drop", id(tensor)))
        super().drop(tensor, written)

    def finish(self) -> None:
        """End all."""
        for one in self.copies:
            one.end()


def _now() -> Transfers:
    return Transfers(CPU)


def _cuda() -> Transfers:
    return CudaTransfers(torch.device("cuda"))


Make = Callable[[], Transfers]
ON_CPU: list[Any] = [pytest.param(_now, id="now"), pytest.param(Late, id="late")]
EVERYWHERE: list[Any] = [*ON_CPU, pytest.param(_cuda, id="cuda", marks=[pytest.mark.gpu, NO_GPU])]


def offloaded(
    model: nn.Module, optimizer: torch.optim.Optimizer, limit: str = LIMIT, make: Make = Late
) -> tuple[Spilled, Offloaded]:
    most = int(size_of(limit))
    memory = Offloaded(most, make())
    return Spilled(model, optimizer, most, memory), memory


def same(one: Any, other: Any, make: Make) -> None:
    """On a GPU sums of several threads may be rounded otherwise each time."""
    rtol, atol = (1e-4, 1e-5) if make is _cuda else (0.0, 0.0)
    torch.testing.assert_close(one, other, check_device=False, rtol=rtol, atol=atol)


@pytest.mark.parametrize("make", EVERYWHERE)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_and_parameters_are_the_same(name: str, make: Make) -> None:
    """With every optimizer, a schedule, tied and frozen parameters, several groups; within the limit."""
    found = []
    for spill in (False, True):
        model = net().to(make().device)
        biases = [p for p in model.parameters() if p.dim() == 1 and p.requires_grad]
        optimizer = OPTIMIZERS[name](
            [
                {"params": [p for p in model.parameters() if p.dim() > 1 and p.requires_grad]},
                {"params": biases, "lr": 0.001},
            ]
        )
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        if spill:
            held, memory = offloaded(model, optimizer, make=make)
            losses = train(model, optimizer, range(5), scheduler)
            assert held.present_bytes <= memory.limit_bytes < held.limit_bytes
            assert held.moved_bytes > held.need_bytes, "it went out and came back"
            assert getattr(memory.transfers, "most", 0) <= memory.limit_bytes, "at no moment more than that"
            held.close()
            assert model.first.weight is model.again.weight
            assert {type(p) for p in model.parameters()} == {nn.Parameter}
        else:
            one_by_one(optimizer)
            losses = train(model, optimizer, range(5), scheduler)
        losses += train(model, optimizer, range(5, 7))
        found.append((losses, [p.detach().cpu() for p in model.parameters()]))
    same(found[0][0], found[1][0], make)
    same(found[0][1], found[1][1], make)


def one_by_one(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer step one parameter after the other on a GPU, too: it rounds as a spilled one does."""
    for group in optimizer.param_groups:
        group["foreach"] = False


class Recurrent(nn.Module):
    """Layers whose parameters are used by others' operations, several at once, as views, by a user's own."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.names = nn.Embedding(200, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH, WIDTH))
        self.recurrent = nn.LSTM(WIDTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, dropout=0.0)
        self.image = nn.Conv2d(8, 128, 9)
        self.list = nn.ParameterList(torch.rand(WIDTH, WIDTH) / WIDTH for _ in range(6))

    def _encode(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.encoder(self.attention(x, x, x)[0])
        return made

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.names(words) @ self.scale.t()
        x, _ = self.recurrent(x)
        x = (
            self._encode(x)
            if self.reentrant is None
            else checkpoint(self._encode, x, use_reentrant=self.reentrant)
        )
        for weight in self.list:
            x = _Times.apply(x, weight)  # type: ignore[no-untyped-call]
        images = torch.nn.functional.pad(x.mean(1)[:, : 64 * 1].view(-1, 1, 8, 8), (4, 4, 4, 4)).expand(
            -1, 8, -1, -1
        )
        x = self.image(images).mean((2, 3)) @ self.scale.chunk(2)[0].T
        made: torch.Tensor = x @ self.names.weight[:WIDTH, :64].t()
        return made


class _Times(torch.autograd.Function):
    """A product of a user's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x + x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        flat = x.flatten(0, -2).t() @ gradient.flatten(0, -2)
        return gradient + gradient @ weight.t(), flat


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("make", EVERYWHERE)
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_every_way_of_using_a_parameter_is_seen(
    reentrant: bool | None, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recurrent layers, attention, activation checkpoints, views, lists of parameters, own functions with gradients."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    found = []
    for spill in (False, True):
        torch.manual_seed(0)
        model = Recurrent(reentrant).to(make().device)
        optimizer = OPTIMIZERS["AdamW"](model.parameters())
        one_by_one(optimizer)
        if spill:
            _, memory = offloaded(model, optimizer, "3MiB", make)
        losses = []
        for step in range(4):
            draws = torch.Generator().manual_seed(step)
            words = torch.randint(200, (5, 4), generator=draws).to(make().device)
            loss = model(words).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            losses.append(model.eval()(words).mean().item())
        found.append((losses, {name: p.detach().clone() for name, p in model.named_parameters()}))
    same(found[0][0], found[1][0], make)
    for name, values in found[0][1].items():
        same(values, found[1][1][name], make)
    assert memory.dropped_bytes > memory.limit_bytes


@pytest.mark.parametrize("make", EVERYWHERE)
def test_the_users_own_lines_see_whole_parameters(make: Make) -> None:
    """Norms, averages, changes in place and views outside of the model; evaluation without gradients."""
    plain, model = net().to(make().device), net().to(make().device)
    held, memory = offloaded(model, OPTIMIZERS["Adam"](model.parameters()), make=make)
    for mine, theirs in zip(plain.parameters(), model.parameters(), strict=True):
        same(mine.norm(), theirs.norm(), make)

    def weight(model: Tied, number: int) -> torch.Tensor:
        found: torch.Tensor = model.get_parameter(f"deep.{number}.weight")
        return found

    view = weight(model, 0)[3:5]
    with torch.no_grad():
        for one in (plain, model):
            weight(one, 0).clamp_(-0.01, 0.01)
            weight(one, 1).data[0] += 1
            weight(one, 2).mul_(2).add_(1)
            torch.add(weight(one, 3), 1, out=weight(one, 3))
    with torch.inference_mode():
        for one in (plain, model):
            weight(one, 4).mul_(3)
    inputs = torch.ones(2, WIDTH, device=make().device)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            for _ in range(2):  # each time all others make room
                same(plain(inputs), model(inputs), make)
    same(weight(plain, 0)[3:5], view + 0, make)
    assert "Parameter containing" in repr(weight(model, 0))
    same(weight(plain, 0), copy.deepcopy(weight(model, 0)), make)
    assert memory.dropped_bytes
    held.close()
    same(list(plain.parameters()), list(model.parameters()), make)
    with pytest.raises(TsnbError, match=r"This view of a parameter is from before close\(\)"):
        view + 0


@pytest.mark.parametrize("make", EVERYWHERE)
def test_hooks_in_backward_see_whole_parameters_and_take_none_from_the_layer_that_computes(
    make: Make,
) -> None:
    """A user's hook that looks at all parameters just before a layer's node runs."""
    plain, model = net().to(make().device), net().to(make().device)
    theirs, ours = (OPTIMIZERS["SGD"](one.parameters()) for one in (plain, model))
    wanted = train(plain, theirs, range(3))
    offloaded(model, ours, make=make)
    looked: list[float] = []

    def look(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        def norms(_gradients: Any) -> None:
            looked.extend(p.detach().norm().item() for p in model.parameters())

        assert output.grad_fn is not None
        output.grad_fn.register_prehook(norms)

    for layer in model.deep:
        layer.register_forward_hook(look)
    same(train(model, ours, range(3)), wanted, make)
    assert len(looked) == 3 * 6 * len(list(model.parameters())) and all(map(math.isfinite, looked))


@pytest.mark.parametrize("make", EVERYWHERE)
def test_a_saved_run_goes_on_with_the_same_losses(make: Make, tmp_path: Path) -> None:
    """Saved from host memory, one tensor each; loaded into a model that has no values yet, or had others."""
    model = net().to(make().device)
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    one_by_one(optimizer)
    wanted = train(model, optimizer, range(8))
    model = net().to(make().device)
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    held, memory = offloaded(model, optimizer, make=make)
    train(model, optimizer, range(4))
    entries = len(memory._entries)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert {v.device.type for v in state["model"].values() if v.numel() >= WIDTH**2} == {"cpu"}
    torch.save(state, tmp_path / "saved.pt")
    assert (tmp_path / "saved.pt").stat().st_size < 3 * sum(p.nbytes for p in model.parameters()) + 100_000
    same(train(model, optimizer, range(4, 6)), wanted[4:6], make)
    with torch.device("meta"):
        other = Tied()
    another = OPTIMIZERS["AdamW"](other.parameters())
    beside, theirs = offloaded(other, another, make=make)
    assert other.first.weight is other.again.weight
    train(other, another, range(1))
    for one, used, spilled, pages in ((model, optimizer, held, memory), (other, another, beside, theirs)):
        saved = torch.load(tmp_path / "saved.pt", mmap=True)
        one.load_state_dict(saved["model"])
        used.load_state_dict(saved["optimizer"])
        del saved
        assert all(
            pages.has(used.state[p]["exp_avg"]) for p in one.parameters() if pages.has(p) and p in used.state
        )
        assert len(pages._entries) == entries, "the old states have gone"
        assert spilled.present_bytes <= spilled.limit_bytes
        same(train(one, used, range(4, 8)), wanted[4:], make)


def test_the_next_layer_comes_in_before_one_computes() -> None:
    """Forwards; and backwards together with the states for the step, before which the layer below is there, too."""
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(8)])
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    held, memory = offloaded(model, optimizer, "900KiB")
    assert isinstance(memory.transfers, Late)
    told = memory.transfers.told
    for number, layer in enumerate(model):
        layer.register_forward_pre_hook(lambda *_, number=number: told.append(("compute", number)))
    for _ in range(3):  # the first step makes states
        told.clear()
        loss = model(torch.ones(2, WIDTH)).sum()
        told.append(("backward", 0))
        loss.backward()
        optimizer.step()
    layer_of = {id(memory._entries[key].tensor): n for n, key in enumerate(memory._keys(model.parameters()))}
    middle = told.index(("backward", 0))
    forward = [(what, n if what == "compute" else layer_of.get(n)) for what, n in told[:middle]]
    brought = [n for what, n in forward if what == "bring"]
    assert len(brought) >= 4, forward
    assert all(forward.index(("bring", n)) < forward.index(("compute", n - 1)) for n in brought if n), forward
    backward = [(what, layer_of.get(n, "state")) for what, n in told[middle + 1 :]]
    for n in range(7, 0, -1):  # a step is seen by what it writes
        assert backward.count(("write", n)) == 1, "once, when all of the step is done"
        step = backward.index(("write", n))
        assert [what for what, which in backward[:step] if which == "state"].count("bring") >= 2 * (8 - n)
        if ("bring", n - 1) in backward:
            assert backward.index(("bring", n - 1)) < step, backward
    held.close()


def _numbers(memory: Offloaded, tensors: list[torch.Tensor]) -> list[int]:
    """Return which tensors are there."""
    keys = memory._keys(tensors)
    return [n for n, key in enumerate(keys) if memory._is_present(key)]


@pytest.fixture
def memory() -> Iterator[tuple[Offloaded, list[torch.Tensor]]]:
    """Room for four of eight tensors."""
    memory = Offloaded(4 << 16, Late())
    tensors = [memory.tensor(torch.full((1 << 14,), float(n))) for n in range(8)]
    yield memory, tensors
    memory.close()


def test_what_was_used_longest_ago_makes_room(memory: tuple[Offloaded, list[torch.Tensor]]) -> None:
    """And before it what is done, in its order; never what is in use, held or just read ahead."""
    pages, tensors = memory
    for number in (0, 1, 2, 3, 0):
        pages.use(tensors[number])
    pages.use(tensors[4])
    assert _numbers(pages, tensors) == [0, 2, 3, 4], "1 was used longest ago"
    pages.done(tensors[4], tensors[0])
    pages.use(tensors[5])
    assert _numbers(pages, tensors) == [0, 2, 3, 5], "4 was done first"
    pages.hold(tensors[2])
    with pages.in_use([tensors[3]]):
        pages.read_ahead(tensors[6], tensors[7])
        assert _numbers(pages, tensors) == [2, 3, 6, 7]
        pages.read_ahead(tensors[1], tensors[0], tensors[4])
        assert _numbers(pages, tensors) == [0, 1, 2, 3], (
            "the first ones first, and no more than there is room for"
        )
        with pytest.raises(
            TsnbError, match=r"needs 327,680 bytes .* leaves 262,144.* by at least 65,536 bytes"
        ):
            pages.use(*tensors[5:])
    pages.hold()
    pages.use(*tensors[4:])
    assert [float(t[0]) for t in tensors[4:]] == [4, 5, 6, 7]
    assert pages.present_bytes == 4 << 16


def test_what_was_written_to_comes_back_as_it_was_left(memory: tuple[Offloaded, list[torch.Tensor]]) -> None:
    """A step writes, its copy goes on meanwhile, and the next write waits for it."""
    pages, tensors = memory
    for number in range(3):
        for n, tensor in enumerate(tensors):
            pages.use(tensor, writes=True)
            assert float(tensor[0]) == n + number
            tensor.add_(1)
            pages.done(tensor)
    assert [float(pages.whole(t)[7]) for t in tensors] == [n + 3 for n in range(8)]


def test_host_memory_is_taken_by_pieces_and_each_tensor_is_saved_alone(tmp_path: Path) -> None:
    """A file of one tensor has no others in it."""
    pages = Offloaded(1 << 20, Late())
    tensors = [pages.tensor(torch.full((1 << 15,), float(n))) for n in range(4)]
    assert len(pages._chunks) == 1
    torch.save(pages.whole(tensors[1]), tmp_path / "one.pt")
    assert (tmp_path / "one.pt").stat().st_size < (1 << 17) + 10_000
    small = pages.tensor(torch.ones(8))
    pages.use(tensors[0])
    assert not pages.has(small) and pages.has(tensors[0].view(2, -1)[1])
    home = pages.whole(tensors[1])
    pages.close()
    gc.collect()
    assert float(home[5]) == 1.0, "it is still there for whom it was saved"


def test_a_spilled_model_goes_with_its_last_reference() -> None:
    """Without close(), too: nothing keeps the memory on the device or in host memory."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    held, memory = offloaded(model, optimizer)
    train(model, optimizer, range(2))
    gone = weakref.ref(memory)
    del model, optimizer, held, memory
    gc.collect()
    assert gone() is None


def test_what_cannot_be_had_is_refused_by_name() -> None:
    """Before anything is moved, or where it is asked for."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        ValueError, match=r"too low: the largest parameter takes 65,536 bytes, and [\d,]+ with its .* GPU"
    ):
        offloaded(model, optimizer, "300KiB")
    with pytest.raises(TsnbError, match="optimizer's parameters do not belong to the model"):
        offloaded(model, OPTIMIZERS["Adam"](net().parameters()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    held, memory = offloaded(model, optimizer)
    with pytest.raises(TsnbError, match=r"already offloaded"):
        tsnb.offload(model, optimizer, LIMIT)
    with pytest.raises(
        TsnbError,
        match=r"The \.data of an offloaded parameter cannot be replaced, so model.to\(...\), model.half\(\)",
    ):
        model.half()
    with pytest.raises(
        TsnbError, match=r"One operation needs .* Raise the limit of tsnb.offload by at least"
    ):
        torch._foreach_norm([p.detach() for p in model.parameters()])
    model(torch.ones(2, WIDTH)).sum().backward()
    with pytest.raises(TsnbError, match=r"backward\(\) ran twice before optimizer.step\(\)"):
        model(torch.ones(2, WIDTH)).sum().backward()
    memory.transfers.free_bytes = lambda: 1000  # type: ignore[method-assign]
    with pytest.raises(TsnbError, match=r"close\(\) moves all .* do not fit into the 1,000 that are free"):
        held.close()
    assert len(model.state_dict()) == len(before), "and it is as it was"
    odd = net()
    odd.first.weight.__class__ = type("Own", (nn.Parameter,), {})
    with pytest.raises(TsnbError, match=r"'first.weight' is a Own\. On a GPU"):
        offloaded(odd, OPTIMIZERS["Adam"](odd.parameters()))


def test_a_spilled_model_is_neither_copied_nor_pickled_as_a_whole() -> None:
    """Most of its tensors have no memory just now."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    held, _ = offloaded(model, optimizer)
    train(model, optimizer, range(1))
    for whole in (model, optimizer, model.first.weight):
        with pytest.raises(
            TsnbError, match=r"cannot be copied or pickled as a whole. Use model.state_dict\(\)"
        ):
            pickle.dumps(whole)
    with pytest.raises(TsnbError, match="cannot be copied or pickled"):
        copy.deepcopy(model)
    held.close()
    same(list(copy.deepcopy(model).parameters()), list(model.parameters()), _now)


def test_a_trial_that_gives_its_gpu_memory_back_leaves_out_what_is_in_host_memory_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`trial.pause(release=True)`: what is there of it is dropped, and comes in again."""
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    wanted = net()
    theirs = OPTIMIZERS["Adam"](wanted.parameters())
    losses = train(wanted, theirs, range(4))
    held, memory = offloaded(model, optimizer)
    assert train(model, optimizer, range(2)) == losses[:2]
    assert memory.present_bytes
    moved = list(_tensors([model, optimizer]))
    assert moved and all(t.numel() < WIDTH**2 for t in moved)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(this_process, "boundary", None)
    DeviceMemory("cnn", lambda: {"net": model}, lambda: True).request({"wanted": True})
    assert this_process.boundary is not None
    this_process.boundary()
    assert memory.present_bytes == 0
    assert train(model, optimizer, range(2, 4)) == losses[2:]
    held.close()


def test_no_host_memory_is_an_error_and_the_model_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of moving it, and its optimizer's states."""

    class Full(Late):
        left = 12

        def host_memory(self, size: int) -> Any:
            self.left -= 1
            if not self.left:
                raise TsnbError("There is no host memory")
            return super().host_memory(size)

    monkeypatch.setattr("tsnb.spilling.offloaded.CHUNK_BYTES", 1 << 16)
    model = net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    train(model, optimizer, range(1))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))
    with pytest.raises(TsnbError, match="There is no host memory"):
        offloaded(model, optimizer, make=Full)
    same((model.state_dict(), optimizer.state_dict()["state"]), before, _now)
    assert type(model.first.weight) is nn.Parameter
    offloaded(model, optimizer)[0].close()


def test_where_a_model_is_trained() -> None:
    """Where it is, or on the GPU that is asked for; several devices and other kinds are refused by name."""
    cpu, meta, one, two = map(torch.device, ("cpu", "meta", "cuda:0", "cuda:1"))
    assert device_of({}) == cpu
    assert device_of({"a": meta, "b": cpu}) == cpu
    assert device_of({"a": meta, "b": one}) == one
    assert device_of({"a": cpu}, two) == two
    assert device_of({"a": meta}, one) == one
    assert device_of({"a": one}, torch.device("cuda")) == one
    for places, asked, words in (
        ({"a": cpu, "b": one}, None, "on several devices, 'a' on cpu and 'b' on cuda:0"),
        ({"a": one, "b": two}, one, "on several devices, 'a' on cuda:0 and 'b' on cuda:1"),
        ({"a": torch.device("mps")}, None, "the CPU or a CUDA GPU, and 'a' is on mps"),
        ({"a": cpu}, meta, "device='meta' is not supported: tsnb.offload trains on the CPU or a CUDA GPU"),
        ({"a": one}, two, "This model is on cuda:0, but device='cuda:1' was requested"),
        ({"a": one}, cpu, "This model is on cuda:0, but device='cpu' was requested"),
    ):
        with pytest.raises(TsnbError, match=words):
            device_of(places, asked)
    model = net()
    with pytest.raises(ValueError, match="directory= works for models on the CPU"):
        tsnb.offload(model, OPTIMIZERS["Adam"](model.parameters()), LIMIT, device="cuda", directory=".")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so() -> None:
    """And the model is as it was."""
    model = net()
    with pytest.raises(TsnbError, match=r"There is no CUDA GPU for device='cuda'"):
        tsnb.offload(model, OPTIMIZERS["Adam"](model.parameters()), LIMIT, device="cuda")
    assert type(model.first.weight) is nn.Parameter


@pytest.mark.gpu
@NO_GPU
def test_a_model_goes_to_a_gpu_in_parts_and_takes_no_more_than_its_limit_there() -> None:
    """Made on the CPU, 256 MiB with gradients and states; 96 MiB of the GPU beside activations."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)])
    plain = copy.deepcopy(model).cuda()
    theirs, ours = (torch.optim.Adam(m.parameters(), 1e-4) for m in (plain, model))
    wanted, found = [], []
    for step in range(4):
        batch = torch.randn(64, 1024, generator=torch.Generator().manual_seed(step)).cuda()
        loss = plain(batch).square().mean()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        wanted.append(loss.item())
    del plain, theirs, loss
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    held = tsnb.offload(model, ours, "96MiB", device="cuda")
    for step in range(4):
        batch = torch.randn(64, 1024, generator=torch.Generator().manual_seed(step)).cuda()
        loss = model(batch).square().mean()
        ours.zero_grad()
        loss.backward()
        ours.step()
        found.append(loss.item())
    assert torch.cuda.max_memory_allocated() - before < (96 << 20) + (40 << 20)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    held.close()
    assert {p.device.type for p in model.parameters()} == {"cuda"}
