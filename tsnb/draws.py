"""The global random generators of a process: whether something drew from them, and other states for a while."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["Draws", "another_seed", "draw_seed"]


class Draws(NamedTuple):
    """The states of torch's, Python's and numpy's global generators at one moment."""

    torch_state: torch.Tensor
    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> Draws:
        """Return what they are now; 20 us."""
        return cls(torch.default_generator.get_state(), random.getstate(), np.random.get_state())  # noqa: NPY002

    def restore(self) -> None:
        """Put them back."""
        torch.default_generator.set_state(self.torch_state)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002

    def same(self, other: Draws) -> bool:
        """Whether nothing was drawn in between."""
        return (
            self.python == other.python
            and torch.equal(self.torch_state, other.torch_state)
            and self.numpy[2:] == other.numpy[2:]
            and bool(np.array_equal(self.numpy[1], other.numpy[1]))
        )


def draw_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed as torch's DataLoader does; from the global generator by default."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


@contextlib.contextmanager
def another_seed(seed: int) -> Iterator[None]:
    """Draw from other states inside the block; afterwards they are as they were."""
    before = Draws.now()
    torch.default_generator.manual_seed(seed)
    random.seed(seed + 1)
    np.random.seed((seed + 2) % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        before.restore()
