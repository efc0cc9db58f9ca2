"""What a consumer tells its user once: that a shared batch was changed in place, that too many are held."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import torch

from tsnb.consumer.unpacking import Delivered
from tsnb.errors import SharedBatchWarning
from tsnb.wire.messages import HeldUp
from tsnb.wire.tree import leaf_paths

__all__ = ["Notices"]

MAX_LOOKED_AT = 10_000
"""Elements of the user's containers that are looked at for the one that hoards."""


class Notices:
    """Looks at what the user does with the batches. Each thing is said once in a consumer's life.

    Args:
        name: The consumer's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._given: list[tuple[int, weakref.ref[torch.Tensor], int]] = []
        self._batch: Delivered | None = None
        self._layout: Any = None
        self._written = False
        self._hoarding = False
        self._refused = False

    def given(self, delivered: Delivered) -> None:
        """Remember a batch that the user is about to get."""
        self._given.clear()
        if self._written or not delivered.shared:
            return
        self._layout = delivered.layout
        for index, leaf in enumerate(delivered.leaves):
            if isinstance(leaf, torch.Tensor) and not leaf.is_inference():
                self._given.append((index, weakref.ref(leaf), leaf._version))

    def look_for_writes(self) -> None:
        """Warn if the batch that was given last has been changed in place since."""
        for index, ref, version in self._given:
            leaf = ref()
            if leaf is not None and leaf._version != version:
                self._written = True
                self._given.clear()
                path = leaf_paths(self._layout.spec)[index]
                self._warn(
                    f"{path} was changed in place (by a method whose name ends in _, by +=, or by x[...] = ...). It "
                    f"lies in memory that {self._name!r} shares with the stream's other consumers: they see the "
                    "change. Write x = x / 255 in place of x /= 255, or attach with private=True, which gives "
                    "copies. This is said once."
                )
                return

    def look_for_hoarding(self, hold: int, arena: range) -> None:
        """Warn that batches are copied from now on, because so many are held.

        Args:
            hold: Those that one consumer may hold in shared memory.
            arena: The addresses of the shared memory in this process.
        """
        if self._hoarding:
            return
        self._hoarding = True
        keeper = _keeper(arena)
        self._warn(
            f"{self._name!r} keeps more than the {hold} batches that one consumer may keep in shared memory: further "
            f"ones are copied into this process's own, so that the others do not have to wait. {keeper} "
            "Keep numbers (loss.item()) or copies of what is needed (x[0].clone()), not batches. This is said once."
        )

    def device_refused(self, why: str) -> None:
        """Warn that batches are not shared on the device."""
        if not self._refused:
            self._refused = True
            self._warn(
                f"{self._name!r} cannot share batches on its device: {why}. Instead each trial copies its batches "
                "from the shared memory of the CPU to the device, as with share_on_device=False. This is "
                "said once."
            )

    def held_up(self, told: HeldUp, stream: str, batches: int | None) -> None:
        """Warn that this consumer waits for others to end their epoch. Said at most twice for each wait.

        Args:
            told: By the producer.
            stream: The stream's name.
            batches: Loader batches in an epoch, where known.
        """
        of = f" of {batches}" if batches is not None else ""
        still = ""
        if told.still_s >= told.patience_s / 2:
            still = (
                f" Nobody has taken a batch of it for {told.still_s:.0f} s: after {told.patience_s:.0f} s "
                "(patience_s) they lose their place in it, and the next epoch begins."
            )
        self._warn(
            f"{self._name!r} waits for an epoch of {stream!r} to begin. It cannot have all of epoch "
            f"{told.epoch}, which is at batch {told.published}{of} and is being taken by {told.holders}.{still} To "
            "wait less, end the loops that are not needed, or serve with a larger rubber_band=.",
            RuntimeWarning,
        )

    def _warn(self, text: str, category: type[Warning] = SharedBatchWarning) -> None:
        frame, level = _user_frame()
        del frame
        warnings.warn(text, category, stacklevel=level)


def _user_frame() -> tuple[FrameType | None, int]:
    """Return the innermost frame that is not tsnb's own, and how far up it is from the caller's."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tsnb."):
        frame, level = frame.f_back, level + 1
    return frame, level


def _keeper(arena: range) -> str:
    """Say which variable of the user's loop keeps batches, where one does."""
    frame, _ = _user_frame()
    if frame is None:
        return ""
    places = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_locals, frame.f_globals]
    for variables in places:
        for name, value in list(variables.items()):
            if not name.startswith("_") and isinstance(value, (list, tuple, dict, deque, set)):
                kept = sum(_keeps(x, arena) for x in _elements(value))
                if kept > 1:
                    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    return f"The variable {name!r} (a {type(value).__name__}, at {where}) keeps them."
    return "It may be a list of batches, or of losses that still have their graph."


def _keeps(value: Any, arena: range) -> bool:
    if isinstance(value, torch.Tensor):
        inside = value.device.type == "cpu" and value.numel() > 0 and value.data_ptr() in arena
        return inside or value.grad_fn is not None
    return hasattr(value, "__array_interface__") and value.__array_interface__["data"][0] in arena


def _elements(value: Any) -> Iterable[Any]:
    """Yield what containers hold, those inside them too, as far as is reasonable."""
    waiting, seen = [value], 0
    while waiting and seen < MAX_LOOKED_AT:
        item = waiting.pop()
        seen += 1
        if isinstance(item, Mapping):
            waiting.extend(list(item.values())[:MAX_LOOKED_AT])
        elif isinstance(item, (list, tuple, deque, set)):
            waiting.extend(list(item)[:MAX_LOOKED_AT])
        else:
            yield item
