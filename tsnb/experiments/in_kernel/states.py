"""One state of a training: what it holds, how it is written and read, and how it is put back.

| part | what it is |
|---|---|
| `objects` | what `state_dict` of each kept object has returned |
| `places` | where every consumer stood, and whether it had begun with its stream |
| `random` | the random states of Python, numpy and torch, on GPUs too |
| `progress` | numbers that go on: rows, samples, what its consumers did, live values |
| `inside`, `main`, `loop`, `until` | in which loop it was taken |
| `name` | the trial's, by which its consumers are called: a clone's are called by its own |

`kept_state` takes states and goes on from them; where their files lie is `records.kept`'s.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from tsnb.errors import TsnbError

__all__ = [
    "VERSION",
    "Restored",
    "check_objects",
    "draw_as_then",
    "load",
    "put_back",
    "random_states",
    "renamed",
    "save",
]

VERSION = 1
"""Of what a state holds: another one cannot be read."""


@dataclass(frozen=True)
class Restored:
    """From where a trial goes on."""

    epoch: int
    """The epoch that it goes on in, from 0, as the trial's own loop counts."""
    batch: int | None
    """Loader batches of it that it has taken; None: the epoch has not begun."""
    samples: int
    """Samples that it has taken in all."""
    rows: int
    """Rows that it has logged."""

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}" + (f", batch {self.batch}" if self.batch is not None else "")


def check_objects(objects: Mapping[str, Any], every_s: Any) -> None:
    """Refuse what cannot be kept.

    Raises:
        TypeError: It has no state, or nothing was given.
        ValueError: `every_s` is not a number of seconds.
    """
    if not objects:
        raise TypeError(
            "tsnb.checkpoint needs the objects to keep, by name: tsnb.checkpoint(net=net, "
            "optimizer=optimizer)"
        )
    if isinstance(every_s, bool) or not isinstance(every_s, (int, float)) or not every_s >= 0:
        raise ValueError(f"every_s={every_s!r} is invalid. Pass a number of seconds, 0 or more.")
    for name, each in objects.items():
        lacks = [
            method
            for method in ("state_dict", "load_state_dict")
            if not callable(getattr(each, method, None))
        ]
        if lacks or isinstance(each, type):
            kind = f"the class {each.__name__}" if isinstance(each, type) else f"a {type(each).__name__}"
            raise TypeError(
                f"tsnb.checkpoint({name}=...): {kind} has no {' and no '.join(lacks) or 'own state'}. Pass an "
                "object that has both, such as torch's modules, optimizers and schedulers."
            )


def put_back(states: dict[str, Any], objects: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Put back what was kept of objects, and take it out of what is still to be put back.

    Args:
        states: What was kept, by name.
        objects: The objects, by name.
        known: Those that were put back before.

    Raises:
        TsnbError: The state has none of that name, or the object does not take it.
    """
    for name, each in objects.items():
        if name not in states and name not in known:
            raise TsnbError(
                f"tsnb.checkpoint({name}=...): the checkpoint has no {name!r}, only {', '.join(states)}. Use "
                "the names that it was written with, or run the trial again from the top (rerun)."
            )
        if name in states:
            try:
                each.load_state_dict(states.pop(name))
            except Exception as error:
                first = str(error).partition("\n")[0]
                raise TsnbError(
                    f"tsnb.checkpoint({name}=...): the {type(each).__name__} does not accept its checkpoint: "
                    f"{first}. Create it as before, or run the trial again from the top (rerun)."
                ) from error


def renamed(key: Any, before: str, now: str) -> Any:
    """Return a consumer's stream and name in a trial that goes on under another name: a clone."""
    if key is None or not key[1].startswith(before):
        return key
    return key[0], now + key[1][len(before) :]


def save(state: Mapping[str, Any], file: BinaryIO) -> None:
    """Write a state.

    Raises:
        OSError: It cannot be written: the disk is full.
    """
    import torch

    try:
        torch.save(state, file)
    except RuntimeError as error:  # what torch makes of a full disk
        full = error.__context__
        raise (full if isinstance(full, OSError) else error) from None


def load(file: BinaryIO) -> dict[str, Any]:
    """Read a state, its tensors on the CPU.

    It is a file of this user's own, which no other user can change, and optimizers may keep any class in their state.

    Raises:
        TsnbError: Another version of tsnb wrote it.
        Exception: It is damaged.
    """
    import torch

    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    if state.get("tsnb") != VERSION:
        raise TsnbError("it was written by another version of tsnb")
    return state


def random_states() -> dict[str, Any]:
    """Return the random states of this process, those of its GPUs too where they are in use."""
    import numpy as np
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    drawn = np.random.get_state()  # noqa: NPY002 (the user's code may draw from the old generator)
    return {"python": random.getstate(), "numpy": drawn, "torch": torch.get_rng_state(), "cuda": cuda}


def draw_as_then(states: Mapping[str, Any]) -> None:
    """Put random states back, as `random_states` returned them."""
    import numpy as np
    import torch

    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002 (as above)
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)
