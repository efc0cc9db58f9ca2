"""A hash of what a trial's weights are before its first step, so that a race knows which trials begin alike.

The first loss does not tell: a head of zeros gives any network the same one, and dropout gives one network several.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

__all__ = ["watch_first_step"]

LOOKED_AT = 64
"""Elements of each parameter that count, evenly spread: weights of another seed differ in nearly all of theirs."""


def watch_first_step(tell: Callable[[str], None]) -> None:
    """Hash the weights before the first step of any optimizer of torch. Called once torch is imported.

    Args:
        tell: Called once, on the thread that trains, before the step. Not at all where weights cannot be read.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def before_step(optimizer: Any, *_: Any) -> None:
        handle.remove()
        with contextlib.suppress(
            Exception
        ):  # weights of a kind that cannot be read: a training goes on regardless
            tell(_hash_of(optimizer))

    handle = register_optimizer_step_pre_hook(before_step)


def _hash_of(optimizer: Any) -> str:
    """Return a hash of an optimizer's parameters, in whatever order and groups they are."""
    found = sorted(_bytes_of(one) for group in optimizer.param_groups for one in group["params"])
    return hashlib.blake2b(b"".join(found), digest_size=8).hexdigest()


def _bytes_of(parameter: Any) -> bytes:
    """Return a hash of one parameter: its shape, and some of its elements as they are on a CPU."""
    import torch

    flat = parameter.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // LOOKED_AT)].to("cpu", torch.float64)
    shape = repr(tuple(parameter.shape)).encode()
    return hashlib.blake2b(shape + some.numpy().tobytes(), digest_size=8).digest()
