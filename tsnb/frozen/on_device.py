"""A frozen part on a GPU: the serving process computes it, and its results return to the host's memory.

The workers of a loader are forked, and cannot use the GPU of the process that they come from. So they prepare the
inputs, and the serving process copies these to the network's device. From the host's memory a batch goes on as any
other one does: into shared memory, and to the devices of trials. This has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["HOST", "device_of", "moved", "why_without_seed"]

HOST = torch.device("cpu")


def device_of(tensors: Iterable[torch.Tensor]) -> torch.device:
    """Return the device of the first tensor that is not in the host's memory; else the host's."""
    return next((value.device for value in tensors if value.device.type not in ("cpu", "meta")), HOST)


def why_without_seed(device: torch.device) -> str:
    """Return why `seed=` fixes nothing for a part on this device; "" where it does."""
    if device == HOST:
        return ""
    return (
        f"seed= does not make the epochs repeatable, because the frozen part is on {device} and the serving "
        "process computes it. Move the network to the CPU with .cpu(), or give the loader a generator with a seed."
    )


def moved(value: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device; those that are there already as they are."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(each, device) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(each, device) for each in value))
    if isinstance(value, (tuple, list)):
        return type(value)(moved(each, device) for each in value)
    return value
