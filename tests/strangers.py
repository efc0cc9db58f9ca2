"""A second user of the machine, played by a process with another real uid."""

from __future__ import annotations

import os
import pwd
import traceback
from collections.abc import Callable

import pytest

__all__ = ["as_another_user", "needs_another_user"]

needs_another_user = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can start a process of another user, who is played here"
)


def as_another_user(work: Callable[[], object]) -> None:
    """Run `work` in a forked process of the user nobody; what it raises there fails the test here."""
    found = pwd.getpwnam("nobody")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(found.pw_gid)
            os.setuid(found.pw_uid)
            work()
        except BaseException:  # noqa: BLE001 (told to the test)
            os.write(write, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as told:
        failure = told.read()
    os.waitpid(pid, 0)
    assert not failure, failure
