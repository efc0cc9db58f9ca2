"""The soak's folder that grows: its files, the process that writes them, and what is checked of an epoch.

The order follows from the seed and from what entered where, so a consumer does not know it beforehand. What it does
know, without tsnb's code: each file's contents follow from its number; an epoch has no file twice; it has exactly the
first so many files of the index, whose two files are read here by their layout; and a round has exactly those that the
log beside it says, read by its layout, too. The driver compares the order that each consumer saw, in pieces of `PIECE`
samples, whichever producer gave them. At the end an epoch has every file, and each round of the log is one of all that
was new then, so that no file is left out or comes twice in those, or one of the last `RECENT`.
"""

from __future__ import annotations

import random
import signal
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.soak.contents import Loss, contents

__all__ = ["FIRST", "RECENT", "SETTLE_S", "InFolder", "indexed", "read", "rounds", "write", "wrong_rounds"]

FIRST = 1000
"""Files that are there at the beginning."""
SETTLE_S = 3.0
"""A file's second half is written at once or after a moment, on a crowded machine later."""
PIECE = 256
RECENT = 300
"""Files of a round of the last ones."""
BEGUN = 1
"""A row of the log: an epoch begins."""


def read(path: str) -> dict[str, Any]:
    """Return a sample: its number, and its image."""
    text = Path(path).read_bytes()
    image = np.frombuffer(text, np.uint8, offset=8).reshape(3, 16, 16).copy()
    return {"number": int.from_bytes(text[:8], "little"), "image": torch.from_numpy(image)}


def add(folder: Path, number: int, chosen: random.Random) -> None:
    """Write one file, in one of the ways in which files come."""
    text = number.to_bytes(8, "little") + contents(torch.tensor([number]), 0).numpy().tobytes()
    path = folder / str(number % 7) / f"{number:06}.image"
    path.parent.mkdir(exist_ok=True)
    if chosen.random() < 0.1:  # under its own name, a half at a time
        with path.open("wb", buffering=0) as file:
            file.write(text[:100])
            time.sleep(chosen.choice([0.0, 0.0, 0.3]))
            file.write(text[100:])
        return
    beside = path.with_suffix(".part")
    if chosen.random() < 0.05:  # of a writer that was killed
        path.with_name(f"dead-{number:06}.part").write_bytes(text[:50])
    beside.write_bytes(text)
    beside.rename(path)


def write(folder: Path, seed: int) -> int:
    """Be the process that adds files, in bursts, until SIGTERM; return how many there are."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    chosen = random.Random(seed)
    number = FIRST
    while not asked:
        for _ in range(chosen.choice([1, 3, 10, 30])):
            add(folder, number, chosen)
            number += 1
        time.sleep(chosen.uniform(0.0, 6.0))
    return number


def indexed(folder: str) -> list[int]:
    """Return the numbers of the files that the index has, in its order."""
    names = Path(folder, ".tsnb-index", "keys").read_bytes()
    whole = Path(folder, ".tsnb-index", "samples").read_bytes()[32:]
    records = np.frombuffer(whole, "<i8", len(whole) // 24 * 3).reshape(-1, 3)
    return [int(names[at : at + length].decode()[-12:-6]) for at, length, _ in records.tolist()]


class Round(NamedTuple):
    """A round as the log has it."""

    epoch: int
    first: int
    """Of the index's samples."""
    stop: int
    given: int
    """What had been in an epoch, or could have been, before it began."""


def rounds(folder: str) -> list[Round]:
    """Return all rounds that the stream's log has, in order."""
    found, given = [], 0
    for path in Path(folder, ".tsnb-index").glob("*.log"):
        text = path.read_bytes()
        rows = np.frombuffer(text, "<i8", len(text) // 48 * 6).reshape(-1, 6)[1:]
        for kind, epoch, _, third, fourth, fifth in rows.tolist():
            if kind == BEGUN and fifth:
                found.append(Round(epoch, fourth, third, given))
            given = max(given, third if kind == BEGUN else third + fourth)
    return found


def wrong_rounds(folder: str) -> list[str]:
    """Return the rounds that are neither of all that was new nor of the last `RECENT` files."""
    return [
        f"round {one.epoch} has files {one.first} to {one.stop}, and {one.given} had been given before"
        for one in rounds(folder)
        if one.first not in (one.given, max(0, one.stop - RECENT)) or one.first >= one.stop
    ]


class InFolder:
    """Checks one epoch of the folder.

    Args:
        epoch: Its number.
        folder: Where the files are.

    Attributes:
        is_round: Whether it has selected files; known at its end.
    """

    def __init__(self, epoch: int, folder: str) -> None:
        self._epoch = epoch
        self._folder = folder
        self._taken: list[int] = []
        self._known: set[int] = set()
        self._whole = False
        self.is_round = False

    def take(self, numbers: torch.Tensor, image: torch.Tensor) -> None:
        """Check one batch."""
        new = numbers.tolist()
        if len(self._known.union(new)) < len(self._known) + len(new):
            raise Loss(f"epoch {self._epoch}: a file came twice, after {len(self._taken)} samples")
        if not torch.equal(image, contents(numbers, 0)):
            raise Loss(
                f"epoch {self._epoch}: other contents than the files', after {len(self._taken)} samples"
            )
        self._known.update(new)
        self._taken += new

    def end(self) -> None:
        """Check that it has the first so many files of the index; of a round, exactly those that the log says."""
        own = next((one for one in rounds(self._folder) if one.epoch == self._epoch), None)
        if own is not None:
            self.is_round = True
            if self._known != set(indexed(self._folder)[own.first : own.stop]):
                raise Loss(f"round {self._epoch} had {len(self._taken)} files, others than {own}")
            return
        if self._known != set(indexed(self._folder)[: len(self._taken)]) or not self._taken:
            raise Loss(
                f"epoch {self._epoch} left out a file that was there before others of its {len(self._taken)}"
            )
        self._whole = True

    def words(self) -> dict[str, Any]:
        """Return what the driver is to compare: a hash of each whole piece, and the samples of a whole epoch."""
        rows = np.array(self._taken, "<i8")
        pieces = [
            zlib.crc32(rows[at : at + PIECE].tobytes()) for at in range(0, len(rows) - PIECE + 1, PIECE)
        ]
        return {"epoch": self._epoch, "pieces": pieces} | ({"whole": len(rows)} if self._whole else {})
