"""What needs gradients that are gone: refused before a wrong step, or warned of; torch is left as it was."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import tsnb
from tests.spilling.test_spilled import DISK, WIDTH, net, spilled, train
from tsnb.errors import TsnbError


def new_scaler() -> Any:
    """Scales by 65,536."""
    return torch.amp.GradScaler("cpu")


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any, *, several: bool = False
) -> None:
    loss = model(torch.randn(4, WIDTH)).square().mean()
    optimizer.zero_grad()
    made = scaler.scale([loss, loss])[1] if several else scaler.scale(loss)
    made.backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("several", [False, True])
def test_a_scaled_loss_is_refused_before_any_parameter_has_taken_a_step(several: bool) -> None:
    """And the next loss without a scale trains on, from the very same weights."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    held = spilled(model, optimizer)
    before = weights(model)
    for _ in range(2):
        with pytest.raises(TsnbError, match=r"A GradScaler scaled this loss.*no step was taken.*bfloat16"):
            scaled_step(model, optimizer, new_scaler(), several=several)
        assert all(map(torch.equal, before, weights(model)))
    scaled_step_is_plain = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.zero_grad()
    scaled_step(model, optimizer, scaled_step_is_plain)
    assert not all(map(torch.equal, before, weights(model)))
    held.close()


def test_a_scaler_of_another_model_goes_on_while_one_is_spilled() -> None:
    """A discriminator's, say, in turns with a spilled generator; and of the model itself once it is closed."""
    model, other = net(), nn.Linear(WIDTH, 2)
    optimizer, its = torch.optim.SGD(model.parameters(), 0.05), torch.optim.SGD(other.parameters(), 0.05)
    held = spilled(model, optimizer)
    scaler = new_scaler()
    for step in range(3):
        before = weights(other)
        scaled_step(other, its, scaler)
        assert not all(map(torch.equal, before, weights(other)))
        train(model, optimizer, range(step, step + 1))
    held.close()
    scaled_step(model, optimizer, scaler)


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
def test_clipping_what_is_gone_is_warned_of_once(clip: Any) -> None:
    """However it was imported; not for another model, and not once the model is closed."""
    model, other = net(), nn.Linear(WIDTH, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    held = spilled(model, optimizer)

    def step() -> list[warnings.WarningMessage]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model(torch.randn(4, WIDTH)).square().mean().backward()
            other(torch.randn(4, WIDTH)).square().mean().backward()
            clip(other.parameters(), 1e-3)
            assert not told
            clip(model.parameters(), 1e-3)
            optimizer.step()
        return told

    (one,) = step()
    assert "found no gradients to clip" in str(one.message) and "register_hook" in str(one.message)
    assert one.filename == __file__
    assert not step()
    assert max(float(p.grad.abs().max()) for p in other.parameters() if p.grad is not None) <= 1.001e-3
    held.close()
    assert not step()


def test_a_hook_clips_each_gradient_as_it_comes() -> None:
    """As the warning says: the same weights as those of a model that is not spilled."""
    found = []
    for spill in (False, True):
        model = net()
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_hook(lambda gradient: gradient.clamp(-1e-4, 1e-4))  # type: ignore[no-untyped-call]
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        held = spilled(model, optimizer) if spill else None
        train(model, optimizer, range(3))
        found.append(weights(model))
        if held is not None:
            held.close()
    assert all(map(torch.equal, *found))


def test_torch_is_as_it_was_when_no_model_is_spilled() -> None:
    """Closed, or gone without a word, whichever goes last."""

    def parts() -> list[Any]:
        scaler: Any = torch.amp.GradScaler
        cells = [f.__closure__[0].cell_contents for f in (clip_grad_norm_, clip_grad_value_)]  # type: ignore[index]
        return [scaler.scale, *cells]

    gc.collect()  # those of other tests
    before = parts()
    first, second = net(), net(1)
    one = spilled(first, torch.optim.SGD(first.parameters(), 0.05))
    two = spilled(second, torch.optim.SGD(second.parameters(), 0.05))
    assert not any(a is b for a, b in zip(before, parts(), strict=True))
    one.close()
    assert not any(a is b for a, b in zip(before, parts(), strict=True))
    two.close()
    assert all(a is b for a, b in zip(before, parts(), strict=True))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"model": 3}, TypeError, "The model must be a torch.nn.Module, got int"),
        ({"optimizer": 3}, TypeError, "The optimizer must be a torch.optim.Optimizer, got int"),
        ({"optimizer": None}, TypeError, "got NoneType"),
        ({"limit": None}, ValueError, "is not a size"),
        ({"limit": True}, ValueError, "is not a size"),
        ({"limit": float("nan")}, ValueError, "is not a size"),
        ({"directory": 3}, TypeError, "directory= must be a path, got int"),
        ({"device": 3}, TypeError, 'device= must be "cuda"'),
        ({"device": "gpu"}, ValueError, "device='gpu' is not a device"),
    ],
)
def test_other_arguments_are_refused_by_name(
    change: dict[str, Any], error: type[Exception], said: str
) -> None:
    model = net()
    given: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.05),
        "limit": "400KiB",
    }
    given |= {"directory": DISK, **change}
    with pytest.raises(error, match=said):
        tsnb.offload(**given)
