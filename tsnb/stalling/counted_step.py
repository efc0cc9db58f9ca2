"""The step of a user while it is measured: it is counted, and where it raises it is told at which batch, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tsnb.errors import TsnbError
from tsnb.printable import raised_in

__all__ = ["CountedStep"]

Step = Callable[[Any], Any]


class CountedStep:
    """A step that counts how often it runs: it really trains.

    Args:
        step: The user's.
    """

    def __init__(self, step: Step) -> None:
        self.runs = 0
        """How often it was called."""
        self._step = step

    def __call__(self, batch: Any) -> Any:
        """Train on a batch.

        Raises:
            TsnbError: The step raised.
        """
        self.runs += 1
        try:
            return self._step(batch)
        except Exception as error:
            number = "its first batch" if self.runs == 1 else f"its batch {self.runs}"
            raise TsnbError(
                f"the step raised {type(error).__name__} at {number}{raised_in(error)}: {error}\n"
                f"The batch is {_kind(batch)}. Try it alone: step(next(iter(loader)))."
            ) from error


def _kind(value: Any, depth: int = 1) -> str:
    """Return what a batch is, in words: "a list of 2: Tensor [8, 3], Tensor [8]"."""
    if isinstance(value, Mapping):
        parts = [f"{key!r}: {_kind(each, 0)}" for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [_kind(each, 0) for each in value]
    else:
        shape = getattr(value, "shape", None)
        name = type(value).__name__ + ("" if shape is None else f" {list(shape)}")
        return f"a {name}" if depth else name
    name = f"{type(value).__name__} of {len(parts)}"
    return f"a {name}: {', '.join(parts[:8])}" if depth else name
