"""Directories and files that no other user can read, change or replace.

tsnb finds sockets by name, runs what it unpickles from files of its own, and writes by name. So a directory of ours is
used only if no other user can have put anything there, now or later. The rule is that of sshd's StrictModes:

| what is looked at | has to be |
|---|---|
| the directory itself | this user's (effective uid), of mode 0700, not a link |
| each directory above it | root's or this user's; others cannot write to it, unless it is sticky (/tmp) |
| a link among those above | root's or this user's |

A group counts as others unless it is called as this user is (or root) and has no other member: a directory service need
not tell who has a group as their main one. The owner of `/` counts as root. In a user namespace (a sandbox, a rootless
container) all users without a number there share one, the real root among them. This owner counts as root at the places
that are root's on every system (`_ROOTS`), and as another user below them. Each step is taken from the descriptor of
the one before (`openat`, no link followed), and the descriptor is checked. Once the rule holds, only root and this user
can replace any part of the path, so that the path may be used by name from then on.

Files in them: `tsnb.private.files`.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import stat
from pathlib import Path

__all__ = [
    "LOOK",
    "Unsafe",
    "alone_in",
    "check_adders",
    "check_changers",
    "check_own",
    "check_parents",
    "make_private",
    "user_word",
]

LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a directory to look at it: O_PATH needs no permission to read it, which /home may not give."""
_EVERYBODY = ["0", "0", "4294967295"]
"""The map of a namespace in which all users have their own numbers."""
_ROOTS = frozenset(
    ("/", "/dev", "/home", "/media", "/mnt", "/opt", "/run", "/srv", "/tmp", "/usr", "/var")  # noqa: S108
) | {
    *("/dev/shm", "/run/user", "/usr/local", "/var/home", "/var/lib", "/var/run", "/var/tmp"),  # noqa: S108
}
"""Directories, or links, that are root's on every system that has them."""
MOST_LINKS = 40
"""Links that are followed, as many as the kernel follows: more are a circle."""

_known: dict[str, tuple[int, int]] = {}
"""Directories that passed, with device and inode: no other user can replace them, and the next check needs no
descriptor."""


class Unsafe(PermissionError):
    """A directory or file that other users could change, or that is not this user's.

    Attributes:
        path: The directory at fault: itself, or one above it.
        what: What is wrong with it.
        mend: The command that puts it right; empty where only its owner can.
    """

    def __init__(self, path: str, what: str, mend: str = "") -> None:
        super().__init__(errno.EPERM, f"{what}. Run `{mend}`" if mend else what, path)
        self.path, self.what, self.mend = path, what, mend

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def make_private(path: Path, *, below: Path | None = None, tighten: bool = False, make: bool = True) -> Path:
    """Make a directory of mode 0700, or check that it is one that only this user can reach.

    Directories above it that are missing are made with mode 0700 too.

    Args:
        path: The directory.
        below: One of the directories above it: it and what is above it are taken on trust, and below it no link is
            followed.
        tighten: Give an existing one of this user's the mode 0700, where others could enter it.
        make: Make it where it is missing; else that is an error.

    Returns:
        The path, made absolute.

    Raises:
        Unsafe: It breaks the rule; says where, and the command that mends it.
        OSError: It cannot be made, or is not there.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (follows no link)
    key = f"{below or ''}:{path}"
    if not _is_known(path, key):
        descriptor, status = _walk(path, below, make=make)
        try:
            check_own(path, descriptor, status, tighten=tighten)
        finally:
            os.close(descriptor)
        _known[key] = (status.st_dev, status.st_ino)
    return path


def check_parents(path: Path) -> None:
    """Check that only root and this user can replace a directory or what lies in it; others may be able to read it.

    Raises:
        Unsafe: It breaks the rule; says where.
        OSError: It is not there, or cannot be looked at.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (as above)
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        if _known.get(f"above:{path}") == (status.st_dev, status.st_ino):
            return
    descriptor, status = _walk(path / "_", None, make=False, last=False)
    os.close(descriptor)
    _known[f"above:{path}"] = (status.st_dev, status.st_ino)


def _is_known(path: Path, key: str) -> bool:
    """Tell whether it passed before, and is still the same one. One system call, no descriptor."""
    identity = _known.get(key)
    if identity is None:
        return False
    with contextlib.suppress(OSError):
        status = path.lstat()
        own = status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode)
        return own and not status.st_mode & 0o077 and (status.st_dev, status.st_ino) == identity
    return False


