"""What is said of a file that cannot be written: what the system has really met, and the way out of just that."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from pathlib import Path

import pytest

from tests.records.recorded import forked, succeeded
from tsnb.config import explained, way_out
from tsnb.errors import TsnbError

ELSEWHERE = "set TSNB_PROJECT_DIR to another directory"


def system_s(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, f"Free some space there, or {ELSEWHERE}."),
        (errno.EDQUOT, f"Your disk quota there is used up. Delete some of your files there, or {ELSEWHERE}."),
        (errno.EROFS, f"That place is not writable. Make it writable, or {ELSEWHERE}."),
        (errno.EACCES, f"That place is not writable. Make it writable, or {ELSEWHERE}."),
        (
            errno.EFBIG,
            f"The file system there does not allow files of this size. Make the file smaller, or {ELSEWHERE}.",
        ),
        (errno.EIO, f"Free some space there, or {ELSEWHERE}."),
    ],
)
def test_each_limit_of_a_file_has_a_way_out_of_its_own(number: int, said: str) -> None:
    """Space, a quota, what can only be read, and a file system's own bound; then where else it may lie."""
    assert way_out(system_s(number), ELSEWHERE) == said
    assert way_out(system_s(number)) == said.replace(f", or {ELSEWHERE}", "")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_limits_of_a_process_are_none_of_the_disk_s(number: int) -> None:
    """Another directory would not help."""
    assert ELSEWHERE not in way_out(system_s(number), ELSEWHERE)
    assert "limit" in way_out(system_s(number))


def test_a_limit_on_file_sizes_is_named_with_its_size(tmp_path: Path) -> None:
    """By `ulimit -f`, really met: no space that is freed would help. sqlite does not say what it met."""

    def fill() -> None:
        with explained("write"), (tmp_path / "large").open("wb", buffering=0) as file:
            while file.write(bytes(64 << 10)):
                pass

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 10, resource.RLIM_INFINITY))
        with pytest.raises(
            TsnbError, match=r"write: File too large\. .*`ulimit -f`, 200.0 KiB per file.*Raise"
        ):
            fill()
        unnamed = way_out(sqlite3.OperationalError("disk I/O error"), ELSEWHERE)
        assert (
            "`ulimit -f`, 200.0 KiB per file" in unnamed
            and f"free some space there, or {ELSEWHERE}" in unnamed
        )

    assert succeeded([forked(write)])
    assert way_out(sqlite3.OperationalError("disk I/O error")) == "Free some space there."
