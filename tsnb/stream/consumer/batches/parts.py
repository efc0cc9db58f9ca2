"""Parts of a stream: which samples of the loader's dataset one consumer takes, and which rows of a batch those are.

All consumers of a stream see one order. A consumer with a part gets the rows of each loader batch that are its own, in
that order, in batches of its own size. The restriction of a uniform permutation to a subset is uniform, so a part is
shuffled as well as the stream is.

A fold is drawn from (number of folds, seed, index) alone, by integer arithmetic: the same split in every process, on
every machine, with every version of Python, numpy and torch.

    key(i)  = splitmix64(i, seed)           a hash of the sample's index
    rank(i) = place of i when sorted by key
    fold(i) = rank(i) * folds // samples    so sizes differ by one at most

Pure: no torch, no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tsnb.stream.hashing import hashed

__all__ = ["Part", "fold_of", "own_rows"]

Mask = npt.NDArray[np.bool_]


class Part:
    """Which samples of the stream a consumer takes; see `tsnb.attach`.

    Attributes:
        words: What it is, as a table shows it.

    Args:
        subset: Indices, a mask, or a function of the index; None: all samples.
        fold: Which fold is held out, of how many, and the seed (0 if left out) of the split; None: no folds.
        held_out: Take the fold that is held out, not the others.

    Raises:
        ValueError: A fold that there is not, or a subset that is neither indices nor a mask nor a function.
    """

    def __init__(
        self, subset: Any = None, fold: Sequence[int] | None = None, *, held_out: bool = False
    ) -> None:
        if not isinstance(held_out, (bool, np.bool_)):
            raise ValueError(f"held_out={held_out!r:.40} is invalid. Pass True or False.")
        if held_out and fold is None:
            raise ValueError(
                "held_out=True needs a fold. Pass fold=(k, n): which fold of how many is held out."
            )
        self._fold = None if fold is None else _checked_fold(fold)
        self._held_out = held_out
        self._subset = None if subset is None else _checked_subset(subset)
        self._settled: tuple[int, Mask] | None = None
        self.words = self._words()

    def _words(self) -> str:
        if self._fold is None:
            return "subset"
        k, n, seed = self._fold
        words = f"held out of fold {k} of {n}" if self._held_out else f"fold {k} of {n}"
        words += f", seed {seed}" if seed else ""
        return words if self._subset is None else f"{words}, in a subset"

    def mask(self, samples: int) -> Mask:
        """Return which samples it takes: bool [samples], by index. Not to be changed.

        Args:
            samples: How many the dataset has.

        Raises:
            ValueError: The dataset does not have these samples, too few for the folds, or none is left.
        """
        if self._settled is None or self._settled[0] != samples:
            mask = _subset_mask(self._subset, samples)
            if self._fold is not None:
                self._keep_fold(mask)
            self._settled = (samples, mask)
        return self._settled[1]

    def _keep_fold(self, mask: Mask) -> None:
        assert self._fold is not None
        k, folds, seed = self._fold
        members = np.flatnonzero(mask)
        if len(members) < folds:
            raise ValueError(
                f"fold=({k}, {folds}) cannot divide {len(members)} samples into {folds} folds. Use no "
                "more folds than samples."
            )
        mask[members] = (fold_of(members, folds, seed) == k) == self._held_out

    def packed(self, samples: int) -> bytes:
        """Return the mask as `protocol.messages.Wants` has it.

        Raises:
            ValueError: As `mask`.
        """
        return np.packbits(self.mask(samples), bitorder="little").tobytes()

    def count(self, samples: int) -> int:
        """Return how many samples it takes of a dataset of `samples`.

        Raises:
            ValueError: As `mask`.
        """
        return int(np.count_nonzero(self.mask(samples)))

    def identity(self, samples: int) -> str:
        """Return what is equal for equal parts only, of a dataset of `samples`.

        Raises:
            ValueError: As `mask`.
        """
        packed = np.packbits(self.mask(samples)).tobytes()
        return f"{samples}:{hashlib.blake2b(packed, digest_size=8).hexdigest()}"


def fold_of(indices: npt.NDArray[np.int64], folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return in which fold each sample is held out: int64 [len(indices)], 0 to folds - 1.

    Args:
        indices: The samples that are split, each once.
        folds: How many folds.
        seed: Which of the splits.
    """
    ranks = np.empty(len(indices), np.int64)
    ranks[np.argsort(hashed(indices, str(seed)), kind="stable")] = np.arange(len(indices))
    return ranks * folds // len(indices)


