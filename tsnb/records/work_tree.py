"""Whether the files of a git work tree differ from a commit, read from git's own files.

None of git's programs runs: a repository's configuration names programs for git to run, and the repository may have
been unpacked from an archive or belong to someone else. For the same reason each file is opened as `tsnb.files` opens
foreign ones, and what it says is bounded.

The index lists the files that git knows, with size and time. A file whose size and time differ is compared by its
hash, as git does. The hash of the tree that the index would be committed as tells whether something is staged. Modes
of files and submodules do not count. A filter (LFS, line ends) is not applied: a file that a filter changes counts
as different once it has been written again.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tsnb.files import FEW_BYTES, open_foreign, read_foreign

__all__ = ["differs"]

MOST_INDEX = 1 << 25
"""Bytes of an index that are read, and of all paths in it: a quarter of a million files."""
MOST_HASHED = 1 << 30
"""Bytes of files that are compared by their hash."""
MOST_PACKS = 1000
"""Packs that are searched for the commit."""
_LINK, _SUBMODULE = 0o120000, 0o160000
_MORE_FLAGS, _UNMERGED, _ASSUMED = 0x4000, 0x3000, 0x8000
_INTENDED, _SKIPPED = 0x2000, 0x4000  # of the second flags


class _Unreadable(Exception):
    """A file of git's that is damaged, too large, or of a kind that is not read here."""


class _Entry(NamedTuple):
    """A file that git knows, as its index has it."""

    path: bytes
    mode: int
    size: int
    mtime: tuple[int, int]
    digest: bytes
    flags: int
    more_flags: int


