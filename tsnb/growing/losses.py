"""What trials report of the losses of samples: a moving average for each sample and trial.

    average = loss                                   the first time
    average = average + SMOOTHING * (loss - average)     from then on

A trial sees each sample once an epoch, so the average reaches over a few of its epochs. Trials are averaged last, each
with the same weight: the loss of a sample is the mean over those that have reported it.

`KeptLosses` keeps all of it in a file beside the growth log, for the producer that comes after.

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
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tsnb.config import way_out
from tsnb.private.files import open_private, read_private

__all__ = ["KeptLosses", "Losses", "SampleLosses"]

SMOOTHING = 0.5
"""Weight of the newest loss: an older one is of a model that has learned since."""
ROOM = 1.5
"""Memory is taken for so many times the samples that there are, as there will be more."""


class SampleLosses:
    """The losses of one stream's samples. Used from any thread.

    Memory: 4 bytes for each sample and trial.

    Args:
        count: Returns how many samples there are.
        known: What was reported to a producer before, by trial; as `changes` returns it.
    """

    def __init__(
        self, count: Callable[[], int], known: Mapping[str, npt.NDArray[np.float32]] | None = None
    ) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._of = dict(known or {})  # nan where nothing was reported
        self._changed = False

    def note(self, trial: str, samples: npt.NDArray[Any], losses: npt.NDArray[np.float32]) -> None:
        """Take what a trial reports.

        Args:
            trial: Its name.
            samples: Which; those that there are not are left out.
            losses: float32, one for each; finite.
        """
        with self._lock:
            there = samples < self._count()
            samples, losses = samples[there].astype(np.int64), losses[there]
            known = self._with_room(trial)
            self._changed = True
            before = known[samples]
            known[samples] = np.where(np.isnan(before), losses, before + SMOOTHING * (losses - before))

    def _with_room(self, trial: str) -> npt.NDArray[np.float32]:
        known = self._of.get(trial, np.empty(0, np.float32))
        if len(known) < self._count():
            more = np.full(int(ROOM * self._count()) - len(known), np.nan, np.float32)
            known = self._of[trial] = np.concatenate([known, more])
        return known

    @property
    def trials(self) -> tuple[str, ...]:
        """Those that have reported."""
        return tuple(self._of)

    def keep(self, trials: Collection[str]) -> None:
        """Forget what others have reported, unless these have reported nothing.

        Args:
            trials: Names.
        """
        with self._lock:
            if any(name in self._of for name in trials):
                self._changed = self._changed or not self._of.keys() <= set(trials)
                self._of = {name: known for name, known in self._of.items() if name in trials}

    def changes(self, *, anyway: bool = False) -> dict[str, npt.NDArray[np.float32]] | None:
        """Return a copy of all, by trial; None where nothing has changed since it was called last.

        Args:
            anyway: Also where nothing has.
        """
        with self._lock:
            if not (self._changed or anyway):
                return None
            self._changed = False
            return {name: known.copy() for name, known in self._of.items()}

    def mean(self, samples: int, trial: str = "") -> npt.NDArray[np.float64]:
        """Return the loss of each sample: float64 [samples], nan where none was reported.

        Args:
            samples: The first so many.
            trial: Whose; empty: the mean over all trials that have reported it.
        """
        total, reports = np.zeros(samples), np.zeros(samples)
        with self._lock:
            for name, known in self._of.items():
                if not trial or name == trial:
                    part = known[:samples]
                    there = ~np.isnan(part)
                    total[: len(part)][there] += part[there]
                    reports[: len(part)] += there
        total[reports == 0] = np.nan
        return total / np.maximum(reports, 1)


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
