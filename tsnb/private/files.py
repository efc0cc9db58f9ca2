"""Files that no other user can read, change or exchange, in directories that are this user's (`directories`).

A file is opened relative to the descriptor of its directory, without following a link, and is checked on its own
descriptor before a byte is written or cut off. New ones have the mode 0600, whatever the umask. Files and folders are
copied so that no reader ever finds half of one (`copy_whole`). Whatever another user may have made, or somebody sent,
is opened by `open_foreign`: a pipe or an endless file in its place is an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import shutil
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tsnb.errors import TsnbError
from tsnb.private.directories import LOOK, Unsafe, alone_in, make_private, user_word

__all__ = [
    "FEW_BYTES",
    "MANY_BYTES",
    "check_file",
    "copy_whole",
    "expanded",
    "make_file",
    "open_foreign",
    "open_private",
    "place_in",
    "read_below",
    "read_foreign",
    "read_private",
    "remove_private",
    "replace_file",
    "write_private",
]

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Follow no link, and do not wait for the other end of a pipe that another user put there."""

FEW_BYTES = 1 << 20
"""Bytes that a small file may have."""
ALIKE = 100
"""How often a folder is copied that several links lead to."""
MANY_BYTES = 1 << 32
"""Bytes that a recording, a notebook or a log may have."""


def open_private(path: Path | str, flags: int) -> int:
    """Open a file of this user's in a directory of this user's; a new one has the mode 0600.

    Args:
        path: The file, in a directory that `make_private` has returned.
        flags: As for `os.open`. What O_TRUNC cuts off is cut off after the check.

    Returns:
        A descriptor, closed on exec.

    Raises:
        Unsafe: It is a link, has another name elsewhere, or it or its directory is not this user's alone.
        OSError: It cannot be opened.
    """
    path = Path(path)
    with _directory(path.parent) as directory:
        try:
            descriptor = os.open(path.name, flags & ~os.O_TRUNC | _NO_LINK, 0o600, dir_fd=directory)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise Unsafe(str(path), "is a link", f"rm {shlex.quote(str(path))}") from None
            raise
    try:
        _check_file(path, os.fstat(descriptor))
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
        if flags & (os.O_WRONLY | os.O_RDWR) and os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # a file system that keeps no modes
                os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Give the descriptor of a directory of this user's that no other user can write to."""
    descriptor = os.open(path, LOOK)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise Unsafe(str(path), f"is not your own directory: it belongs to {user_word(status.st_uid)}")
        if status.st_mode & 0o022 and not (not status.st_mode & 0o002 and alone_in(status, descriptor)):
            raise Unsafe(str(path), "can be written by other users", f"chmod 700 {shlex.quote(str(path))}")
        yield descriptor
    finally:
        os.close(descriptor)


def make_file(path: Path) -> None:
    """Make an empty file of mode 0600, if nothing stands there, without opening it.

    Raises:
        OSError: It cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        try:
            os.mknod(path, 0o600 | stat.S_IFREG)
        except PermissionError:  # macOS, where only root may
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def check_file(path: Path) -> None:
    """Check a file by name, without opening it: in a directory where no other user can replace it.

    Raises:
        Unsafe: As `open_private`.
        FileNotFoundError: The file does not exist.
    """
    _check_file(path, path.lstat())


def _check_file(path: Path, status: os.stat_result) -> None:
    aside = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.planted')}"
    if not stat.S_ISREG(status.st_mode):
        raise Unsafe(str(path), "is not an ordinary file", aside)
    if status.st_uid != os.geteuid():
        raise Unsafe(str(path), f"is not your own file: it belongs to {user_word(status.st_uid)}", aside)
    if status.st_nlink > 1:
        raise Unsafe(str(path), "has another name elsewhere (a hard link)", aside)


def read_private(path: Path) -> bytes:
    """Return what is in a file of this user's; as `open_private`.

    Raises:
        Unsafe: It is not this user's alone.
        OSError: It cannot be read.
    """
    with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read()


def open_foreign(path: Path | str, *, follow: bool = True) -> BinaryIO:
    """Open a file that another user may have made, or that somebody sent, to read it.

    Args:
        path: The file.
        follow: Whether the file may be a link.

    Raises:
        OSError: It cannot be opened, or is a pipe, a device or a folder: some of those never end.
    """
    flags = _NO_LINK & ~os.O_NOFOLLOW if follow else _NO_LINK
    return _ordinary(os.open(path, os.O_RDONLY | flags), path)


def _ordinary(descriptor: int, path: Path | str) -> BinaryIO:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:  # of a folder, `fdopen` would leave it open
        os.close(descriptor)
        raise


def read_foreign(path: Path | str, most: int = FEW_BYTES, *, follow: bool = True) -> bytes:
    """Return what is in a small file that another user may have made, or that somebody sent.

    Args:
        path: The file.
        most: Bytes that it may have.
        follow: As in `open_foreign`.

    Raises:
        OSError: As `open_foreign`, or it is larger.
    """
    with open_foreign(path, follow=follow) as file:
        return _content(file, path, most)


def _content(file: BinaryIO, path: Path | str, most: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    content = b"" if size > most else file.read(min(most, max(size, FEW_BYTES)) + 1)
    if max(size, len(content)) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return content


def read_below(directory: Path, *names: str, last: int = FEW_BYTES) -> bytes:
    """Return the end of a file below a directory; no link below the directory is followed, and the last is none.

    Args:
        directory: The directory.
        names: The folders below it, and the file's name. Each is one part of a path.
        last: Bytes that are read, at most.

    Raises:
        OSError: It cannot be read, a link is on the way, it is no ordinary file, or a name leads elsewhere.
    """
    for name in names:
        if Path(name).name != name or name in {"", ".."}:
            raise OSError(errno.EINVAL, "not the name of a file in this folder", name)
    here = os.open(directory, LOOK & ~os.O_NOFOLLOW)
    try:
        for name in names[:-1]:
            following = os.open(name, LOOK, dir_fd=here)
            os.close(here)
            here = following
        with _ordinary(os.open(names[-1], os.O_RDONLY | _NO_LINK, dir_fd=here), names[-1]) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - last))
            return file.read(last)
    finally:
        os.close(here)


def remove_private(path: Path) -> None:
    """Remove a file, if it is there, in a directory of this user's.

    Raises:
        Unsafe: The directory is a link, or not this user's alone.
        OSError: It cannot be removed.
    """
    with _directory(path.parent) as directory, contextlib.suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=directory)


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file of mode 0600 in a directory of this user's: a reader sees the old one or the new, never a half.

    Raises:
        Unsafe: The directory is not this user's alone.
        OSError: It cannot be written; nothing is left then.
    """
    with _directory(path.parent) as directory:
        _put(path.name, content, 0o600, directory)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file that the user has asked for, wherever that is.

    Its mode is 0600, or that of the file of the user that it replaces. A link there is replaced, not followed.

    Raises:
        OSError: It cannot be written; nothing is left then.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = 0o600
        with contextlib.suppress(OSError):
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                mode = stat.S_IMODE(status.st_mode) & 0o666
        _put(path.name, content, mode, directory)
    finally:
        os.close(directory)


