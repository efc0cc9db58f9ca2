"""How far one stream can fan out: the hub's real decisions, and a model of the network, for up to 1,000 nodes.

Two things bound the batches a second of a stream over N nodes, whatever the loader gives:

- **the hub**: one process decides for all. Its decisions are run here, the real ones
  (`tsnb.cluster.hub_dispatch`), with N relays in lockstep, and their CPU time a batch is measured. What Ray takes
  for the messages is assumed: MESSAGE_S for each, and three a batch and node (a question, its answer's delivery, an
  acknowledgement).
- **the network**: a batch of B bytes must enter each node once. Assumed: each node has one link of LINK_BYTES_PER_S,
  full duplex, which it shares among its transfers; a node passes a batch on only when it has all of it; nothing else
  uses the links; storing costs nothing. Two bounds of what Ray's object store may do are given: *star*, every node
  pulls from the producer's machine, which is what happens when all ask at the same moment; *tree*, who has a batch
  gives it to one other at a time, so that the nodes that have it double with each round. Ray lies in between.

Nothing here was measured on a real network or on more than three nodes. No Ray, one process:

    python -m benchmarks.cluster_simulation [--nodes 8,64,1000] [--batch-mb 38.5] [--json FILE]

The figures stand in docs/ray-cluster.md.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tsnb.cluster.hub_dispatch import ClusterDispatch, Offered

MESSAGE_S = 0.0002
"""CPU seconds that the hub's process spends on one of Ray's messages, beside the decisions: a guess."""
MESSAGES = 3
LINK_BYTES_PER_S = 25e9 / 8
"""A link of 25 Gbit/s."""
LATENCY_S = 0.0005
"""From one round of the tree to the next: the directory of objects is asked, and a request sent."""


@dataclass(frozen=True)
class Row:
    """One size of cluster."""

    nodes: int
    decisions_s: float
    """CPU seconds of the hub's decisions for one batch, on this machine."""
    hub_per_s: float
    """Batches a second that the hub lets through, messages included."""
    star_per_s: float
    """Batches a second that the network lets through if every node pulls from the producer's machine."""
    tree_per_s: float
    """The same if nodes pass batches on."""


def decisions_s(nodes: int, batches: int) -> float:
    """Return the CPU seconds of the hub's decisions for one batch to so many relays."""
    dispatch = ClusterDispatch(4, 14, 35.0, 1 << 40, 0.0, repeatable=False)
    keys = [dispatch.join(f"n{n}", 0.0) for n in range(nodes)]
    for key in keys:
        dispatch.ask(key, 1, 0, 0, False, 0.0)
    began = time.process_time()
    for number in range(batches):
        wanted = dispatch.wanted
        assert wanted is not None, "in lockstep the window never fills"
        dispatch.loaded(wanted.run, None, 1, 1, number * 1.0)
        for key in keys:
            told = dispatch.more(key, 1, number * 1.0)
            for lease in [one.message.lease for one in told if isinstance(one.message, Offered)]:
                dispatch.took(key, 1, lease, number * 1.0)
            dispatch.more(key, 1, number * 1.0)
    return (time.process_time() - began) / batches


def star_per_s(nodes: int, batch_bytes: float) -> float:
    """Return the batches a second through the producer's one link."""
    return LINK_BYTES_PER_S / (batch_bytes * nodes)


def tree_per_s(nodes: int, batch_bytes: float) -> float:
    """Return the batches a second through a doubling tree, one batch after the other.

    A round moves a whole batch over every link in use; batches do not overlap, since in the last round half of
    all links are busy.
    """
    rounds = math.ceil(math.log2(nodes + 1))
    return 1.0 / (rounds * (batch_bytes / LINK_BYTES_PER_S + LATENCY_S))


def row(nodes: int, batch_bytes: float) -> Row:
    """Return what bounds a stream over so many nodes."""
    decided_s = decisions_s(nodes, max(20, min(200, 20000 // nodes)))
    hub = 1.0 / (decided_s + MESSAGES * nodes * MESSAGE_S)
    return Row(nodes, decided_s, hub, star_per_s(nodes, batch_bytes), tree_per_s(nodes, batch_bytes))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [
        "| nodes | decisions, CPU-ms a batch | hub: batches/s | star: batches/s | tree: batches/s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.nodes:,} | {r.decisions_s * 1e3:.1f} | {r.hub_per_s:,.1f} | {r.star_per_s:,.2f} | {r.tree_per_s:,.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="2,8,64,256,1000")
    parser.add_argument("--batch-mb", type=float, default=38.5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [row(int(word), given.batch_mb * 1e6) for word in given.nodes.split(",")]
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
