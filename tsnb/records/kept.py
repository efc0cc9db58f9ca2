"""The states of its training that a trial has kept (`tsnb.checkpoint`): files that it goes on from, in `.tsnb/kept`.

```
kept/cnn-1/run.key                                   the key of the run whose folder it is
kept/cnn-1/000007-epoch2-samples9600.pt              as epoch 2 began, 9,600 samples taken in all
kept/cnn-1/000008-epoch2-batch120-samples13440.pt    in the middle of it, 120 loader batches taken
kept/cnn-1/.clone1-epoch2-batch120.pt.4711           written for a clone, whose folder it is moved to
```

The number counts what was written; the file with the highest one is where the trial is. `pass` stands in place of
`epoch` where the code counts its epochs itself (no `tsnb.epochs`). A file is written beside its place and then put
there, so that a kill at any moment leaves the one before. Of states from the middle of an epoch only the newest stays,
of states from an epoch's start the last few (`history`).

A state is unpickled, so it has to be the run's own. The folder has the run's key, which is random and new for each run.
A link, or a folder without that key (it came out of an archive, or is left from records that were deleted), is never
read or cleared: it is moved aside as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tsnb.errors import TsnbError
from tsnb.private.directories import Unsafe
from tsnb.private.files import FEW_BYTES, open_private
from tsnb.records.project import own_place

__all__ = ["EPOCHS", "FOLDER", "KeptFile", "KeptFiles"]

EPOCHS = 3
"""States from an epoch's start that stay by default, the last. One from the middle of an epoch may lie beside them."""

FOLDER = "kept"
"""Where the states lie in the records directory: a folder for each run in it."""

_MARK = "run.key"
"""The file in the folder that has the run's key."""

_log = logging.getLogger("tsnb")

_NAME = re.compile(r"(\d{6,})-(epoch|pass)(\d+)(?:-batch(\d+))?(?:-samples(\d+))?\.pt")
_ASIDE = re.compile(r"\.clone\d+-((?:epoch|pass)\d+(?:-batch\d+)?\.pt)\.\d+")

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
    samples: int | None = None
    """Samples that the trial had taken in all; None: an earlier version of tsnb wrote it."""

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}" + (f", batch {self.batch}" if self.batch is not None else "")


def _stem(epoch: int, batch: int | None, counted: bool) -> str:
    part = "" if batch is None else f"-batch{batch}"
    return f"{'epoch' if counted else 'pass'}{epoch}{part}"


def _write(path: Path, save: Save, *, end: bool) -> None:
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as file:
        save(file)
        file.flush()
        if end:
            os.fsync(file.fileno())


