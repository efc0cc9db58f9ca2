"""File systems by the mount table, and the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tsnb.machine import disks
from tsnb.machine.disks import cached_bytes, file_system, in_memory, put_out

SIZE = 40_000


def test_a_directory_is_on_the_file_system_that_is_mounted_there(tmp_path: Path) -> None:
    """Through links, too."""
    assert file_system(Path("/proc/self")) == "proc"
    assert not in_memory(Path("/proc"))
    (tmp_path / "link").symlink_to("/proc/self")
    assert file_system(tmp_path / "link") == "proc"


def test_where_no_device_is_told_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subvolume has a device of its own, a missing directory has none; the last mount on a place counts."""
    table = [
        "1 0 0:1 / / rw - ext4 /dev/sda rw",
        f"2 1 0:2 / {tmp_path} rw shared:1 - btrfs /dev/sdb rw",
        "3 1 0:3 / /somewhere rw - ext4 /dev/sdc rw",
        "4 1 0:4 / /somewhere rw - tmpfs tmpfs rw",
        "5 1 0:5 / /a\\040disk rw - nfs4 host:/ rw",
    ]
    monkeypatch.setattr(disks, "_mounts", lambda: table)
    assert file_system(tmp_path) == "btrfs"
    assert in_memory(Path("/somewhere/else"))
    assert file_system(Path("/a disk/below")) == "nfs4"
    assert file_system(Path("/some")) == "ext4"
    monkeypatch.setattr(disks, "_mounts", list)
    assert file_system(tmp_path) == "" and not in_memory(tmp_path)


def test_the_page_cache_tells_what_it_holds_and_drops_what_it_is_asked_to(tmp_path: Path) -> None:
    """All of a file that was read, nothing of one that was put out; its bytes stay as they are."""
    path, before = tmp_path / "3.bin", os.urandom(SIZE)
    with path.open("wb") as file:
        file.write(before)
        os.fsync(file.fileno())
    if put_out([str(path)]) != 0.0:
        pytest.skip("this file system keeps what it is asked to drop")
    assert path.read_bytes() == before
    assert cached_bytes(str(path)) == SIZE
    assert put_out([str(path)]) == 0.0 and cached_bytes(str(path)) == 0
    assert path.read_bytes() == before and cached_bytes(str(path)) == SIZE
    assert cached_bytes(str(tmp_path / "missing")) is None and put_out([str(tmp_path / "missing")]) == 0.0
