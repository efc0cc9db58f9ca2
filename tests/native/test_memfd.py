"""A memfd is had from Python or from the C library, and is the same thing."""

from __future__ import annotations

import os

import pytest

from tsnb.native import memfd
from tsnb.native.pair import SWITCH, portable


@pytest.fixture(params=["python", "c"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test asks in both ways; builds for an old glibc (conda, uv) have the second only."""
    monkeypatch.delenv(SWITCH, raising=False)
    if request.param == "c":
        monkeypatch.delattr(os, "memfd_create")


def test_it_is_nameless_not_inherited_and_cannot_be_cut_once_sealed() -> None:
    """What the arena is built on; so the portable pair is not needed."""
    assert memfd.has_memfd() and not portable()
    fd = memfd.make_memfd("tsnb-test")
    assert os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:tsnb-test")
    assert not os.get_inheritable(fd)
    os.ftruncate(fd, 4096)
    memfd.seal(fd)
    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        memfd.seal(fd)
    os.close(fd)


def test_the_systems_refusal_is_an_error() -> None:
    """A name longer than the kernel takes."""
    with pytest.raises(OSError, match="Invalid argument"):
        memfd.make_memfd("x" * 300)


def test_where_neither_has_it_the_portable_pair_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(memfd, "_in_c", lambda: None)
    assert not memfd.has_memfd() and portable()
    with pytest.raises(OSError, match="not implemented"):
        memfd.make_memfd("x")
