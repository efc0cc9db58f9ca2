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
from tsnb.text.words import bytes_of as size_of

__all__ = ["offload"]


def offload(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    limit: str | float,
    *,
    directory: str | Path | None = None,
    device: str | torch.device | None = None,
) -> Spilled:
    """Train a model larger than memory, from a file or from host memory.

    On a CPU the parameters and optimizer states are in a file. On a GPU they are in pinned host memory. The
    training loop stays as it is, and losses are the same. Each parameter takes its step during `backward`, and its
    gradient is gone afterwards. So there is no clipping by common norm, no gradient accumulation and no
    `GradScaler` (docs/offload-a-model.md).

    Example:
        >>> offloaded = tsnb.offload(model, optimizer, "1MB")
        >>> offloaded.close()

    Args:
        model: Model on the CPU or a GPU, all of it, or on "meta" (its `reset_parameters` then fill it).
        optimizer: Optimizer over its parameters, any of torch.optim except LBFGS.
        limit: Memory for parameters and states, for example "700MB". On a GPU it counts gradients too. Activations
            come on top, and one gradient (GPU: what one step needs).
        directory: Directory of the file, on a disk. Not for a GPU. Defaults to the directory of temporary files.
        device: GPU to train on, "cuda" or "cuda:1". Defaults to where the model is.

    Returns:
        The offloaded model. `close()` undoes it.

    Raises:
        ValueError: If the limit is not a size, or below what the largest parameter needs, or a directory is given
            for a GPU.
        TypeError: If the optimizer does not step parameter by parameter, or an argument has the wrong type.
        TsnbError: If the model is on several devices or an unsupported one, is offloaded already, or the directory
            cannot be used.
    """
    _check_types(model, optimizer, directory, device)
    most = int(size_of(limit))
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS needs all gradients at once, so tsnb.offload does not support it. Use another "
            "optimizer of torch.optim."
        )
    if is_spilled(model):
        raise TsnbError(
            "This model is already offloaded. First call close() on the object that tsnb.offload returned."
        )
    on = device_of(
        {name: p.device for name, p in model.named_parameters()},
        None if device is None else torch.device(device),
    )
    if on.type == "cpu":
        pages: Pages | Offloaded = Pages(most, Path(directory or tempfile.gettempdir()).resolve())
    elif directory is not None:
        raise ValueError(
            "directory= works for models on the CPU. On a GPU, parameters and states are kept in host "
            "memory. Leave directory= out."
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
            raise TypeError(f"The {word} must be a {name}, got {type(given).__name__}. For example: {call}.")
    if directory is not None and not isinstance(directory, (str, Path)):
        raise TypeError(
            f"directory= must be a path, got {type(directory).__name__}. For example: {call[:-1]}, "
            'directory=".").'
        )
    if device is not None and not isinstance(device, torch.device):
        if not isinstance(device, str):
            raise TypeError(f'device= must be "cuda" or "cuda:1", got {type(device).__name__}.')
        try:
            torch.device(device)
        except RuntimeError:
            raise ValueError(f'device={device!r} is not a device. Pass "cuda" or "cuda:1".') from None
