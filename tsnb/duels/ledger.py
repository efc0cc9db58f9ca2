"""The ledger of duels, `.tsnb/duels.jsonl`: what was asked, each block as it ends, and the verdict.

A line is added under a lock and synchronised to the disk, so a killed notebook loses at most the blocks that run. A
line that was cut off in the middle is passed over. A duel that has no verdict and whose process has gone continues when
the same code is run again under its name: with its seeds, its level and the blocks that it has. A new start brings no
fresh seeds. A duel that is undecided after all its seeds continues with a larger number of them. This keeps its error:
the evidence is valid whenever one stops, so the number of seeds may depend on what was seen. In a series too, because a
level depends only on the verdicts that stood when its duel began, and none of those is taken back.

A duel continues only on the data that it began on (`data`). On another stream, or other data, a new one begins.

Seeds come from the duel's root, which the system's random numbers give. The author of a change does not choose them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tsnb.duels.data import Data
from tsnb.duels.evidence import level_in_series
from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import BETTER, SHOWN, DuelVerdict, judge
from tsnb.errors import TsnbError
from tsnb.machine.owners import Owner, alive, owner
from tsnb.private.directories import Unsafe
from tsnb.private.files import MANY_BYTES, open_private, read_foreign
from tsnb.records.project import project_directory
from tsnb.stream.hashing import hashed
from tsnb.text.foreign import read_json
from tsnb.text.printable import one_line

__all__ = ["FILE", "Asked", "Ledger", "seed_of"]

FILE = "duels.jsonl"


@dataclass(frozen=True)
class Asked:
    """The first line of a duel."""

    duel: str
    """What tells it from every other one."""
    name: str
    """Its name."""
    code: str
    """Hash of both arms' code and of what was asked, but the number of seeds."""
    root: int
    """What its seeds are made from."""
    rules: Rules
    """What was asked; the level is that of this duel, of a series its part of the error."""
    process: Owner
    """The process that runs it."""
    series: str = ""
    """The series that it belongs to."""
    number: int = 0
    """Its number in the series, from 1; 0 without one."""
    began_s: float = 0.0
    """When that process started it, in seconds since 1970."""
    data: Data = field(default_factory=Data)
    """The data of its trials."""

    @property
    def lives(self) -> bool:
        """Whether the process that runs it may still do so."""
        return alive(self.process) is not False


@dataclass(frozen=True)
class _Ended:
    """The last line of a duel."""

    duel: str
    verdict: str
    why: str = ""


@dataclass(frozen=True)
class _Told:
    """A block's line. Numbers that JSON has no words for are texts."""

    duel: str
    number: int
    seed: int
    values: dict[str, float]
    samples: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    paired: str = ""
    outlasted: str = ""

    @property
    def block(self) -> Block:
        """The block that it tells of."""
        return Block(
            self.number,
            self.seed,
            self.values.get("incumbent", math.nan),
            self.values.get("candidate", math.nan),
            _pair(self.samples, 0),
            _pair(self.batches, 0),
            _pair(self.raised, ""),
            self.paired,
            self.outlasted,
        )


def _pair(found: Sequence[Any], missing: Any) -> tuple[Any, Any]:
    return (found[0], found[1]) if len(found) == 2 else (missing, missing)


def seed_of(root: int, number: int) -> int:
    """Return the seed of a block: 0 to 2**31 - 1.

    Example:
        >>> seed_of(1, 1) == seed_of(1, 1) != seed_of(1, 2)
        True

    Args:
        root: The duel's.
        number: The block's, from 1.
    """
    return int(hashed(np.array([number]), f"duel {root}")[0] >> np.uint64(33))


def _began(asked: Asked) -> float:
    return asked.began_s


