"""A cache over the machines of a real Ray cluster: one that lends memory is killed in the middle."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator

import psutil
import pytest
import ray

import tsnb
from tests.cluster.conftest import Machines, hub_of, patiently, status, until
from tests.cluster.takers import ROWS, loader
from tests.cluster.test_cluster import ALONE, Place, epochs, relay_pid, together
from tsnb.telemetry.readings import CacheReading
from tsnb.wire.messages import PROTOCOL

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

EPOCHS = 14
SLOW_S = 0.006


@pytest.fixture
def places(machines: Machines) -> Iterator[list[Place]]:
    """A consumer on the third node, and one on a node of this test's own, which it may kill."""
    number = len(machines.nodes)
    add = functools.partial(
        machines.cluster.add_node, **machines._options, env_vars=machines._environment(number)
    )
    machines.nodes.append(patiently(add))
    made = [Place(machines, 2), Place(machines, number)]
    yield made
    made[0].end()
    with contextlib.suppress(Exception):  # it may be killed already
        machines.cluster.remove_node(machines.nodes[number], allow_graceful=False)
    machines.nodes.pop()


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 30.0).close()
    except OSError:
        return False
    return True


def test_a_cache_lies_on_all_machines_and_one_of_them_is_killed(
    machines: Machines, places: list[Place]
) -> None:
    """The stream is the loader's bit for bit; memory is lent beside each machine's; nothing of it is left."""
    with tsnb.serve(
        loader(slow_s=SLOW_S), name="lent", seed=1, engine="ray", cache="4MiB", workers=2
    ) as producer:

        def cache() -> CacheReading:
            found = producer.status().cache
            assert found is not None
            return found

        together(places, "lent", EPOCHS)
        keeper = producer.core.keeper
        assert keeper is not None
        until(lambda: len(keeper.lenders._now) == 2)
        for place in places:
            place("go_on")
        until(lambda: cache().lent_hits > 50)
        seen, lenders = cache(), tuple(keeper.lenders._rows.values())
        assert (seen.state, seen.lenders) == ("serving", 2)
        assert sorted(lender.machine for lender in lenders) == sorted(machines.ids()[2:])
        assert seen.kept > 50, "this machine's own is full"
        assert seen.kept < seen.lent_kept < ROWS - seen.kept, "each lends as much, and not all of it fits"
        assert seen.lent_bytes <= 2 * 4 << 20
        relay = relay_pid(places[0], "lent")
        assert places[0]("count") < EPOCHS * len(ALONE)
        machines.cluster.remove_node(machines.nodes[3], allow_graceful=False)
        assert epochs(places[0]) == [ALONE] * EPOCHS
        until(lambda: len(status("lent")["relays"]) == 1)
        until(lambda: cache().lenders == 1)
        after = cache()
        assert after.state == "serving"
        assert after.lent_kept < seen.lent_kept
        assert after.kept == seen.kept
        [alive] = [one for one in lenders if one.machine == machines.ids()[2]]
        assert listens(alive.host, alive.port)
    until(lambda: not any(listens(one.host, one.port) for one in lenders))
    until(lambda: not psutil.pid_exists(relay))
    ports = {one.port for one in lenders}
    held = psutil.Process().net_connections("tcp")
    assert not [one for one in held if one.raddr and one.raddr.port in ports and one.status == "ESTABLISHED"]


def test_one_relay_on_each_machine_lends_and_none_on_the_producers(machines: Machines) -> None:
    """A second one on a machine, for another runtime directory, would lend the same memory again."""
    with tsnb.serve(loader(rows=80), name="own", engine="ray", cache="4MiB") as producer:
        for node, directory in ((0, "a"), (2, "a"), (2, "b")):
            path = machines.directory / f"own-{directory}-{node}"
            path.mkdir(mode=0o700)
            ray.get(hub_of("own").relay_on.remote(machines.ids()[node], str(path), PROTOCOL))
        keeper = producer.core.keeper
        assert keeper is not None
        until(lambda: keeper.lenders._now)
        assert [lender.machine for lender in keeper.lenders._now] == [machines.ids()[2]]
