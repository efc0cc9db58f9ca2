"""How often the system killed for want of memory, as each kind of system counts it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tsnb.kernels.processes.death import Death, OutOfMemory
from tsnb.machine.memory import oom_kills

V1_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2_EVENTS = "low 0\nhigh 0\nmax 7\noom 2\noom_kill {}\noom_group_kill 0\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("0::/user/me", "sys/fs/cgroup/user/me/memory.events", V2_EVENTS),
        ("0::/somewhere/of/the/host", "sys/fs/cgroup/memory.events", V2_EVENTS),
        ("4:cpu,memory:/box", "sys/fs/cgroup/memory/box/memory.oom_control", V1_CONTROL),
        ("0::/nothing/counts/here", "proc/vmstat", "nr_free_pages 3\noom_kill {}\n"),
    ],
    ids=["v2", "container", "v1", "machine"],
)
def test_the_count_is_that_of_the_group_that_a_process_is_in(
    tmp_path: Path, line: str, file: str, text: str
) -> None:
    """Of either version, of a container whose path is the host's, else of the machine."""
    write(tmp_path / "proc/7/cgroup", f"{line}\n")
    write(tmp_path / file, text.format(3))
    found = oom_kills(tmp_path, 7)
    assert found is not None
    assert found.kills == 3
    write(tmp_path / file, text.format(5))
    later = found.again()
    assert later is not None
    assert later.kills == 5


def test_where_nobody_counts_nothing_is_claimed(tmp_path: Path) -> None:
    """No such files: no reason, and no error."""
    assert oom_kills(tmp_path, 7) is None
    assert not OutOfMemory(7, tmp_path).reason(-signal.SIGKILL, "its kernel")


def test_only_a_kill_while_the_count_grows_is_put_down_to_memory(tmp_path: Path) -> None:
    """A SIGKILL by somebody, an exit, a crash are not; what is said names who counts, and what to do."""
    counter = tmp_path / "proc/vmstat"
    write(counter, "oom_kill 4\n")
    memory = OutOfMemory(os.getpid(), tmp_path)
    assert not memory.reason(-signal.SIGKILL, "its kernel"), "killed by somebody"
    write(counter, "oom_kill 5\n")
    for code in (0, 1, -signal.SIGSEGV, None):
        assert not memory.reason(code, "its kernel")
    said = str(Death(-signal.SIGKILL, "", memory.reason(-signal.SIGKILL, "its kernel")))
    assert said.startswith("its kernel was killed by SIGKILL: the system ran out of memory")
    assert "the machine counts 1 such" in said
    assert "smaller batch" in said