def _walk(path: Path, below: Path | None, *, make: bool, last: bool = True) -> tuple[int, os.stat_result]:
    """Go down to a directory, and check all above it.

    Args:
        path: Absolute.
        below: As in `make_private`.
        make: Make missing directories.
        last: Whether to open the last part, too.

    Returns:
        The descriptor of the last directory opened, and its status.

    Raises:
        Unsafe: One above it breaks the rule.
        OSError: The system refuses.
    """
    descent = _Descent(path, below)
    try:
        while descent.todo:
            descent.check()
            if len(descent.todo) == 1 and not last:
                break
            descent.step(make=make)
    except BaseException:
        os.close(descent.here)
        raise
    return descent.here, descent.status


class _Trusted:
    """Who may own what is above a directory of ours: root, this user, and the owner of `/`."""

    def __init__(self) -> None:
        self._users = {0, os.geteuid(), Path("/").stat().st_uid}
        self._shared = _shared_number()
        self._users.discard(self._shared)

    def owns(self, at: str, status: os.stat_result) -> bool:
        """Tell whether root or this user owns what has been found there."""
        return status.st_uid in self._users or (status.st_uid == self._shared and at in _ROOTS)


def _shared_number() -> int:
    """Return the number that all users have who have none in this user namespace; -1: each user has their own."""
    # not "ascii": a process that has become another user may not be able to load that any more
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="utf-8").split()
        return (
            -1
            if mapped == _EVERYBODY
            else int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8"))
        )
    except (OSError, ValueError):  # no Linux
        return -1


class _Descent:
    """The way down to a directory, one descriptor after the other.

    Attributes:
        here: The descriptor of the directory reached.
        at: Its path, with no link in it.
        status: Its status.
        todo: Names still to go.
    """

    def __init__(self, path: Path, below: Path | None) -> None:
        self.at = "/" if below is None else str(below)
        self.todo = list(path.relative_to(self.at).parts)
        self.here = os.open(self.at, LOOK if below is None else LOOK & ~os.O_NOFOLLOW)
        self.status = os.fstat(self.here)
        self._start = below
        self._links = 0
        self._trusted = _Trusted()

    def check(self) -> None:
        """Check the directory reached, as one above others."""
        if self._start is None or self.at != str(self._start):
            _check_above(self.at, self.here, self.status, self._trusted)

    def step(self, *, make: bool) -> None:
        """Go to the next one, or to where a link leads."""
        name = self.todo.pop(0)
        found = _look(name, self.here, make=make)
        if stat.S_ISLNK(found.st_mode):
            self._follow(name, found)
        elif name == "..":
            self._enter(name, os.path.dirname(self.at))  # noqa: PTH120 (text)
        else:
            self._enter(name, _join(self.at, name))

    def _follow(self, name: str, status: os.stat_result) -> None:
        place = _join(self.at, name)
        if not self.todo or self._start is not None:
            raise Unsafe(place, "is a link", f"rm {shlex.quote(place)}")
        if not self._trusted.owns(place, status):
            raise Unsafe(place, f"is a link of {user_word(status.st_uid)}")
        self._links += 1
        if self._links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        target = Path(os.readlink(name, dir_fd=self.here))
        if target.is_absolute():
            self._enter("/", "/")
        self.todo[:0] = target.parts[1:] if target.is_absolute() else target.parts

    def _enter(self, name: str, at: str) -> None:
        following = os.open(name, LOOK, dir_fd=self.here)
        os.close(self.here)
        self.here, self.at = following, at
        self.status = os.fstat(following)


def _join(at: str, name: str) -> str:
    return os.path.join(at, name)  # noqa: PTH118 (text: "/" stays "/")


def _look(name: str, here: int, *, make: bool) -> os.stat_result:
    """Return the status of what stands there, a link's its own; make a directory where nothing does."""
    try:
        return os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=here)
    return os.stat(name, dir_fd=here, follow_symlinks=False)


def _check_above(at: str, descriptor: int, status: os.stat_result, trusted: _Trusted) -> None:
    if not trusted.owns(at, status):
        raise Unsafe(at, f"belongs to {user_word(status.st_uid)}, who could replace its content")
    # in one for everybody, such as /tmp, nobody replaces another's file
    if status.st_mode & stat.S_ISVTX or not _others_write(status, descriptor):
        return
    everybody = "o" if status.st_mode & 0o002 else ""
    group = "g" if status.st_mode & 0o020 else ""
    raise Unsafe(
        at,
        f"can be written by other users (its mode is {stat.S_IMODE(status.st_mode):04o})",
        f"chmod {group}{everybody}-w {shlex.quote(at)}",
    )


