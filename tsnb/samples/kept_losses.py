"""Keeps what trials have reported of samples in a file beside the growth log, for the producer that comes after.

    magic, length of what follows | JSON: identity, [[trial, samples], ...] | float32 of each trial, one after the other

A file with other trials or more samples replaces the one before as a whole. Else the numbers are written over those
that stand there: a producer that is killed meanwhile leaves some that are a second older than others, and all of them
whole, as none lies over the end of a page. What is not as it should be counts as nothing: rounds are drawn evenly then,
until trials report anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tsnb.config import way_out
from tsnb.files import open_private, read_private

__all__ = ["KeptLosses", "Losses"]

Losses = dict[str, npt.NDArray[np.float32]]
"""By trial; nan where nothing was reported."""

EVERY_S = 1.0
"""At most this often."""
SHARE = 0.05
"""At most this share of the time, however many losses there are."""
NUMBER_BYTES = 4
"""Numbers begin at multiples of these, so that none lies over the end of a page, where a killed writer may stop."""
_HEAD = struct.Struct("<8sI")
_MAGIC = b"tsnb-l1\0"

_log = logging.getLogger("tsnb")


class KeptLosses:
    """The file of one stream, for the one producer that has its log.

    Args:
        path: Where, in a directory of this user's.
        identity: The data set's; what was kept of another one does not count.

    Attributes:
        failed: Whether the last ones could not be written.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._head = b""  # of the file that stands there
        self._not_before_s = 0.0
        self.failed = False
        with contextlib.suppress(OSError):
            self._beside.unlink(missing_ok=True)  # of a producer that was killed as it wrote

    @property
    def _beside(self) -> Path:
        return self._path.with_suffix(".losses.tmp")

    def read(self) -> Losses:
        """Return what a producer before has kept; nothing where there is nothing, or it is damaged."""
        try:
            text = read_private(self._path)
            magic, length = _HEAD.unpack_from(text)
            told = json.loads(text[_HEAD.size : _HEAD.size + length])
            sizes = [(str(name), int(size)) for name, size in told["trials"]]
            numbers = np.frombuffer(text, "<f4", offset=_HEAD.size + length)
        except (OSError, ValueError, TypeError, KeyError, struct.error, RecursionError):
            return {}
        whole = len(numbers) == sum(size for _, size in sizes) and all(size >= 0 for _, size in sizes)
        if magic != _MAGIC or told.get("identity") != self._identity or not whole or np.isinf(numbers).any():
            return {}
        self._head = text[: _HEAD.size + length]
        ends = np.cumsum([0, *(size for _, size in sizes)])
        return {
            name: numbers[start : start + size].astype(np.float32)
            for (name, size), start in zip(sizes, ends[:-1], strict=True)
        }

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() >= self._not_before_s

    def save(self, losses: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Keep these. A full disk is told in the log, once, and tried again: nobody's training ends for it."""
        began_s = time.monotonic()
        try:
            self._write(losses)
        except OSError as error:
            if not self.failed:
                _log.warning(
                    "the losses that trials report cannot be stored (%s). After a restart, the stream "
                    "draws rounds evenly until losses are reported again. %s",
                    error,
                    way_out(error),
                )
            self.failed, self._head = True, b""
            with contextlib.suppress(OSError):
                self._beside.unlink(missing_ok=True)
        else:
            self.failed = False
        now_s = time.monotonic()
        self._not_before_s = now_s + max(EVERY_S, (now_s - began_s) / SHARE)

    def _write(self, losses: Mapping[str, npt.NDArray[np.float32]]) -> None:
        told = {"identity": self._identity, "trials": [[name, len(its)] for name, its in losses.items()]}
        text = json.dumps(told).encode()
        text += b" " * (-(_HEAD.size + len(text)) % NUMBER_BYTES)
        head = _HEAD.pack(_MAGIC, len(text)) + text
        body = b"".join(its.astype("<f4").tobytes() for its in losses.values())
        if head != self._head:
            file = open_private(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(file, "wb") as whole:
                whole.write(head + body)
            self._beside.replace(self._path)
            self._head = head
            return
        with os.fdopen(open_private(self._path, os.O_WRONLY), "wb") as there:
            there.seek(len(head))
            there.write(body)