def own_rows(mask: Mask, drawn: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return the rows of a batch that belong to a part, in order.

    Args:
        mask: As `Part.mask`.
        drawn: The index of each row's sample.

    Raises:
        IndexError: One of them is not in the dataset.
    """
    return np.flatnonzero(mask[drawn])


_IF_MASK = " A mask has True and False: pass mask.astype(bool)."


def _checked_fold(fold: Sequence[int]) -> tuple[int, int, int]:
    numbers = list(fold) if isinstance(fold, (tuple, list)) else []
    whole = all(isinstance(number, (int, np.integer)) and not isinstance(number, bool) for number in numbers)
    if len(numbers) not in (2, 3) or not whole:
        raise ValueError(f"fold={fold!r} is invalid. Pass (k, n) or (k, n, seed), for example fold=(0, 5).")
    k, n, seed = (*map(int, numbers), 0)[:3]
    if n < 2:
        leaves = "1 fold leaves" if n == 1 else f"{n} folds leave"
        raise ValueError(f"fold={fold!r} is invalid: {leaves} nothing to train on. Use 2 folds or more.")
    if not 0 <= k < n:
        raise ValueError(f"fold={fold!r} is invalid. The folds of {n} count from 0 to {n - 1}.")
    return k, n, seed


def _checked_subset(subset: Any) -> npt.NDArray[Any] | Callable[[int], Any]:
    if callable(subset):
        chosen: Callable[[int], Any] = subset
        return chosen
    several = isinstance(subset, (list, tuple, set, frozenset))
    if several and len({isinstance(one, (bool, np.bool_)) for one in subset}) > 1:
        raise ValueError(
            f"subset={subset!r:.60} mixes True or False with indices. Pass only indices, or a mask "
            "with True or False for each sample."
        )
    try:
        listed = np.asarray(sorted(subset) if isinstance(subset, (set, frozenset)) else subset).copy()
    except (TypeError, ValueError, RuntimeError):
        listed = np.array(None)
    if listed.ndim == 1 and not listed.size:
        raise ValueError("subset= is empty. Pass the index of at least one sample.")
    if listed.ndim != 1 or listed.dtype.kind not in "biu":
        raise ValueError(
            f"subset={subset!r:.60} is invalid. Pass a list of indices into the loader's dataset, a "
            "mask with True or False for each of its samples, or a function that takes an index and "
            "returns True or False."
        )
    if listed.dtype.kind != "b":
        values, counts = np.unique(listed, return_counts=True)
        if (counts > 1).any():
            raise ValueError(
                f"subset= has index {values[counts > 1][0]} more than once. An epoch gives each sample "
                f"of a subset once. Remove the repeated indices.{_IF_MASK if values.max() <= 1 else ''}"
            )
    return listed


def _said(subset: Callable[[int], Any], index: int) -> bool:
    """Ask a user's function for one index."""
    answer = subset(index)
    try:
        return bool(answer)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"subset= returned {answer!r:.60} for index {index}. Return True or False from your function."
        ) from None


def _subset_mask(subset: npt.NDArray[Any] | Callable[[int], Any] | None, samples: int) -> Mask:
    if subset is None:
        return np.ones(samples, np.bool_)
    if not isinstance(subset, np.ndarray):
        mask = np.fromiter((_said(subset, index) for index in range(samples)), np.bool_, samples)
    elif subset.dtype.kind == "b":
        if len(subset) != samples:
            raise ValueError(
                f"subset= is a mask of {len(subset):,} samples, but the loader's dataset has "
                f"{samples:,}. Pass a mask with one True or False per sample."
            )
        mask = subset.copy()
    else:
        wrong = subset[(subset < 0) | (subset >= samples)]
        if wrong.size:
            raise ValueError(
                f"subset= has index {wrong[0]}, but the loader's dataset has {samples:,} samples. Pass "
                f"indices from 0 to {samples - 1:,}."
            )
        mask = np.zeros(samples, np.bool_)
        mask[subset.astype(np.int64)] = True
    if not mask.any():
        raise ValueError(f"subset= leaves none of the dataset's {samples:,} samples. Select at least one.")
    return mask
