"""A Ray cluster of three nodes on this machine, each with an object store and a runtime directory of its own.

All tests of this folder share it, in the order of their files: `test_cluster` ends its second node, the trials then
have the first and the third, and end that.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.leftovers import infrastructure, leftovers, new_leftovers
from tsnb.cluster import membership

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = (
    "0"  # `uv run pytest` must not be taken for a way to start workers
)
os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(16)

STORE_BYTES = 80 << 20
GONE_S = 180.0
TRIES = 5
SYSTEM = {
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 10,
    "agent_register_timeout_ms": 120_000,
    "worker_register_timeout_seconds": 120,
}
"""Ray notices a dead node after 5 s, instead of 15; one that is only slow has 10 s for each answer, as ever, and its
processes may take their time to start."""


NODES: list[dict[str, int]] = [{"num_gpus": 1}, {}, {"num_cpus": 2}]
"""What each has other than one core: the producer's what Ray takes for a GPU, the last one two cores."""


class Died(Exception):
    """A node's raylet gave up: it waits 15 s for its helpers, which a machine with other work may need for longer."""


def patiently(start: Callable[[], Any]) -> Any:
    """Start a node, and again where it died at its start."""
    services: Any = import_module("ray._private.services")
    ask = services.get_node

    def get_node(address: str, node: str) -> Any:
        deadline = time.monotonic() + GONE_S  # Ray itself gives up after 30 s
        while True:
            try:
                return ask(address, node)
            except RuntimeError:  # it has not said yet that it is there
                if not any(node in line for line in children_lines()) or time.monotonic() > deadline:
                    raise Died from None
            time.sleep(0.1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "get_node", get_node)
        for _ in range(TRIES):
            before = set(psutil.Process().children(recursive=True))
            try:
                return start()
            except Died:
                kill_all_but(before)
    raise Died


def children_lines() -> list[str]:
    """Return the command lines of the processes below this one; none of one that has died."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


class Machines:
    """The cluster; `nodes[0]` is the producer's.

    Args:
        directory: Where the nodes keep their runtime directories.
    """

    def __init__(self, directory: Path) -> None:
        cluster: Any = import_module("ray.cluster_utils").Cluster
        self.directory = directory
        self._options = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        head = {
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,
            "_system_config": SYSTEM,
        }
        self.cluster = cluster()
        self.nodes: list[Any] = []
        try:
            for number, own in enumerate(NODES):
                options = {
                    **self._options,
                    **own,
                    **(head if not number else {}),
                    "env_vars": self._environment(number),
                }
                self.nodes.append(patiently(functools.partial(self.cluster.add_node, **options)))
        except BaseException:
            self.cluster.shutdown()
            raise

    def _environment(self, number: int) -> dict[str, str]:
        paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
        return {
            "TSNB_RUNTIME_DIR": str(self.directory / str(number)),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        }

    def ids(self) -> list[str]:
        return [str(node.node_id) for node in self.nodes]

    def alive(self) -> set[str]:
        """Return the nodes that Ray takes to be alive."""
        ray: Any = import_module("ray")
        return {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}

    def at(self, number: int) -> Any:
        """Return where an actor must be put to run on a node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(self.ids()[number], soft=False)

    def stored_bytes(self) -> list[int]:
        """Return the bytes of all objects that were ever made in, or brought into, each node's store."""
        node_stats = import_module("ray._private.internal_api").node_stats
        ray: Any = import_module("ray")
        known = {n["NodeID"]: n for n in ray.nodes() if n["Alive"]}
        found = []
        for node in self.ids():
            there = known.get(node)
            stats = there and node_stats(there["NodeManagerAddress"], there["NodeManagerPort"], False)
            found.append(stats.store_stats.cumulative_created_bytes if stats else 0)
        return found


@pytest.fixture(scope="session")
def machines(runtime_directory: Path) -> Iterator[Machines]:
    """Start the cluster, and join it; afterwards nothing of it is left."""
    ray: Any = import_module("ray")
    before = leftovers()
    ours = set(psutil.Process().children(recursive=True))

    def all_gone() -> bool:
        left = new_leftovers(before)
        return not [name for name in left if name.startswith(("process", "entry", "socket"))]

    with contextlib.ExitStack() as ends:
        path = ends.enter_context(tempfile.TemporaryDirectory(prefix="tsnb-ray-", ignore_cleanup_errors=True))
        ends.callback(kill_all_but, ours)  # where it does not end by itself, which fails the last test
        made = Machines(Path(path))
        ends.callback(until, all_gone)
        ends.callback(made.cluster.shutdown)
        ray.init(address=made.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        ends.callback(ray.shutdown)
        yield made


def kill_all_but(these: set[psutil.Process]) -> None:
    """Kill what this process has started since."""
    kept = {int(line.split()[1].rstrip(":")) for line in infrastructure()}
    for process in set(psutil.Process().children(recursive=True)) - these:
        if process.pid not in kept:
            with contextlib.suppress(psutil.Error):
                process.kill()


def hub_of(stream: str) -> Any:
    ray: Any = import_module("ray")
    return ray.get_actor(membership.hub_name(stream), namespace=membership.namespace())


def status(stream: str) -> Any:
    """Return what a stream's hub says of it."""
    ray: Any = import_module("ray")
    return ray.get(hub_of(stream).status.remote(), timeout=GONE_S)


def until(true: Callable[[], Any], within_s: float = GONE_S) -> Any:
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {within_s} s; left: {leftovers()}"
        time.sleep(0.1)
    return found


@pytest.fixture(autouse=True)
def no_leftovers() -> None:
    """Ray starts and ends processes as it likes: what is left is looked at when the cluster has ended."""
