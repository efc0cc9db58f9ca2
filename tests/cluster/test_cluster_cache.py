"""A cache over the machines of a real Ray cluster: one that lends memory is killed, or the producer is."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
import ray

import tsnb
from tests.cluster.conftest import GONE_S, Machines, hub_of, patiently, status, until
from tests.cluster.takers import BATCHES, ROWS, digest, loader
from tests.cluster.test_cluster import ALONE, ROOT, Place, epochs, relay_pid, together
from tsnb.extensions.cache import keeper_of
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.stream.protocol.messages import PROTOCOL
from tsnb.telemetry.readings import CacheReading

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

ENDLESS = 1000
"""Epochs: trials go on until what is to come about has, however busy the machine is, and are told to end then."""
SLOW_S = 0.006
AHEAD = 10
"""Batches: more than are kept for who comes late, and not to the end of the epoch."""
SERVE = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
import tsnb
from tests.cluster.takers import loader
from tsnb.caching.memory import adopt
if sys.argv[2] != "-":
    adopt(int(sys.argv[2]))
served = loader(slow_s={SLOW_S}, shuffle=True)
options = {{"cache": "4MiB", "workers": 2, "stall_timeout_s": 120}}  # so long trials may take to come back
with tsnb.serve(served, name="again", seed=1, engine="ray://" + sys.argv[1], **options) as producer:
    while os.read(0, 1):
        print(json.dumps(vars(producer.status().cache)), flush=True)
"""


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
    gone = machines.nodes.pop().node_id
    # until Ray has noticed, it puts what comes next there, where it never runs
    until(lambda: gone not in machines.alive())


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

        together(places, "lent", ENDLESS)
        keeper = keeper_of(producer.core)
        assert keeper is not None
        until(lambda: len(keeper.lenders._now) == 2)
        for place in places:
            place("go_on")

        def both_lend() -> CacheReading | None:
            found = cache()
            whole = found.lenders == 2 and found.lent_kept > found.kept and found.lent_hits > 50
            return found if whole else None

        seen = until(both_lend)
        lenders = tuple(keeper.lenders._rows.values())
        assert seen.state == "serving"
        assert sorted(lender.machine for lender in lenders) == sorted(machines.ids()[2:])
        assert seen.kept > 50, "this machine's own is full"
        assert seen.kept < seen.lent_kept < ROWS - seen.kept, "each lends as much, and not all of it fits"
        assert seen.lent_bytes <= 2 * 4 << 20
        relay = relay_pid(places[0], "lent")
        machines.cluster.remove_node(machines.nodes[3], allow_graceful=False)
        until(lambda: len(status("lent")["relays"]) == 1)
        until(lambda: cache().lenders == 1)
        places[0]("enough")
        taken = epochs(places[0])
        assert taken == [ALONE] * len(taken)
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
        keeper = keeper_of(producer.core)
        assert keeper is not None
        until(lambda: keeper.lenders._now)
        assert [lender.machine for lender in keeper.lenders._now] == [machines.ids()[2]]


class Serving:
    """A producer in a process of its own, which can be killed.

    Args:
        machines: The cluster.
        memory: The descriptor of a cache's memory that it is to adopt, as a producer has that is started again.
    """

    def __init__(self, machines: Machines, memory: int | None) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE,
                machines.cluster.address,
                "-" if memory is None else str(memory),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=() if memory is None else (memory,),
            text=True,
        )
        self.cache()  # it serves

    def cache(self) -> CacheReading:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return CacheReading(**json.loads(self.process.stdout.readline()))

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.process.communicate(timeout=GONE_S)


@pytest.mark.parametrize("kept", [True, False], ids=["its memory is kept", "its memory goes with it"])
def test_a_killed_producer_is_served_again_and_trials_go_on_where_they_were(
    machines: Machines, places: list[Place], *, kept: bool
) -> None:
    """Each sample once, whatever lay on which machine; what was kept elsewhere is prepared again, and kept again."""
    memory = os.memfd_create("cache") if kept else None
    with Serving(machines, memory) as former:
        stops = range(5 * BATCHES + 3, ENDLESS * BATCHES, BATCHES)
        together(places, "again", ENDLESS, then=stops)
        for stop_at in stops:  # in the middle of an epoch
            for place in places:
                place("go_on")
            until(lambda stop_at=stop_at: all(place("count") == stop_at for place in places))  # type: ignore[misc]
            before = former.cache()
            if before.lenders == 2 and before.lent_hits > 50:
                break
        assert before.state == "serving"
        relays = [relay_pid(place, "again") for place in places]
    taken, states = [], []
    for place in places:
        place("go_on")
        begun, error = place("result")
        assert error.startswith("ProducerGone")
        taken.append([row for _, rows in begun for row in rows])
        states.append(place("place"))
    until(lambda: not any(psutil.pid_exists(relay) for relay in relays))
    with Serving(machines, memory) as again:
        held = again.cache()
        assert (held.state, held.kept) == (("serving", before.kept) if kept else ("learning", 0))
        assert (held.lenders, held.lent_kept) == (0, 0), "that lay in relays that have ended"
        first, second = sorted((0, 1), key=lambda number: -states[number]["batch"])
        for number, stop_at in ((first, AHEAD), (second, -1)):
            places[number]("start", f"c{number}", "again", ENDLESS, stop_at=stop_at, state=states[number])
            until(lambda number=number, stop_at=stop_at: places[number]("count") >= max(1, stop_at))  # type: ignore[misc]
        places[first]("go_on")  # the other one has come, to a place that was given before

        def all_is_kept() -> bool:
            found = again.cache()
            return (found.state, found.lenders) == ("serving", 2) and found.lent_kept > found.kept > 50

        until(all_is_kept)
        relays = [relay_pid(place, "again") for place in places]
        for place in places:
            place("enough")
        for begun, place in zip(taken, places, strict=True):
            begun += [row for rows in epochs(place) for row in rows]
        with serve_here(loader(shuffle=True), StreamOptions(seed=1), name="alone") as alone:
            batches = tsnb.attach("all", stream=alone.name)
            wanted = [digest(batch) for _ in range(max(map(len, taken)) // BATCHES) for batch in batches]
        assert all(whole == wanted[: len(whole)] for whole in taken)
        assert not any(len(whole) % BATCHES for whole in taken)
        again.stop()
        until(lambda: not any(psutil.pid_exists(relay) for relay in relays))
    if memory is not None:
        os.close(memory)