class Ledger:
    """The duels of one project.

    Args:
        path: The file. Defaults to that of the current project, which is made.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = project_directory() / FILE if path is None else path

    def begin(
        self,
        name: str,
        code: str,
        rules: Rules,
        series: str = "",
        *,
        data: Data | None = None,
        root: int | None = None,
    ) -> tuple[Asked, list[Block]]:
        """Enter a duel, or take one up again that its process has left without a verdict.

        Args:
            name: Its name.
            code: Hash of both arms' code and of what was asked but the number of seeds; empty: nothing can be taken up.
            rules: What is asked; the level is the error of the duel, or of its series.
            series: The series; empty: it stands alone.
            data: The data of its trials. Defaults to none that is known.
            root: What its seeds are made from. Defaults to the system's random numbers.

        Returns:
            Its entry, and the blocks that it has.

        Raises:
            TsnbError: The file cannot be written.
        """
        data = data or Data()
        with self._alone() as descriptor:
            known, blocks, ended, left = self._read()
            for found in reversed(known.values()):
                if code and (found.name, found.code, found.series) == (name, code, series):
                    if found.data.change(data):
                        continue
                    if found.duel in ended or (found.lives and found.duel not in left):
                        break
                    most = replace(found.rules, most=rules.most)
                    mine, both = owner(os.getpid()), found.data.with_more(data)
                    again = replace(found, rules=most, process=mine, began_s=time.time(), data=both)
                    self._add(descriptor, "asked", asdict(again))
                    return again, blocks.get(found.duel, [])
            before = [one for one in known.values() if series and one.series == series]
            kept = sum(ended.get(one.duel) == BETTER for one in before)
            number = len(before) + 1 if series else 0
            asked = Asked(
                secrets.token_hex(8),
                name,
                code,
                secrets.randbits(48) if root is None else root,
                replace(rules, level=level_in_series(rules.level, number, kept)) if series else rules,
                owner(os.getpid()),
                series,
                number,
                time.time(),
                data,
            )
            self._add(descriptor, "asked", asdict(asked))
            return asked, []

    def place(self, asked: Asked) -> int:
        """Return which duel of its name one is, from 1: one that continues keeps its place.

        Args:
            asked: Its entry.
        """
        known, _, _, _ = self._read()
        return [one.duel for one in known.values() if one.name == asked.name].index(asked.duel) + 1

    def other_data(self, asked: Asked) -> str:
        """Return why a duel does not have the seeds of the one before it, in a sentence; empty if not for its data.

        Args:
            asked: The entry of the duel, which has no blocks.
        """
        known, blocks, ended, _ = self._read()
        key = (asked.name, asked.code, asked.series)
        same = [
            one
            for one in sorted(known.values(), key=_began)
            if asked.code and one.duel != asked.duel and (one.name, one.code, one.series) == key
        ]
        change = same[-1].data.change(asked.data) if same else ""
        if not change or same[-1].duel in ended or not (number := len(blocks.get(same[-1].duel, []))):
            return ""
        seeds = f"The former {number} seeds do" if number > 1 else "The former seed does"
        return f"{seeds} not count, because {change}. A new duel has begun"

    def former(self, asked: Asked) -> str:
        """Return what came out of the duel before one of its name, in a sentence; empty if there is none with seeds.

        Args:
            asked: The entry of the duel, which has no blocks.
        """
        known, blocks, _, _ = self._read()
        before = [one for one in known.values() if one.name == asked.name and one.duel != asked.duel]
        before = [one for one in sorted(before, key=_began) if one.duel in blocks]
        if not before:
            return ""
        last = before[-1]
        verdict, name = judge(blocks[last.duel], last.rules), asked.name
        number = len(verdict.blocks)
        other = "" if last.code == asked.code else ", with other code or options,"
        return (
            f"An earlier duel of this name{other} is kept: {verdict.word} after {number} seed{'s' * (number > 1)}. "
            f"To list its trials, call tsnb.results({name!r}, all_runs=True)"
        )

    def add(self, duel: str, block: Block) -> None:
        """Enter a block that has ended.

        Args:
            duel: The duel's key.
            block: The block.

        Raises:
            TsnbError: The file cannot be written.
        """
        values = {"incumbent": block.incumbent, "candidate": block.candidate}
        facts = {
            "number": block.number, "seed": block.seed,
            "values": {arm: value if math.isfinite(value) else str(value) for arm, value in values.items()},
            "samples": block.samples, "batches": block.batches,
            "raised": [one_line(text, 300) for text in block.raised], "paired": block.paired,
            "outlasted": block.outlasted,
        }  # fmt: skip
        with self._alone() as descriptor:
            self._add(descriptor, "block", {"duel": duel, **facts})

    def end(self, duel: str, verdict: DuelVerdict) -> None:
        """Enter a verdict. A duel that is undecided can be taken up again, unless an arm failed in all its blocks.

        Args:
            duel: The duel's key.
            verdict: What it says.

        Raises:
            TsnbError: The file cannot be written.
        """
        kind = "ended" if verdict.decided or verdict.broken else "left"
        told = {**verdict.to_dict(), "duel": duel}
        strict = json.loads(json.dumps(told), parse_constant=lambda _: None)
        with self._alone() as descriptor:
            self._add(descriptor, kind, strict)

    def series(self, name: str) -> list[tuple[Asked, str]]:
        """Return the duels of a series in their order, each with its verdict; empty: it has none yet.

        Args:
            name: Name of the series.
        """
        known, _, ended, _ = self._read()
        return [(one, ended.get(one.duel, "")) for one in known.values() if one.series == name]

    def told(self) -> list[dict[str, Any]]:
        """Return the newest duels, the last one of each name, as every screen has it (`DuelVerdict.told`)."""
        known, blocks, ended, left = self._read()
        found = []
        over = {key: key in ended or key in left or not one.lives for key, one in known.items()}
        last = {
            one.name: one for one in sorted(known.values(), key=_began)
        }  # one may continue after a later one
        for one in sorted(last.values(), key=_began)[-SHOWN:]:
            why = left.get(one.duel, "its process has ended" if over[one.duel] else "")
            verdict = judge(blocks.get(one.duel, []), one.rules, ended=why, name=one.name)
            found.append(verdict.told(one.name, over=over[one.duel]))
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        try:
            descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except (Unsafe, OSError) as error:
            raise TsnbError(f"tsnb cannot write the ledger of duels ({self.path}): {error}") from None
        try:
            with contextlib.suppress(OSError):  # a file system without locks: lines are whole all the same
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _add(self, descriptor: int, kind: str, facts: Mapping[str, Any]) -> None:
        size = os.fstat(descriptor).st_size
        cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line = f"{chr(10) if cut else ''}{json.dumps({'kind': kind, **facts})}\n".encode()
        try:
            while line:
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        except OSError as error:
            raise TsnbError(f"tsnb cannot write the ledger of duels ({self.path}): {error}") from None

    def _read(self) -> tuple[dict[str, Asked], dict[str, list[Block]], dict[str, str], dict[str, str]]:
        """Return the duels by key in their order, their blocks, the verdicts that stand, and why others were left open.

        Raises:
            TsnbError: The file cannot be read.
        """
        known: dict[str, Asked] = {}
        blocks: dict[str, list[Block]] = {}
        ended: dict[str, str] = {}
        left: dict[str, str] = {}
        try:
            lines = read_foreign(self.path, MANY_BYTES, follow=False).splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise TsnbError(f"tsnb cannot read the ledger of duels ({self.path}): {error}") from None
        for line in lines:
            kind, _, _ = line.partition(b",")
            with contextlib.suppress(ValueError):
                if b'"asked"' in kind:
                    asked = read_json(Asked, line)
                    known[asked.duel] = asked
                    left.pop(asked.duel, None)
                elif b'"block"' in kind:
                    told = read_json(_Told, line, logged=frozenset({"values"}))
                    blocks.setdefault(told.duel, []).append(told.block)
                elif b'"ended"' in kind:
                    last = read_json(_Ended, line)
                    ended[last.duel] = last.verdict
                elif b'"left"' in kind:
                    open_ = read_json(_Ended, line)
                    left[open_.duel] = open_.why
        return known, blocks, ended, left
