"""Room for a kernel on some machine of a Ray cluster: cores, perhaps a GPU, kept free for it by a placement group.

Room belongs to the process that asked for it: Ray takes it back when that process ends.

Here too: Ray's reports of a lost actor, in words for the person who started the trial.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tsnb.cluster.membership import last_words
from tsnb.engines import joined
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.death import KernelDied

__all__ = [
    "LEFT",
    "KernelRoom",
    "Needs",
    "cannot_start",
    "cause_of_loss",
    "job_here",
    "join",
    "places_in_cluster",
]

LOOK_S = 0.2
"""How often to look for room."""
PATIENCE_S = 3.0
"""How long a trial waits for room before a line says so."""


def join(address: str) -> None:
    """Be in a Ray cluster from now on, until this process ends. From any thread but the hub's.

    Args:
        address: HOST:PORT of its head; "" for the one that this process or machine is in.

    Raises:
        ExtraMissing: Ray is not installed.
        TsnbError: The cluster does not exist, or this process is in another one.
    """
    from tsnb.cluster.membership import stay_in_cluster

    stay_in_cluster(address)
    the_hub().close_first()  # Ray leaves the cluster at this process's end: kernels are to be ended before


def job_here() -> str:
    """Return Ray's id of this process's life in a cluster; empty while it is in none."""
    ray = joined()
    return "" if ray is None else str(ray.get_runtime_context().get_job_id())


@dataclass(frozen=True)
class Needs:
    """The room that a kernel takes on its machine while its code runs."""

    cpus: int = 1
    """Cores."""
    gpus: int = 0
    """GPUs."""

    def __str__(self) -> str:
        words = [f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}"]
        return " and ".join(words + ([f"{self.gpus} GPU"] if self.gpus else []))

    def times_in(self, resources: Mapping[str, float]) -> int:
        """Return how often they fit into a machine's resources, as Ray calls them."""
        fits = int(resources.get("CPU", 0) // self.cpus)
        return min(fits, int(resources.get("GPU", 0) // self.gpus)) if self.gpus else fits


def places_in_cluster(needs: Needs) -> int:
    """Return how many kernels the cluster has room for at once if no one else uses it. In a process that has joined."""
    return sum(needs.times_in(node["Resources"]) for node in joined().nodes() if node["Alive"])


class KernelRoom:
    """Room for one kernel. On the hub's thread.

    Args:
        needs: How much.
        waiting: Called with a sentence while there is no room, and with "" once there is.
    """

    def __init__(self, needs: Needs, waiting: Callable[[str], None]) -> None:
        self.needs = needs
        self.group: Any = None
        self._waiting = waiting

    async def reserve(self, refusal: Callable[[], str]) -> str:
        """Wait for room; return Ray's id of the machine.

        Args:
            refusal: Says why it is not to be waited for any more; "" while it is.

        Raises:
            KernelDied: It is not.
        """
        try:
            return await self._reserve(refusal)
        except BaseException:
            await self.give_back()
            raise

    async def _reserve(self, refusal: Callable[[], str]) -> str:
        from ray.util.placement_group import placement_group, placement_group_table

        if refusal():  # a call of Ray's would join some cluster
            raise KernelDied(refusal())
        bundle = {"CPU": self.needs.cpus} | ({"GPU": self.needs.gpus} if self.needs.gpus else {})
        # what asks Ray's head may take as long as that does not answer: the hub's thread has others' output to show
        self.group = group = await asyncio.to_thread(placement_group, [bundle])
        waited_s, told = 0.0, False
        while not await self._there_is(group, refusal):
            await asyncio.sleep(LOOK_S)
            waited_s += 2 * LOOK_S
            if waited_s > PATIENCE_S and not told:
                told = True
                self._waiting(await asyncio.to_thread(self._why_not_yet))
        if told:
            self._waiting("")
        table = await asyncio.to_thread(placement_group_table, group)
        return str(table["bundles_to_node_id"][0])

    async def _there_is(self, group: Any, refusal: Callable[[], str]) -> bool:
        there = False
        try:
            there = bool(await asyncio.to_thread(group.wait, LOOK_S))
        except Exception:
            if not refusal():  # else it was given back under this very look
                if job_here():
                    raise
                raise KernelDied(LEFT) from None
        if refusal():
            raise KernelDied(refusal())
        return there

    def _why_not_yet(self) -> str:
        waits = f"it waits for room in the cluster, {self.needs} on one machine"
        if places_in_cluster(self.needs):
            return waits
        return f"{waits}. No machine of the cluster has that much now. Stop the trial, or add a machine"

    async def give_back(self) -> None:
        """Give it back, if there is some."""
        group, self.group = self.group, None
        if group is not None and job_here():
            from ray.util.placement_group import remove_placement_group

            await asyncio.to_thread(remove_placement_group, group)


LEFT = (
    "this process has left the Ray cluster (by ray.shutdown() or because it ended), which ends everything "
    "it started there"
)


def cause_of_loss(said: str, host: str) -> str:
    """Say why an actor has gone: one line, then Ray's own words.

    Args:
        said: Ray's message.
        host: The name of its machine, or words for it.
    """
    low = said.lower()
    if "node has died" in low or "node was terminated" in low or "node died" in low:
        first = f"{host} left the cluster: the machine, its network or its Ray process has ended"
    elif "running low on memory" in low or "node_out_of_memory" in low:
        first = (
            f"Ray killed it on {host}, which ran out of memory. Use a smaller batch or model, or run fewer "
            "trials at once"
        )
    else:
        first = f"the Ray process that ran its kernel on {host} has ended"
    return f"{first}\n{said.strip()}"


def cannot_start(error: BaseException) -> str:
    """Say why a kernel cannot be started on a machine of the cluster.

    Args:
        error: What Ray has raised.
    """
    return (
        f"A kernel cannot be started on a machine of the cluster: {last_words(error)}. Install the same "
        "version of tsnb, and everything it needs, on every machine (docs/ray-cluster.md)."
    )
