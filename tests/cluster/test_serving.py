"""What `engine=` refuses before anything is started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import ray
import torch

import tsnb
from tests.second_user import OTHER, acting, reachable, two_users
from tsnb.cluster import membership
from tsnb.cluster.membership import local_address, namespace
from tsnb.cluster.ray_cluster import RayCluster
from tsnb.engines import cluster_at
from tsnb.errors import ExtraMissing, TsnbError
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.telemetry import observer

pytestmark = pytest.mark.timeout(
    300, func_only=True
)  # the cluster, which others have used, may end behind the last


def test_an_engine_is_this_machine_or_a_cluster() -> None:
    """Whatever else is said is refused, with the words that would do."""
    assert cluster_at("local") is None
    for word, address in (("ray", ""), ("ray://head:6379", "head:6379")):
        cluster = cluster_at(word)
        assert isinstance(cluster, RayCluster)
        assert cluster.address == address
    for word in ("dask", "rays", "", "Ray"):
        with pytest.raises(ValueError, match='Pass "local", "ray" or'):
            cluster_at(word)
        with pytest.raises(ValueError, match="Pass"):
            tsnb.serve([1], name="x", engine=word)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and nothing is served."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[ray\]'"):
        tsnb.serve([1], name="x", engine="ray")
    assert not tsnb.streams.list()


def test_an_address_where_nobody_is_is_told_at_once() -> None:
    """Ray itself would try for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", "head"):
            with pytest.raises(
                TsnbError, match=rf"No Ray cluster was found at '{address}': .*`ray start --head`"
            ):
                membership._require_answer(address)


ANNOUNCES = """
import os, socket, sys
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
if sys.argv[1] == "0":
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    os.set_inheritable(listener.fileno(), True)
else: port = int(sys.argv[1])
print(port, flush=True)
os.execv("/bin/sh", ["/x/raylet", "-c", "kill -STOP $$; exit", f"--gcs-address=127.0.0.1:{port}"])
"""


