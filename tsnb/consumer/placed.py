"""The device that `attach` means: inside a trial that was put on a device, other names than outside."""

from __future__ import annotations

import torch

from tsnb.config import attach_defaults

__all__ = ["device_here"]


def device_here(asked: str | torch.device | None) -> str | torch.device | None:
    """Return where batches go.

    Args:
        asked: What the user's own code says; None: nothing.

    Raises:
        ValueError: It names a device that this process does not see; says what it is called here.
    """
    own, outside = attach_defaults.device, attach_defaults.outside
    if asked is None:
        return own
    word = str(asked)
    if outside is not None and word == outside:
        return own  # the cell says what stands behind --device
    if word.startswith("mig:"):
        raise ValueError(
            f"device={word!r}: torch has no such name. Start the trial with --device {word}, and leave device= "
            "out here; inside, the instance is called cuda:0."
        )
    if outside is None or not word.startswith("cuda"):
        return asked
    if own == "cpu":
        raise ValueError(
            f"device={word!r}: this trial was started with --device cpu and sees no GPU. Leave device= out, or "
            f"start it with --device {word}."
        )
    if own == "cuda:0" and word not in ("cuda", "cuda:0"):
        raise ValueError(
            f"device={word!r}: this trial was started with --device {outside} and sees that GPU alone, which is "
            "called cuda:0 inside it. Leave device= out, or say cuda:0."
        )
    return asked