@contextlib.contextmanager
def _whole_or_nothing(path: Path) -> Iterator[None]:
    """Remove a file where writing it, or putting it in its place, is cut short."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


class KeptFiles:
    """The states that one run has kept.

    Attributes:
        place: Their folder.
        history: States from an epoch's start that stay, the last ones.

    Args:
        directory: The project's directory.
        label: What the run's files are called: NAME-NUMBER.
        key: The run's key.
    """

    def __init__(self, directory: Path, label: str, key: str) -> None:
        self.place = directory / FOLDER / label
        self._directory = directory
        self._label = label
        self._key = key
        self.history = EPOCHS
        self._set_aside = 0

    @property
    def all(self) -> list[KeptFile]:
        """Those that are there, the newest last; none where the folder cannot be read."""
        found = []
        with contextlib.suppress(OSError):
            self._check()
            for path in self.place.iterdir():
                if (named := _NAME.fullmatch(path.name)) is not None:
                    number, kind, epoch, batch, samples = named.groups()
                    taken = None if batch is None else int(batch)
                    in_all = None if samples is None else int(samples)
                    found.append(KeptFile(int(number), int(epoch), taken, kind == "epoch", path, in_all))
        return sorted(found, key=lambda kept: kept.number)

    @property
    def starts(self) -> dict[int, KeptFile]:
        """Of those from an epoch's start the newest for each epoch."""
        return {kept.epoch: kept for kept in self.all if kept.batch is None}

    @property
    def newest(self) -> KeptFile | None:
        """Where the trial is; None: it has kept nothing."""
        return next(reversed(self.all), None)

    def _check(self) -> None:
        """Check that the folder is this run's. What is in it may be used by name from then on.

        Raises:
            FileNotFoundError: There is none.
            Unsafe: It is a link, another user's, or another run's.
            OSError: It cannot be looked at.
        """
        own_place(self._directory, FOLDER, self._label, make=False)
        with (
            contextlib.suppress(FileNotFoundError),
            os.fdopen(open_private(self.place / _MARK, os.O_RDONLY), "rb") as file,
        ):
            if file.read(FEW_BYTES) == self._key.encode():
                return
        raise Unsafe(str(self.place), "was not made by this run")

    def _own_place(self) -> Path:
        """Return the folder, made if there is none of this run's: whatever stands in its place is moved aside.

        Raises:
            OSError: It cannot be made.
        """
        own_place(self._directory, FOLDER)
        try:
            self._check()
        except FileNotFoundError:
            pass
        except Unsafe as error:
            aside = self.place.with_name(f"{self._label}.found-{uuid.uuid4().hex[:8]}")
            self.place.rename(aside)
            _log.warning(
                "%s. tsnb neither reads nor deletes it, and has moved it to %s. Delete it if you do not "
                "need it.",
                error,
                aside,
            )
        else:
            return self.place
        self.place.mkdir(mode=0o700)
        _write(self.place / _MARK, lambda file: file.write(self._key.encode()), end=False)
        return self.place

    def write(
        self,
        save: Save,
        *,
        epoch: int,
        batch: int | None,
        counted: bool,
        samples: int | None = None,
        end: bool = False,
    ) -> KeptFile:
        """Keep a state, and remove those that it makes superfluous.

        Args:
            save: Writes the state to a file.
            epoch: As in `KeptFile`.
            batch: As in `KeptFile`.
            counted: As in `KeptFile`.
            samples: As in `KeptFile`.
            end: Wait until the disk has it, as for the last state of a trial; others are safe from the death of
                the process only, which costs far less.

        Raises:
            OSError: It cannot be written, the disk is full, say; nothing of it is left then.
            Unsafe: Another user could change what lies there.
            Exception: Whatever `save` raises; as above.
        """
        place = self._own_place()
        last = self.newest
        number = 1 if last is None else last.number + 1
        taken = "" if samples is None else f"-samples{samples}"
        path = place / f"{number:06d}-{_stem(epoch, batch, counted)}{taken}.pt"
        fresh = place / f".{path.name}.{os.getpid()}"
        with _whole_or_nothing(fresh):
            _write(fresh, save, end=end)
            fresh.replace(path)
        kept = KeptFile(number, epoch, batch, counted, path, samples)
        self._tidy(kept)
        return kept

    def set_aside(self, save: Save, *, epoch: int, batch: int | None, counted: bool) -> Path:
        """Write a state for a clone; return its file, which `take_in` moves.

        What is never taken is removed when a later process of the trial keeps a state, or with its record.

        Args:
            save: Writes the state to a file.
            epoch: As in `KeptFile`.
            batch: As in `KeptFile`.
            counted: As in `KeptFile`.

        Raises:
            Exception: As `write` raises.
        """
        place = self._own_place()
        self._set_aside += 1
        path = place / f".clone{self._set_aside}-{_stem(epoch, batch, counted)}.pt.{os.getpid()}"
        with _whole_or_nothing(path):
            _write(path, save, end=False)
        return path

    def take_in(self, path: Path, *, copied: bool = False) -> None:
        """Begin with a state of another run's, as the only one.

        Args:
            path: What `set_aside` has returned, or another run's `KeptFile.path`.
            copied: Leave it there, too; else it is moved.

        Raises:
            OSError: It is not there any more, or the disk is full; nothing is left here then.
            Unsafe: Another user could change what lies there.
        """
        place = self._own_place()
        self.clear()
        aside = _ASIDE.fullmatch(path.name)
        stem = path.name.partition("-")[2] if aside is None else aside[1]
        own = place / f"000001-{stem}"
        if copied:
            fresh = place / f".{own.name}.{os.getpid()}"
            with _whole_or_nothing(fresh), os.fdopen(open_private(path, os.O_RDONLY), "rb") as source:
                _write(fresh, lambda file: shutil.copyfileobj(source, file, 1 << 20), end=False)
                fresh.replace(own)
        else:
            path.replace(own)

    def _tidy(self, newest: KeptFile) -> None:
        """Remove the states that nobody goes on from any more, and what a killed process has left of one."""
        there = self.all
        starts = [kept for kept in there if kept.batch is None]
        stay = {newest.path, *(kept.path for kept in starts[-self.history :])}
        gone = [kept.path for kept in there if kept.path not in stay]
        with contextlib.suppress(OSError):
            own = f".{os.getpid()}"
            gone += [path for path in self.place.glob(".*.pt.*") if path.suffix != own]
        for path in gone:
            with contextlib.suppress(OSError):
                path.unlink()

    def clear(self) -> None:
        """Remove all of them: the run begins from the top. What is not this run's stays."""
        with contextlib.suppress(OSError):
            self._check()
            for path in self.place.iterdir():
                if path.name != _MARK:
                    with contextlib.suppress(OSError):
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
            raise TsnbError(f"the checkpoint {kept.path} cannot be read: {first}") from None

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
