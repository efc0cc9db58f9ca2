"""One hash of whole numbers, splitmix64: it decides folds, orders of growing data and who keeps which sample.

All processes, machines and versions have to come to the same numbers, so it is written out here, and never changes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["hashed", "mixed", "salt_of"]


def salt_of(text: str) -> int:
    """Return a number of 64 bits that stands for a text: a seed, or a machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hashed(numbers: npt.NDArray[np.int64], salt: str) -> npt.NDArray[np.uint64]:
    """Return a hash of each number: uint64 [len(numbers)].

    Args:
        numbers: Any whole numbers, [n].
        salt: Which of the hashes.
    """
    return mixed(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt_of(salt)))


def mixed(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the last steps of splitmix64 for each value: uint64 [len(values)]."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: npt.NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return found
