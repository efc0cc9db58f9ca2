"""The states of its training that a trial has kept (`tsnb.keep`): files that it goes on from, in `.tsnb/kept`.

```
kept/cnn-1/000007-epoch2.pt            as epoch 2 began
kept/cnn-1/000008-epoch2-batch120.pt   in the middle of it, 120 loader batches taken
```

The number counts what was written; the file with the highest one is where the trial is. `pass` stands in place of
`epoch` where the code counts its epochs itself (no `tsnb.epochs`). A file is written beside its place and then put
there, so that a kill at any moment leaves the one before. Of states from the middle of an epoch only the newest stays,
of states from an epoch's start the last `EPOCHS`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tsnb.errors import TsnbError
from tsnb.files import open_private
from tsnb.records.project import own_place

__all__ = ["EPOCHS", "FOLDER", "KeptFile", "KeptFiles"]

EPOCHS = 3
"""States from an epoch's start that stay, the last ones. One from the middle of an epoch may lie beside them."""

FOLDER = "kept"
"""Where the states lie in the records directory: a folder for each run in it."""

_NAME = re.compile(r"(\d{6,})-(epoch|pass)(\d+)(?:-batch(\d+))?\.pt")

Save = Callable[[BinaryIO], Any]
Load = Callable[[BinaryIO], dict[str, Any]]


class KeptFile(NamedTuple):
    """One state that was kept, as its file's name tells it."""

    number: int
    """Counts the states of the run, from 1."""
    epoch: int
    """The epoch that it belongs to, from 0, as the trial's own loop counts."""
    batch: int | None
    """Loader batches that had been taken of it; None: it had not begun."""
    counted: bool
    """Whether the code has its epochs from `tsnb.epochs`."""
    path: Path
    """The file."""

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + (f", batch {self.batch}" if self.batch is not None else "")


class KeptFiles:
    """The states that one run has kept.

    Args:
        directory: The project's directory.
        label: What the run's files are called: NAME-NUMBER.
    """

    def __init__(self, directory: Path, label: str) -> None:
        self.place = directory / FOLDER / label
        self._directory = directory
        self._label = label

    @property
    def all(self) -> list[KeptFile]:
        """Those that are there, the newest last; none where the folder cannot be read."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.place.iterdir():
                if (named := _NAME.fullmatch(path.name)) is not None:
                    number, kind, epoch, batch = named.groups()
                    taken = None if batch is None else int(batch)
                    found.append(KeptFile(int(number), int(epoch), taken, kind == "epoch", path))
        return sorted(found)

    @property
    def newest(self) -> KeptFile | None:
        """Where the trial is; None: it has kept nothing."""
        return next(reversed(self.all), None)

    def write(
        self, save: Save, *, epoch: int, batch: int | None, counted: bool, end: bool = False
    ) -> KeptFile:
        """Keep a state, and remove those that it makes superfluous.

        Args:
            save: Writes the state to a file.
            epoch: As in `KeptFile`.
            batch: As in `KeptFile`.
            counted: As in `KeptFile`.
            end: Wait until the disk has it, as for the last state of a trial; others are safe from the death of
                the process only, which costs far less.

        Raises:
            OSError: It cannot be written, the disk is full, say; nothing of it is left then.
            Unsafe: Another user could change what lies there.
            Exception: Whatever `save` raises; as above.
        """
        place = own_place(self._directory, FOLDER, self._label)
        last = self.newest
        number = 1 if last is None else last.number + 1
        part = "" if batch is None else f"-batch{batch}"
        path = place / f"{number:06d}-{'epoch' if counted else 'pass'}{epoch}{part}.pt"
        fresh = place / f".{path.name}.{os.getpid()}"
        descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with os.fdopen(descriptor, "wb") as file:
                save(file)
                file.flush()
                if end:
                    os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        kept = KeptFile(number, epoch, batch, counted, path)
        self._tidy(kept)
        return kept

    def _tidy(self, newest: KeptFile) -> None:
        """Remove the states that nobody goes on from any more, and what a killed process has left of one."""
        there = self.all
        starts = [kept for kept in there if kept.batch is None]
        stay = {newest.path, *(kept.path for kept in starts[-EPOCHS:])}
        gone = [kept.path for kept in there if kept.path not in stay]
        with contextlib.suppress(OSError):
            own = f".{os.getpid()}"
            gone += [path for path in self.place.glob(".*.pt.*") if path.suffix != own]
        for path in gone:
            with contextlib.suppress(OSError):
                path.unlink()

    def clear(self) -> None:
        """Remove all of them: the run begins from the top."""
        with contextlib.suppress(OSError):
            for path in self.place.iterdir():
                path.unlink()

    def read(self, kept: KeptFile, load: Load) -> dict[str, Any]:
        """Return a state.

        Args:
            kept: Its file.
            load: Reads it from that.

        Raises:
            TsnbError: It cannot be read: it is damaged, or it is not this user's.
        """
        try:
            with os.fdopen(open_private(kept.path, os.O_RDONLY), "rb") as file:
                return load(file)
        except Exception as error:  # noqa: BLE001 (a damaged pickle may raise anything)
            first = str(error).partition("\n")[0]
            raise TsnbError(f"the kept state {kept.path} cannot be read: {first}") from None

    def latest(self, load: Load) -> tuple[KeptFile, dict[str, Any], list[str]] | None:
        """Return the newest state that can be read.

        Args:
            load: Reads a state from a file.

        Returns:
            Its file, what it holds, and what is wrong with those after it; None where none can be read.
        """
        wrong: list[str] = []
        for kept in reversed(self.all):
            try:
                return kept, self.read(kept, load), wrong
            except TsnbError as error:
                wrong.append(str(error))
        return None
