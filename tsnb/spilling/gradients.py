"""Code of torch that needs gradients which an offloaded model does not have any more: refused, or warned of, in time.

    GradScaler.scale(loss)    its `backward` gives gradients that are too large, and each parameter would take its step
                              with them: refused at the first of them, before any step
    clip_grad_norm_, ..._value_    find no gradient, and clip nothing: a warning

Neither can be seen from a hook, so both are watched where torch has them, while a model is offloaded. Which `backward`
is that of a scaled loss is known by the graph's number, so other models of the process train with a `GradScaler` as
ever.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["GONE", "SCALED", "is_scaled", "unwatch", "watch"]

SCALED = (
    "A GradScaler scaled this loss. An offloaded model updates its parameters during backward(), with "
    "the unscaled gradients, so no step was taken. Train without a GradScaler, for example in "
    "bfloat16, or leave tsnb.offload out."
)
GONE = (
    "{what} found no gradients to clip. An offloaded model has already updated its parameters when "
    "backward() returns, and its gradients are gone. Clip each gradient as it arrives with "
    "parameter.register_hook(lambda gradient: gradient.clamp(-1, 1)), or leave tsnb.offload out. This "
    "warning is shown once."
)
CLIPPING = ("clip_grad_norm_", "clip_grad_value_")
KEPT = 16
"""Numbers of graphs: as many `backward` may be under way at once."""

_scaled: deque[int] = deque(maxlen=KEPT)
_told: weakref.WeakSet[Any] = weakref.WeakSet()
_undo: list[Callable[[], None]] = []


def _graph() -> int:
    return int(torch._C._current_graph_task_id())  # as torch's own hooks know it


def is_scaled() -> bool:
    """Whether the `backward` that runs on this thread is that of a scaled loss."""
    return _graph() in _scaled


def watch(gone: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
    """Begin to watch, unless that has begun.

    Args:
        gone: Returns the offloaded models of which some of these parameters have lost their gradients.
    """
    if _undo:
        return
    _watch_scaling()
    for name in CLIPPING:
        _watch_clipping(name, gone)


def unwatch() -> None:
    """Leave torch as it was."""
    while _undo:
        _undo.pop()()


def _watch_scaling() -> None:
    scaler: Any = torch.amp.GradScaler  # torch.cuda.amp's inherits it
    scale = scaler.scale

    @functools.wraps(scale)
    def noted(self: Any, outputs: Any) -> Any:
        made = scale(self, outputs)
        if made is not outputs:
            _note(made)
        return made

    scaler.scale = noted
    _undo.append(lambda: setattr(scaler, "scale", scale))


def _note(made: Any) -> None:
    if isinstance(made, torch.Tensor):
        if made.requires_grad:
            made.register_hook(lambda _: _scaled.append(_graph()))  # type: ignore[no-untyped-call]
    elif isinstance(made, (list, tuple)):
        for each in made:
            _note(each)


def _watch_clipping(name: str, gone: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
    function: Any = getattr(torch.nn.utils, name)
    # torch wraps it to have no gradients of its own: inside of that it is found by whoever has imported it before
    place = function.__closure__[function.__code__.co_freevars.index("func")]
    clip = place.cell_contents

    @functools.wraps(clip)
    def noticed(parameters: Any, *args: Any, **options: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = list(gone(parameters))
        if any(spilled not in _told for spilled in found):
            warnings.warn(GONE.format(what=name), RuntimeWarning, stacklevel=3)
        _told.update(found)
        if found and all(
            parameter.grad is None for parameter in parameters
        ):  # for some versions of torch an error
            return torch.tensor(0.0) if name == CLIPPING[0] else None
        return clip(parameters, *args, **options)

    place.cell_contents = noticed
    _undo.append(lambda: setattr(place, "cell_contents", clip))
