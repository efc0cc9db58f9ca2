"""A stream over a Ray cluster of one to three nodes on this machine: batches a second.

What is isolated: ready-made batches (no decoding), one consumer on each node but the producer's, which only looks at
what it gets. All nodes share this machine's cores and memory, and the network between them is its loopback: so the
figures tell the cost of the way, not of a network, and more nodes do more work on the same cores.

    python -m benchmarks.cluster [--nodes 0,1,2,3] [--batch-mb 4] [--seconds 5] [--json FILE] [--quick]

`--nodes 0` is the local stream, without Ray. The figures stand in docs/ray-cluster.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import tsnb
from tsnb.integrations.ray_tune import CommonStart

STORE_BYTES = 512 << 20
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """One run."""

    nodes: int
    """Nodes with a consumer, beside the producer's; 0: a consumer on the producer's machine, and no Ray."""
    batch_bytes: int
    batches: int
    """That the slowest consumer took."""
    batches_per_s: float
    load: float
    """The machine's load average, one minute, at the end."""


class Batches:
    """One ready-made batch, given until the time is over."""

    def __init__(self, batch_bytes: int, seconds: float) -> None:
        self.batch = torch.rand(batch_bytes // 4)
        self.seconds = seconds

    def __call__(self, _epoch: int) -> Iterator[torch.Tensor]:
        """Give an epoch."""
        yield self.batch  # proves the loader
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            yield self.batch


def take(name: str, start: CommonStart | None = None) -> tuple[int, float]:
    """Take an epoch; return its batches after the first, and the seconds they took."""
    torch.set_num_threads(1)
    attach = tsnb.attach if start is None else start.attach
    with attach(name, stream="cluster-bench") as consumer:
        batches = iter(consumer)
        next(batches)
        began, count = time.monotonic(), 0
        for batch in batches:
            float(batch[0])
            count += 1
        return count, time.monotonic() - began


def alone(batch_bytes: int, seconds: float) -> Row:
    """Measure the local stream."""
    with tsnb.serve(Batches(batch_bytes, seconds), name="cluster-bench"):
        count, took_s = take("alone")
    return Row(0, batch_bytes, count, count / took_s, os.getloadavg()[0])


def over_cluster(nodes: int, batch_bytes: int, seconds: float) -> Row:
    """Measure a stream over so many nodes beside the producer's."""
    ray: Any = import_module("ray")
    cluster: Any = import_module("ray.cluster_utils").Cluster
    with tempfile.TemporaryDirectory(prefix="tsnb-cluster-", ignore_cleanup_errors=True) as path:

        def options(number: int) -> dict[str, Any]:
            environment = {"TSNB_RUNTIME_DIR": f"{path}/{number}", "PYTHONPATH": str(ROOT)}
            return {"num_cpus": 1, "object_store_memory": STORE_BYTES, "env_vars": environment}

        head = {**options(0), "include_dashboard": False}
        made = cluster(initialize_head=True, connect=False, head_node_args=head)
        try:
            others = [made.add_node(**options(number + 1)) for number in range(nodes)]
            ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
            ids = [made.head_node.node_id, *(node.node_id for node in others)]
            return measure(ids, batch_bytes, seconds)
        finally:
            ray.shutdown()
            made.shutdown()


def measure(ids: Sequence[str], batch_bytes: int, seconds: float) -> Row:
    """Measure a stream over nodes of the cluster that this process has joined; the first is its own."""
    ray: Any = import_module("ray")
    at: Any = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    remote: Any = ray.remote(take)
    with tsnb.serve(Batches(batch_bytes, seconds), name="cluster-bench", engine="ray", late_join=1.0):
        start = CommonStart(len(ids) - 1)  # else a node that comes late takes another epoch than the others
        taking = [
            remote.options(num_cpus=0, scheduling_strategy=at(node, soft=False)).remote(f"c{number}", start)
            for number, node in enumerate(ids[1:])
        ]
        taken = ray.get(taking)
    count, took_s = min(taken, key=lambda pair: pair[0] / pair[1])
    return Row(len(ids) - 1, batch_bytes, count, count / took_s, round(os.getloadavg()[0], 1))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| nodes | batch | batches/s | MB/s to each | load |", "|---|---|---|---|---|"]
    for row in rows:
        size = row.batch_bytes / 1e6
        where = f"{row.nodes} beside the producer's" if row.nodes else "none: the local stream"
        lines.append(
            f"| {where} | {size:.1f} MB | {row.batches_per_s:.0f} | {row.batches_per_s * size:.0f} | {row.load:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="0,1,2,3")
    parser.add_argument("--batch-mb", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one node, a second")
    given = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    seconds = 1.0 if given.quick else given.seconds
    rows = []
    for nodes in [1] if given.quick else [int(word) for word in given.nodes.split(",")]:
        size = int(given.batch_mb * 1e6)
        rows.append(over_cluster(nodes, size, seconds) if nodes else alone(size, seconds))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