def differs(tree: Path, place: Path, common: Path, commit: str) -> bool | None:
    """Return whether files of a work tree differ from a commit; None where git's files do not tell.

    Args:
        tree: The work tree.
        place: The folder of its HEAD and index.
        common: The folder of its objects.
        commit: The commit's name.
    """
    try:
        index = read_foreign(place / "index", MOST_INDEX)
        files = _WorkTree(os.fsencode(tree), (place / "index").stat().st_mtime_ns)
        staged = _StagedTree("sha1" if len(commit) == 40 else "sha256")
        for entry in _entries(index, len(commit) // 2):
            if entry.flags & _UNMERGED or entry.more_flags & _INTENDED or files.differ(entry):
                return True
            staged.add(entry)
        return staged.digest() != _committed_tree(common, commit)
    except (OSError, ValueError, IndexError, struct.error, zlib.error, _Unreadable):
        return None


def _entries(index: bytes, digest_size: int) -> Iterator[_Entry]:
    """Give the entries of an index of version 2, 3 or 4 (gitformat-index)."""
    signature, version, count = struct.unpack_from(">4sII", index)
    if signature != b"DIRC" or version not in {2, 3, 4}:
        raise _Unreadable
    at, path, paths = 12, b"", 0
    for _ in range(count):
        begin = at
        mtime_s, mtime_ns, mode, size = struct.unpack_from(">8xII8xI8xI", index, at)
        digest = index[at + 40 : at + 40 + digest_size]
        at += 40 + digest_size
        (flags,) = struct.unpack_from(">H", index, at)
        at += 2
        more_flags = 0
        if flags & _MORE_FLAGS and version > 2:
            (more_flags,) = struct.unpack_from(">H", index, at)
            at += 2
        kept = 0
        if version == 4:  # as much of the path before as stays
            cut, at = _number(index, at)
            kept = len(path) - cut
        end = index.index(b"\0", at)
        path = path[:kept] + index[at:end]
        paths += len(path)
        if kept < 0 or paths > MOST_INDEX or path.startswith(b"/") or b".." in path.split(b"/"):
            raise _Unreadable
        at = end + 1 if version == 4 else begin + ((end - begin + 8) & ~7)
        yield _Entry(path, mode, size, (mtime_s, mtime_ns), digest, flags, more_flags)
    if index[at : at + 4] == b"link":  # the rest of it is in another file
        raise _Unreadable


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        number = (number + 1 << 7) + (data[at] & 0x7F)
        if number > MOST_INDEX:
            raise _Unreadable
    return number, at + 1


class _WorkTree:
    """The files themselves.

    Args:
        root: The folder.
        written_ns: When the index was written: a file of that moment may have been changed after it was entered.
    """

    def __init__(self, root: bytes, written_ns: int) -> None:
        self._root = root
        self._written_ns = written_ns
        self._left = MOST_HASHED

    def differ(self, entry: _Entry) -> bool:
        """Return whether a file differs from its entry."""
        if entry.flags & _ASSUMED or entry.more_flags & _SKIPPED or entry.mode == _SUBMODULE:
            return False
        path = os.path.join(self._root, entry.path)  # noqa: PTH118 (bytes)
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        link = stat.S_ISLNK(status.st_mode)
        if not (entry.mode == _LINK if link else stat.S_ISREG(status.st_mode)):
            return True
        same_size = entry.size == status.st_size & 0xFFFFFFFF
        if not same_size and entry.size:  # 0: git could not tell by the time
            return True
        if same_size and self._as_entered(entry, status.st_mtime_ns):
            return False
        self._left -= status.st_size
        if self._left < 0:
            raise _Unreadable
        hashed = hashlib.new("sha1" if len(entry.digest) == 20 else "sha256", b"blob %d\0" % status.st_size)
        if link:
            hashed.update(os.readlink(path))  # noqa: PTH115 (bytes)
        else:
            with open_foreign(os.fsdecode(path), follow=False) as file:
                _hash_up_to(file, status.st_size, hashed)
        return hashed.digest() != entry.digest

    def _as_entered(self, entry: _Entry, mtime_ns: int) -> bool:
        seconds, nanoseconds = entry.mtime
        if mtime_ns >= self._written_ns:
            return False
        now = divmod(mtime_ns, 10**9)
        return entry.mtime == now if nanoseconds else seconds == now[0]


def _hash_up_to(file: BinaryIO, size: int, hashed: hashlib._Hash) -> None:
    while size > 0 and (part := file.read(min(size, FEW_BYTES))):
        hashed.update(part)
        size -= len(part)


class _StagedTree:
    """The tree that an index would be committed as. Its entries come in the order that trees have, too."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._open: list[tuple[bytes, bytearray]] = [(b"", bytearray())]

    def add(self, entry: _Entry) -> None:
        """Add the next file (or, of a sparse index, folder)."""
        *folders, name = entry.path.rstrip(b"/").split(b"/")
        pairs = zip(folders, (folder for folder, _ in self._open[1:]), strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._close(shared)
        self._open += [(folder, bytearray()) for folder in folders[shared:]]
        self._open[-1][1].extend(b"%o %s\0%s" % (entry.mode, name, entry.digest))

    def _close(self, depth: int) -> None:
        while len(self._open) > depth + 1:
            name, content = self._open.pop()
            self._open[-1][1].extend(b"40000 %s\0%s" % (name, self._hash(content)))

    def _hash(self, content: bytearray) -> bytes:
        return hashlib.new(self._algorithm, b"tree %d\0" % len(content) + content).digest()

    def digest(self) -> str:
        """Return the tree's name."""
        self._close(0)
        return self._hash(self._open[0][1]).hex()


def _committed_tree(common: Path, commit: str) -> str:
    """Return the name of a commit's tree."""
    try:
        loose = _inflated(read_foreign(common / "objects" / commit[:2] / commit[2:]))
        kind, _, text = loose.partition(b"\0")
        if not kind.startswith(b"commit "):
            raise _Unreadable
    except FileNotFoundError:
        text = _packed_commit(common / "objects" / "pack", bytes.fromhex(commit))
    word, name = text.split(b"\n", 1)[0].split(b" ")
    if word != b"tree":
        raise _Unreadable
    return name.decode("ascii")


def _inflated(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, FEW_BYTES)


def _packed_commit(packs: Path, commit: bytes) -> bytes:
    """Return what a commit says that lies whole in a pack; one that is kept as a difference is not read."""
    with os.scandir(packs) as found:
        indexes = [each.path for each in itertools.islice(found, MOST_PACKS) if each.name.endswith(".idx")]
    for path in indexes:
        with open_foreign(path) as file:
            offset = _offset(file, commit)
        if offset is not None:
            with open_foreign(f"{path[:-4]}.pack") as file:
                file.seek(offset)
                data = file.read(FEW_BYTES)
            begin = next(number for number, byte in enumerate(data) if not byte & 0x80) + 1
            if data[0] >> 4 & 7 != 1:
                raise _Unreadable
            return _inflated(data[begin:])
    raise _Unreadable


def _offset(file: BinaryIO, name: bytes) -> int | None:
    """Return where an object lies in the pack of an index of version 2 (gitformat-pack)."""
    if file.read(8) != b"\xfftOc\0\0\0\2":
        raise _Unreadable
    below = struct.unpack(">256I", file.read(1024))
    low, high = (below[name[0] - 1] if name[0] else 0), below[name[0]]
    while low < high:
        middle = (low + high) // 2
        file.seek(1032 + middle * len(name))
        found = file.read(len(name))
        if found == name:
            file.seek(1032 + below[255] * (len(name) + 4) + 4 * middle)
            (offset,) = struct.unpack(">I", file.read(4))
            if offset & 0x80000000:
                file.seek(1032 + below[255] * (len(name) + 8) + 8 * (offset & 0x7FFFFFFF))
                (offset,) = struct.unpack(">Q", file.read(8))
            return int(offset)
        low, high = (middle + 1, high) if found < name else (low, middle)
    return None
