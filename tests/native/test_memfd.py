"""A memfd is had from Python or from the C library, and is the same thing."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import textwrap

import pytest

from tests.system.scripts import ROOT, Script, scripts
from tsnb.native import memfd
from tsnb.native.memfd import SWITCH, portable


@pytest.fixture(params=["python", "c"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test asks in both ways; builds for an old glibc (conda, uv) have the second only."""
    monkeypatch.delenv(SWITCH, raising=False)
    if request.param == "c":
        monkeypatch.delattr(os, "memfd_create")
    return str(request.param)


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


FILTER = """
import ctypes, errno, logging, platform, struct, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
number = {"x86_64": 319, "aarch64": 279}[platform.machine()]

class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

def answer(error, flags=None):
    '''A seccomp filter, as a container's: memfd_create (with these flags, or any) fails so.'''
    load, equal, has, give = 0x20, 0x15, 0x45, 0x06
    refuse, allow = (give, 0, 0, 0x00050000 | error), (give, 0, 0, 0x7FFF0000)
    code = [(load, 0, 0, 0), (equal, 0, 3, number), (load, 0, 0, 24), (has, 0, 1, flags), refuse, allow]
    if flags is None: code = [(load, 0, 0, 0), (equal, 0, 1, number), refuse, allow]
    made = Program(len(code), b"".join(struct.pack("HBBI", *one) for one in code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(made), 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, by filter
"""
"""What a script begins with that is to have fewer system calls."""


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="by number, which differs")
@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
def test_where_a_container_refuses_it_a_stream_goes_by_the_portable_pair_and_says_so_once(
    error: str, way: str
) -> None:
    """By a real filter of the kernel's."""
    code = f"""
    if {way == "c"}: del os.memfd_create
    answer(errno.{error})
    for epoch in range(2):
        with tsnb.serve(DataLoader(Numbers(48), batch_size=8, num_workers=1), name="s"):
            say("took", len(list(tsnb.attach("c"))), tsnb.streams.list()[0].address[0])
    """
    with scripts() as running:
        running.append(script := Script(FILTER + textwrap.dedent(code)))
        assert [script.expect("took", 60) for _ in range(2)] == ["6 /"] * 2
        assert script.end() == 0
    told = [line for line in script.lines if "memfd_create" in line]
    assert len(told) == 1 and "--shm-size" in told[0], told


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="by number, which differs")
def test_it_cannot_be_run_as_a_program_and_an_older_kernel_is_asked_again(way: str) -> None:
    """MFD_NOEXEC_SEAL, which a system with vm.memfd_noexec=2 insists on; before Linux 6.3 it is an invalid argument."""
    fd = memfd.make_memfd("tsnb-test")
    mode = os.fstat(fd).st_mode
    os.close(fd)
    code = f"""
    import os
    from tsnb.native import memfd
    if {way == "c"}: del os.memfd_create
    answer(errno.EINVAL, flags=8)
    fd = memfd.make_memfd("tsnb-test")
    memfd.seal(fd)
    print(oct(os.fstat(fd).st_mode & 0o111))
    """
    done = subprocess.run(
        [sys.executable, "-c", FILTER + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "0o111\n", done.stderr
    if tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 3):
        assert not mode & 0o111


def test_where_neither_has_it_the_portable_pair_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(memfd, "_in_c", lambda: None)
    assert not memfd.has_memfd() and portable()
    with pytest.raises(OSError, match="not implemented"):
        memfd.make_memfd("x")