def _others_write(status: os.stat_result, descriptor: int) -> bool:
    """Return whether another user than root can put files into a directory of this user's."""
    return bool(status.st_mode & 0o002) or bool(status.st_mode & 0o020 and not alone_in(status, descriptor))


def check_adders(path: Path) -> None:
    """Check that only root and this user can put a file into a directory: what is imported from there runs as you.

    Raises:
        Unsafe: Others can; says where.
        OSError: It is not there, or cannot be looked at.
    """
    check_parents(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if _others_write(status, descriptor):  # in /tmp everybody can add a file
            what = f"can be written by other users (its mode is {stat.S_IMODE(status.st_mode):04o})"
            own = status.st_uid == os.geteuid()
            raise Unsafe(str(path), what, f"chmod go-w {shlex.quote(str(path))}" if own else "")
    finally:
        os.close(descriptor)


def check_changers(path: Path) -> None:
    """Check that only root and this user can change or replace a file: it is run as this user's own code.

    Raises:
        Unsafe: Others can; says where.
        OSError: It is not there, or cannot be looked at.
    """
    for _ in range(MOST_LINKS):
        check_adders(path.parent)
        status = path.lstat()
        if not _Trusted().owns(str(path), status):
            what = f"belongs to {user_word(status.st_uid)}"
            raise Unsafe(str(path), what, f"rm {shlex.quote(str(path))}")
        if not stat.S_ISLNK(status.st_mode):
            break
        path = path.parent / path.readlink()
    descriptor = os.open(path, LOOK & ~os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        if _others_write(os.fstat(descriptor), descriptor):
            mode = stat.S_IMODE(status.st_mode)
            what = f"can be written by other users (its mode is {mode:04o})"
            raise Unsafe(str(path), what, f"chmod go-w {shlex.quote(str(path))}")
    finally:
        os.close(descriptor)


def check_own(path: Path, descriptor: int, status: os.stat_result, *, tighten: bool = False) -> None:
    """Check a directory that has been opened: it is this user's, and no other user can enter it.

    Args:
        path: Its path, for the message.
        descriptor: An open descriptor of it.
        status: Its status.
        tighten: As in `make_private`.

    Raises:
        Unsafe: It is not.
    """
    if status.st_uid != os.geteuid():
        raise Unsafe(str(path), f"is not your own directory: it belongs to {user_word(status.st_uid)}")
    if status.st_mode & 0o077 and tighten:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
        try:
            with contextlib.suppress(PermissionError):  # a file system that keeps no modes
                os.fchmod(readable, 0o700)
            status = os.fstat(readable)
        finally:
            os.close(readable)
    if status.st_mode & 0o077:
        raise Unsafe(
            str(path),
            f"can be entered by other users (its mode is {stat.S_IMODE(status.st_mode):04o} and should be 0700)",
            f"chmod 700 {shlex.quote(str(path))}",
        )


def alone_in(status: os.stat_result, descriptor: int) -> bool:
    """Tell whether a directory's group is this user's own: many systems give each user one, and let it write."""
    if status.st_uid not in {0, os.geteuid()} or _has_list(descriptor):
        return False
    alone, called, members = {_name(os.geteuid()), "root"}, "", set()
    with contextlib.suppress(KeyError):  # a number without a name, as containers have them
        group = grp.getgrgid(status.st_gid)
        called, members = group.gr_name, set(group.gr_mem)
    if called not in alone and status.st_gid not in {0, os.geteuid()}:
        return False
    return members | {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == status.st_gid} <= alone


def _has_list(descriptor: int) -> bool:
    """Tell whether a directory has an access list: then its group's bits are everybody's on the list."""
    if not hasattr(os, "listxattr"):
        return False
    with contextlib.suppress(OSError):
        return "system.posix_acl_access" in os.listxattr(f"/proc/self/fd/{descriptor}")
    return False


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def user_word(uid: int) -> str:
    """Return how a user is called in a message: name and number."""
    name = _name(uid)
    return f"user {uid}" if name == str(uid) else f"{name} (user {uid})"