@contextmanager
def announced(port: int, *uid: int) -> Iterator[tuple[psutil.Process, int]]:
    """Start what looks like a cluster's process, as another user say; give it, and its port."""
    words = [sys.executable, "-I", "-S", "-c", ANNOUNCES, str(port), *map(str, uid)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        at, seen = int(process.stdout.readline()), psutil.Process(process.pid)
        until = time.monotonic() + 60
        while "raylet" not in "".join(seen.cmdline()[:1]):
            assert time.monotonic() < until
            time.sleep(0.01)
        yield seen, at
    finally:
        process.kill()
        process.communicate()


@two_users
def test_a_cluster_that_another_user_announces_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process, by Ray's file, or by listening where one's own cluster was; one's own is found beside them."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    file = tmp_path / "ray" / "ray_current_cluster"
    with pytest.raises(ConnectionError, match="No Ray cluster"):
        local_address([])
    with announced(0, OTHER) as (theirs, port):
        refusal = rf"127\.0\.0\.1:{port} .*belongs to nobody \(user 65534\).*RAY_ADDRESS=HOST:PORT"
        with pytest.raises(TsnbError, match=refusal):
            local_address([theirs])
        file.write_text(f"127.0.0.1:{port}\n")
        with pytest.raises(TsnbError, match=refusal):
            local_address([])  # the file is ours, and was left over
        with announced(port) as (left_over, _), pytest.raises(TsnbError, match=refusal):
            local_address([left_over])
        os.chown(file, OTHER, OTHER)
        with announced(0) as (ours, own_port):
            assert local_address([theirs, ours]) == f"127.0.0.1:{own_port}"
            file.write_text(f"127.0.0.1:{own_port}\n")
            assert local_address([ours]) == f"127.0.0.1:{own_port}"
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("127.0.0.1:1")
    with pytest.raises(ConnectionError):
        local_address([])


IMITATES = """
import os, sys
program, become, address = sys.argv[1:]
stay = f"import os, time; {become}; print('begun', flush=True); time.sleep(600)"
os.execv(program, ["/x/raylet", "-I", "-S", "-c", stay, f"--gcs-address={address}"])
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """Return a set-uid program of root's that runs what it is told to."""
    program = reachable(tmp_path) / "python"
    shutil.copy(os.path.realpath(sys.executable), program)
    program.chmod(0o4755)
    yield program
    program.unlink()


@two_users
@pytest.mark.parametrize("become", ["pass", "os.setresuid(0, 0, 0)"])
def test_a_set_uid_program_that_another_user_calls_raylet_is_not_joined(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, become: str
) -> None:
    """Its effective user is root, and in sudo at its prompt all are; it names the address of another machine."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for address in ("192.0.2.1:6379", "127.0.0.1:1"):
        with acting(IMITATES, program, become, address):
            running = psutil.process_iter(["cmdline"])
            seen = [
                each for each in running if (each.info["cmdline"] or [])[-1:] == [f"--gcs-address={address}"]
            ]
            assert len(seen) == 1 and seen[0].uids().effective == 0
            with pytest.raises(TsnbError, match=r"Nothing was joined\. .*RAY_ADDRESS=HOST:PORT"):
                local_address(seen)
            (tmp_path / "ray").mkdir(exist_ok=True)
            (tmp_path / "ray" / "ray_current_cluster").write_text(f"{address}\n")
            assert local_address(seen) == address, "root's file says so, too"
            (tmp_path / "ray" / "second").hardlink_to(tmp_path / "ray" / "ray_current_cluster")
            with pytest.raises(TsnbError, match="Nothing was joined"):
                local_address(seen)
            shutil.rmtree(tmp_path / "ray")


@two_users
def test_engine_ray_refuses_another_users_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Ray is told to connect; `RAY_ADDRESS` is the way out."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9\n")
    os.chown(tmp_path / "ray" / "ray_current_cluster", OTHER, OTHER)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(
        psutil, "process_iter", lambda *_: iter(())
    )  # others' tests run clusters of this user's
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # and this process may be in one of theirs
    with pytest.raises(TsnbError, match=r"at 127\.0\.0\.1:9 .*belongs to nobody"):
        tsnb.serve([1], name="x", engine="ray")
    assert not tsnb.streams.list()


def test_a_stream_of_a_cluster_is_not_started_again_by_itself() -> None:
    """Consumers on other machines would not wait for it: said before a kernel is started."""
    assert StreamOptions(engine="ray").engine == "ray"
    with pytest.raises(ValueError, match="Leave out"):
        StreamOptions(engine="ray", restart="on-crash")


def test_a_stream_of_a_cluster_keeps_all_in_step() -> None:
    """Other modes and moved cores are refused before anything is started, and by its part on any machine."""
    for chosen in ({"pacing": "free"}, {"pacing": "weights", "weights": {"a": 2.0}}, {"rebalance": True}):
        with pytest.raises(ValueError, match="on one machine only"):
            StreamOptions(engine="ray", **chosen)
        with pytest.raises(ValueError, match="on one machine only"):
            tsnb.serve([1], name="x", engine="ray", **chosen)
    with serve_here([torch.ones(2)], name="part", in_step=True) as producer:
        with pytest.raises(ValueError, match="on one machine only"):
            producer.balance("free")
        with pytest.raises(ValueError, match="on one machine only"):
            producer.rebalance()
        with pytest.raises(TsnbError, match="on one machine only"):
            observer.balance("part", "free")
        with pytest.raises(TsnbError, match="on one machine only"):
            observer.rebalance("part", on=True)
        assert (observer.balance("part", "together").pacing, producer.status().rebalancing) == (
            "together",
            "off",
        )
        producer.rebalance(on=False)


def test_names_in_the_cluster_are_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the user's name, or by a word that is set where that differs from machine to machine."""
    monkeypatch.delenv("TSNB_RAY_NAMESPACE", raising=False)
    assert namespace().startswith("tsnb-")
    monkeypatch.setenv("TSNB_RAY_NAMESPACE", "team")
    assert namespace() == "team"