def _put(name: str, content: str | bytes, mode: int, directory: int) -> None:
    fresh = f".{name}.{secrets.token_hex(4)}"[-200:]
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if mode != 0o600:
                os.fchmod(file.fileno(), mode)
        os.replace(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=directory)
        raise


def place_in(folder: Path, name: str) -> Path:
    """Return where something called `name` lies in a folder.

    Args:
        folder: The folder.
        name: Relative, with slashes for folders inside.

    Raises:
        ValueError: The name leads out of the folder.
    """
    named = Path(name)
    if not named.parts or named.is_absolute() or ".." in named.parts:
        raise ValueError(f"{name!r} cannot name an artifact. Pass a relative name, such as 'nets/last.pt'.")
    return folder / named


def copy_whole(source: Path, target: Path, below: Path) -> None:
    """Copy a file or folder beside its place, then put it there; what was there goes. Only this user may read it.

    Args:
        source: What to copy.
        target: Where to; folders above it are made.
        below: A directory above the target, which is taken on trust; below it no link is followed.

    Raises:
        OSError: It cannot be read, or there is no room, or a link stands in the way. Nothing of it stays then.
    """
    make_private(target.parent, below=below, tighten=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        if source.is_dir():
            # the records themselves may lie in the folder: a copy of them would contain itself
            shutil.copytree(
                source, beside, ignore=_left_out(), copy_function=_copy, ignore_dangling_symlinks=True
            )
        else:
            _copy(source, beside)
        for path in (beside, *beside.rglob("*")):
            path.chmod(path.stat().st_mode & 0o700)
        _remove(target)
        beside.replace(target)
    finally:
        _remove(beside)


def _copy(source: Path | str, target: Path | str) -> None:
    """Copy a file: a pipe or a device is an error, where `shutil` would copy a device without an end."""
    with open_foreign(source) as file, Path(target).open("wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
    shutil.copystat(source, target)


def _left_out() -> Callable[[str, list[str]], set[str]]:
    """Return what names a folder's copy leaves out: the records. A copy that would not end is an error.

    Raises:
        OSError: A link leads to a folder that it lies in, or very many lead to one.
    """
    times: Counter[str] = Counter()

    def left_out(folder: str, names: list[str]) -> set[str]:
        here = os.path.realpath(folder)
        for path in (os.path.join(folder, name) for name in names):  # noqa: PTH118 (text)
            if Path(path).is_symlink() and Path(path).is_dir():
                there = os.path.realpath(path)
                times[there] += 1
                if times[there] > ALIKE or os.path.commonpath([here, there]) == there:
                    raise OSError(
                        errno.ELOOP, "forms a loop, or is one of very many links to one folder", path
                    )
        return {".tsnb"}

    return left_out


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` as the home directory that it stands for.

    Raises:
        TsnbError: This user has no home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise TsnbError(
            f"{os.fspath(path)!r} begins with '~', but this user has no home directory. Set HOME, or "
            "write the full path."
        ) from None


def working_directory() -> Path:
    """Return the working directory.

    Raises:
        TsnbError: It has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise TsnbError(
            "The working directory of this process has been removed. Change to an existing one (`cd "
            "~`), and start again."
        ) from None
