"""`tsnb.offload`: what was asked for, refused where it cannot be, and where the tensors will be kept."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tsnb.errors import TsnbError
from tsnb.spilling.offloaded import Offloaded
from tsnb.spilling.pages import Pages
from tsnb.spilling.spilled import Spilled, is_spilled
from tsnb.spilling.transfers import CudaTransfers, device_of
from tsnb.words import bytes_of as size_of

__all__ = ["offload"]


def offload(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    limit: str | float,
    *,
    directory: str | Path | None = None,
    device: str | torch.device | None = None,
) -> Spilled:
    """Keep a model's parameters and its optimizer's states in a file, and at most `limit` of them in memory.

    On a GPU they are kept in pinned host memory, and at most `limit` on the GPU: the next layer is copied there while
    one computes, and what was stepped is copied back meanwhile.

    The loop stays as it is: `loss.backward()`, `optimizer.step()`, `optimizer.zero_grad()`. Each parameter takes
    its step during `backward`, as soon as its gradient is there, and the gradient goes; losses are the same as
    without. Saving and loading of `state_dict` works as usual (load with `torch.load(..., mmap=True)`, or it is in
    memory first). A model that does not even fit once is made on the device "meta": its modules' `reset_parameters`
    then fill it. With `device="cuda"` a model that is made on the CPU goes to the GPU in parts.

    Gradients are gone after `backward`: no clipping by their common norm, no accumulation over several `backward`, no
    `GradScaler`. Until `close()`, memory blocks of 128 KiB or more that the process frees go back to the system at once
    (glibc's `M_MMAP_THRESHOLD`), or holes in the heap would take as much memory as the file saves.

    Args:
        model: On the CPU or a GPU, all of it, or on "meta".
        optimizer: Over its parameters; any of torch.optim except LBFGS.
        limit: Memory for parameters and states, "700MB"; activations and one gradient come on top. On a GPU its memory
            for parameters, gradients and states; activations and what the optimizer needs for one step come on top.
        directory: Where the file is, on a disk. By default that of temporary files. Not for a GPU.
        device: The GPU to train on, "cuda" or "cuda:1". By default a model is trained where it is.

    Returns:
        The offloaded model; `close()` undoes it.

    Raises:
        ValueError: The limit is not a size, or below what the largest parameter needs; or a directory for a GPU.
        TypeError: The optimizer does not step parameter by parameter, or something else was given for an argument.
        TsnbError: The model is on several devices or one of another kind, is offloaded already, or the directory cannot
            be used.
    """
    _check_types(model, optimizer, directory, device)
    most = int(size_of(limit))
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS needs all gradients at once: tsnb.offload works with any other optimizer of torch.optim."
        )
    if is_spilled(model):
        raise TsnbError("this model is offloaded already: close() what tsnb.offload has returned first.")
    on = device_of(
        {name: p.device for name, p in model.named_parameters()},
        None if device is None else torch.device(device),
    )
    if on.type == "cpu":
        pages: Pages | Offloaded = Pages(most, Path(directory or tempfile.gettempdir()).resolve())
    elif directory is not None:
        raise ValueError(
            "directory= is for models on the CPU: on a GPU parameters and states are kept in host memory. Leave it out."
        )
    else:
        pages = Offloaded(most, CudaTransfers(on))
    return Spilled(model, optimizer, most, pages)


def _check_types(model: Any, optimizer: Any, directory: Any, device: Any) -> None:
    """Refuse what is another argument, or none.

    Raises:
        TypeError, ValueError: As `spill`.
    """
    call = 'tsnb.offload(model, optimizer, "700MB")'
    for word, given, wanted in (("model", model, nn.Module), ("optimizer", optimizer, torch.optim.Optimizer)):
        if not isinstance(given, wanted):
            name = f"torch.{'nn.Module' if wanted is nn.Module else 'optim.Optimizer'}"
            raise TypeError(f"the {word} must be a {name}, and a {type(given).__name__} was given: {call}.")
    if directory is not None and not isinstance(directory, (str, Path)):
        raise TypeError(
            f'directory= must be a path, and a {type(directory).__name__} was given: {call[:-1]}, directory=".").'
        )
    if device is not None and not isinstance(device, torch.device):
        if not isinstance(device, str):
            raise TypeError(f'device= must be "cuda" or "cuda:1", and a {type(device).__name__} was given.')
        try:
            torch.device(device)
        except RuntimeError:
            raise ValueError(f'device={device!r} names no device: give "cuda" or "cuda:1".') from None
