"""The commit that a run started from, and whether files differed from it.

| in the records | what it says |
|---|---|
| `1a2b3c4d5e` | this commit, and no file that git knows differs from it |
| `1a2b3c4d5e-dirty` | some do (files that git does not know do not count) |
| `1a2b3c4d5e?` | unknown: git's files do not tell, or the notebook ended before they had been read |
| nothing | no repository |

None of git's programs runs: the configuration of a repository names programs that git would run. A trial's start reads
the commit from two small files. Whether something differs is read afterwards (`differs`), on a thread of its own,
once for all trials that wait for the answer. Nothing is written.

A repository may have been unpacked from an archive or belong to someone else. So each file of git's is opened as
`tsnb.private.files` opens foreign ones, and what it says is bounded.

The index lists the files that git knows, with size and time. A file whose size and time differ is compared by its
hash, as git does. The hash of the tree that the index would be committed as tells whether something is staged. Modes
of files and submodules do not count. A filter (LFS, line ends) is not applied: a file that a filter changes counts
as different once it has been written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tsnb.private.files import FEW_BYTES, open_foreign, read_foreign

__all__ = ["commit_here", "differs", "look"]

DIGITS = 10
"""Digits of a commit's name that are kept."""

MOST_REFS = 1 << 22
"""Bytes of a list of all branches and tags: each trial's start reads it, and another user may have made it."""

_waiting: dict[Path, list[Callable[[str], None]]] = {}
_lock = threading.Lock()
_looks = False


def _after_fork_in_child() -> None:
    """Begin anew (`native.forks`, 3): the thread that looks is not in the child."""
    global _waiting, _lock, _looks
    _waiting, _lock, _looks = {}, threading.Lock(), False


os.register_at_fork(after_in_child=_after_fork_in_child)


def commit_here() -> str:
    """Return the commit of the current directory's repository, with "?" behind it; nothing outside a repository."""
    here = _here()
    found = None if here is None else _repository(here)
    if found is None:
        return ""
    commit = _head(found[1])
    return f"{commit[:DIGITS]}?" if commit else "?"


def look(tell: Callable[[str], None]) -> None:
    """Have `tell` called with the commit of the current directory, once it is known whether files differ from it.

    That is on another thread, and never where that cannot be told.
    """
    global _looks
    here = _here()
    if here is None:
        return
    with _lock:
        _waiting.setdefault(here, []).append(tell)
        if not _looks:
            _looks = True
            threading.Thread(target=_look_at_all, name="tsnb-commit", daemon=True).start()


def _look_at_all() -> None:
    global _looks
    while True:
        with _lock:
            if not _waiting:
                _looks = False
                return
            directory, those = _waiting.popitem()
        found = _status(directory)
        for tell in those if found is not None else ():
            tell(found or "")


def _status(directory: Path) -> str | None:
    """Return a directory's commit, marked if files differ from it; "" before the first, None where that is unknown."""
    found = _repository(directory)
    if found is None:
        return None
    tree, place = found
    commit = _head(place)
    if not commit:
        return "" if _before_the_first(place) else None
    changed = differs(tree, place, _common(place), commit)
    if changed is None:
        return None
    return f"{commit[:DIGITS]}-dirty" if changed else commit[:DIGITS]


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been deleted
        return None


def _repository(here: Path) -> tuple[Path, Path] | None:
    """Return the work tree that a directory lies in, and where git keeps what belongs to it.

    Whoever may write to one of the directories above could put a `.git` there: one counts if it belongs to this user,
    to root or to the owner of its directory.
    """
    for parent in (here, *here.parents):
        place = parent / ".git"
        try:
            if place.lstat().st_uid not in {os.geteuid(), 0, parent.stat().st_uid}:
                continue
        except OSError:
            continue
        if place.is_dir():
            return parent, place
        text = _read(place)  # a worktree or a submodule: the file says where
        return (parent, parent / text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else None
    return None


def _common(place: Path) -> Path:
    return place / (_read(place / "commondir") or ".")


def _head(place: Path) -> str:
    """Return the commit that is checked out; nothing where that is kept in another way, or before the first."""
    head = _read(place / "HEAD")
    if not head.startswith("ref:"):
        return head if _is_commit(head) else ""
    ref = head.removeprefix("ref:").strip()
    if ".." in ref:
        return ""
    found = _read(place / ref) or _read(_common(place) / ref) or _packed(_common(place), ref)
    return found if _is_commit(found) else ""


def _packed(common: Path, ref: str) -> str:
    """Return the commit of a branch in the list of all; nothing where the list is larger than a start may read."""
    try:
        listed = b"\n" + read_foreign(common / "packed-refs", MOST_REFS) + b"\n"
    except (OSError, ValueError):
        return ""
    commit, found, _ = listed.partition(f" {ref}\n".encode(errors="replace"))
    return commit[commit.rfind(b"\n") + 1 :].decode(errors="replace") if found else ""


def _before_the_first(place: Path) -> bool:
    """Tell whether there is no commit yet."""
    objects = _common(place) / "objects"
    with contextlib.suppress(OSError), os.scandir(objects) as found:
        return {each.name for each in itertools.islice(found, 3)} <= {"info", "pack"}
    return False


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _read(path: Path, most: int = FEW_BYTES) -> str:
    try:
        return read_foreign(path, most).decode(errors="replace").strip()
    except (OSError, ValueError):  # a name with a NUL in it
        return ""


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
