"""The GPU memory of what `tsnb.checkpoint` has, given back while the trial stands still: `trial.pause(release=True)`.

| step | thread |
|---|---|
| the request: refused where there is nothing to give back, else noted | control |
| the trial stands still: each tensor's memory is copied to the host, and the allocator's cache is emptied | training |
| it goes on: copied back; where the GPU has no room by now, it waits for it and says so | training |

Tensors stay the objects that they are, and those that share memory (tied weights, the flat weights of an RNN) share it
afterwards. What is not kept stays on the GPU: activations that a variable holds, the last batch, the CUDA context.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tsnb.errors import TsnbError
from tsnb.stream.this_process import this_process

__all__ = ["DeviceMemory"]

ROOM_S = 0.5
"""How often a trial that goes on looks whether the GPU has room for it."""

_log = logging.getLogger("tsnb")


class DeviceMemory:
    """Gives back the GPU memory of kept objects while their training stands still.

    Args:
        name: The trial's name.
        objects: Returns the kept objects, by name.
        stands: Returns whether the training stands still now.
    """

    def __init__(
        self, name: str, objects: Callable[[], Mapping[str, Any]], stands: Callable[[], bool]
    ) -> None:
        self._name = name
        self._objects = objects
        self._stands = stands
        self._wished = False
        self._moved: list[tuple[Any, Any]] = []  # tensors, and where they were
        self._free = False  # their memory is free for others by now: copying it away is only half of that

    def request(self, content: Mapping[str, Any]) -> None:
        """Give it back from the next time on that the training stands still, or now. On the control channel's thread.

        Args:
            content: `wanted`: whether it is to be given back; else that is wished for no more.

        Raises:
            TsnbError: There is nothing to give back; says why, and what to do.
        """
        if not content["wanted"] or self._moved:
            self._wished = False
            return
        if why := self._why_nothing():
            raise TsnbError(why)
        if self._stands() and this_process.boundary is not None:
            raise TsnbError("it is being cloned. Release its memory after that")
        self._wished = True
        if self._stands():
            this_process.boundary = self.give_back

    def why_not(self) -> str:
        """Return why nothing can be given back now, and what to do; empty: something can. From any thread."""
        return "its GPU memory is already free" if self._free else self._why_nothing()

    def _why_nothing(self) -> str:
        torch = sys.modules.get("torch")
        # torch may be half imported just now
        if not getattr(getattr(torch, "cuda", None), "is_initialized", bool)():
            return "it uses no GPU, so it has no GPU memory to free. Pause it without release"
        if not self._objects():
            return (
                "only checkpointed state can be moved out of GPU memory. Put tsnb.checkpoint(net=net, "
                "optimizer=optimizer) before its loop over epochs, or pause it without release"
            )
        return ""

    def give_back(self) -> None:
        """Move the tensors to the host, if that was wished for. On the training's thread.

        What has gone on in the meantime keeps them.
        """
        if not self._wished or self._moved or not self._stands():
            return
        import torch

        from tsnb.spilling.offloaded import drop_all

        self._wished = False
        there = [tensor for tensor in _tensors(self._objects().values()) if tensor.is_cuda]
        moving = [(tensor, tensor.device) for tensor in there]
        try:
            _move(moving, to_host=True)
        except (RuntimeError, MemoryError) as error:  # torch says so where the host has no room
            first = str(error).partition("\n")[0]
            _log.warning("trial %r keeps its GPU memory while it is paused: %s", self._name, first)
            return
        self._moved = moving
        drop_all()
        gc.collect()
        torch.cuda.empty_cache()
        self._free = True

    def take_again(self) -> None:
        """Move them back where they were. On the training's thread, before it goes on."""
        import torch

        self._wished = self._free = told = False
        while self._moved:
            why = ""
            try:
                _move(self._moved, to_host=False)
                self._moved = []
            except torch.cuda.OutOfMemoryError as error:
                why = str(error).partition("\n")[0]
            if not why:
                return
            # After the except block: its traceback holds the frames of _move, and with them what was copied already,
            # which another trial that waits for room needs.
            torch.cuda.empty_cache()
            if not told:
                _log.warning(
                    "trial %r waits for free memory on its GPU before it resumes: %s", self._name, why
                )
            told = True
            time.sleep(ROOM_S)


def _tensors(objects: Any) -> Iterator[Any]:
    """Yield the tensors that modules and optimizers hold, gradients too, but those that are in host memory anyway."""
    import torch

    from tsnb.spilling.offloaded import is_offloaded

    for each in objects:
        if isinstance(each, torch.nn.Module):
            for tensor in (*each.parameters(), *each.buffers()):
                if not is_offloaded(tensor):
                    yield tensor
                if tensor.grad is not None:
                    yield tensor.grad
        elif isinstance(each, torch.optim.Optimizer):
            yield from (tensor for tensor in _held_by(each.state.values()) if not is_offloaded(tensor))


def _held_by(values: Any) -> Iterator[Any]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            yield from _held_by(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _held_by(value)


def _move(tensors: list[tuple[Any, Any]], *, to_host: bool) -> None:
    """Give tensors memory elsewhere with what they hold; those that share it share the new one. All of them, or none.

    Args:
        tensors: With the GPU that each belongs on.
        to_host: To the host; else to that GPU.
    """
    import torch

    made: dict[int, Any] = {}
    views = []
    with torch.no_grad():
        for tensor, device in tensors:
            storage = tensor.untyped_storage()
            key = storage.data_ptr()
            if key not in made:
                made[key] = storage.cpu() if to_host else storage.cuda(device.index)
            view = torch.empty(0, dtype=tensor.dtype, device="cpu" if to_host else device)
            views.append(view.set_(made[key], tensor.storage_offset(), tensor.size(), tensor.stride()))
        for (tensor, _), view in zip(tensors, views, strict=True):
            tensor.data = view
