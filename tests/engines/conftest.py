"""A Ray cluster of three nodes on this machine, each with an object store and a runtime directory of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import _infrastructure, leftovers

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = (
    "0"  # `uv run pytest` must not be taken for a way to start workers
)

STORE_BYTES = 80 << 20
GONE_S = 90.0
SOONER = {"health_check_period_ms": 500, "health_check_failure_threshold": 10}
"""Ray notices a dead node after 5 s, instead of 15; one that is only slow has 10 s for each answer, as ever."""


def patiently(start: Callable[[], Any]) -> Any:
    """Start a node; again where Ray gave it up after 30 s, which a machine with other work may need."""
    for _ in range(2):
        before = set(psutil.Process().children(recursive=True))
        try:
            return start()
        except Exception as error:  # Ray raises no other
            if "timed out" not in str(error):
                raise
            for process in set(psutil.Process().children(recursive=True)) - before:
                with contextlib.suppress(psutil.Error):
                    process.kill()
    return start()


class Machines:
    """The cluster; `nodes[0]` is the producer's."""

    def __init__(self, directory: Path) -> None:
        cluster: Any = import_module("ray.cluster_utils").Cluster
        self.directory = directory
        self._options = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        head = {
            **self._options,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,
            "env_vars": self._environment(0),
            "_system_config": SOONER,
        }
        self.cluster = patiently(lambda: cluster(initialize_head=True, connect=False, head_node_args=head))
        self.nodes: list[Any] = [self.cluster.head_node]
        for _ in range(2):
            self.add()

    def _environment(self, number: int) -> dict[str, str]:
        paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
        return {
            "TSNB_RUNTIME_DIR": str(self.directory / str(number)),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        }

    def add(self) -> None:
        """Start one more node."""
        number = len(self.nodes)
        options = {"env_vars": self._environment(number), **self._options}
        self.nodes.append(patiently(lambda: self.cluster.add_node(**options)))

    def ids(self) -> list[str]:
        return [str(node.node_id) for node in self.nodes]

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

    def used_bytes(self) -> list[int]:
        """Return the bytes in each node's store now."""
        node_stats = import_module("ray._private.internal_api").node_stats
        ray: Any = import_module("ray")
        return [
            node_stats(
                n["NodeManagerAddress"], n["NodeManagerPort"], False
            ).store_stats.object_store_bytes_used
            for n in ray.nodes()
            if n["Alive"]
        ]


@pytest.fixture(scope="module")
def machines(runtime_directory: Path) -> Iterator[Machines]:
    """Start the cluster and join it; afterwards nothing of it is left."""
    ray: Any = import_module("ray")
    before = leftovers()
    directory = Path(tempfile.mkdtemp(prefix="tsnb-ray-"))
    made = Machines(directory)
    try:
        ray.init(address=made.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made
    finally:
        ray.shutdown()
        made.cluster.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    kinds = ("process", "entry", "socket")
    until(lambda: not {p for p in leftovers() - before - _infrastructure() if p.startswith(kinds)})


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
