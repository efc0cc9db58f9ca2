"""Streams over three nodes of a real Ray cluster: real actors, sockets, SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch

import tsnb
from tests.cluster.conftest import Machines, hub_of, status, until
from tests.cluster.takers import BATCH, BATCH_BYTES, BATCHES, ROWS, Taker, digest, loader
from tests.ecosystem.apart import RAY_DATA
from tests.ecosystem.trying import assert_two_epochs_are_as_alone
from tests.house.pages import blocks_of
from tsnb.cluster import membership, offer
from tsnb.discovery import registry
from tsnb.errors import NameInUse, TsnbError
from tsnb.hosting.serving import serve_from_cell
from tsnb.integrations.ray_tune import CommonStart
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.stream.consumer.batches.parts import Part
from tsnb.stream.decisions.phases import Phase

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

ROOT = Path(__file__).parents[2]
ANSWER_S = 150.0
KEPT = 0.6
"""Of an epoch: more than a machine has loaded by the time that its trials stand still at their first batches."""
ALONE = [digest(batch) for batch in loader()]


class Place:
    """A consumer's process on a node of the cluster; one that was killed is started again when it is needed."""

    def __init__(self, machines: Machines, node: int) -> None:
        self.machines, self.node = machines, node
        self._actor: Any = None

    @property
    def actor(self) -> Any:
        if self._actor is None:
            actor: Any = ray.remote(Taker)
            at = self.machines.at(self.node)
            self._actor = actor.options(num_cpus=0, scheduling_strategy=at).remote()
        return self._actor

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        return ray.get(getattr(self.actor, method).remote(*arguments, **options), timeout=ANSWER_S)

    def kill(self) -> None:
        os.kill(self("pid"), signal.SIGKILL)
        self._actor = None

    def end(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)


@pytest.fixture(scope="module")
def takers(machines: Machines) -> Iterator[list[Place]]:
    """Consumers' processes: two on the second node, one on the third, none on the producer's."""
    made = [Place(machines, node) for node in (1, 1, 2)]
    yield made
    for place in made:
        place.end()


def together(
    places: list[Place], stream: str, epochs: int = 1, first: int = 1, then: Sequence[int] = ()
) -> None:
    """Have them take the first batches of the same epoch, and stand still there, and again after each of `then`."""
    begun = [
        place.actor.start.remote(f"c{number}", stream, epochs, stop_at=first, then_at=then)
        for number, place in enumerate(places)
    ]
    ray.get(begun, timeout=ANSWER_S)  # each machine's relay starts meanwhile
    until(lambda: all(place("count") == first for place in places))
    assert len({place("epoch") for place in places}) == 1


@pytest.fixture(scope="module")
def main(machines: Machines) -> Iterator[tsnb.streams.Producer]:
    """One stream for many tests. Its epochs are longer than what any machine keeps: who comes next takes the next."""
    with tsnb.serve(loader(), name="main", engine="ray", late_join=KEPT) as producer:
        yield producer


@pytest.fixture(scope="module")
def hasty(machines: Machines) -> Iterator[tsnb.streams.Producer]:
    """One of little stall timeout, whose order cannot be given again: for those that come first, and for its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offer, "LATER_S", 1.0)
        producer = tsnb.serve(
            loader(shuffle=True), name="hasty", engine="ray", stall_timeout_s=15.0, late_join=KEPT
        )
    with producer:
        yield producer


def epochs(place: Place) -> list[list[str]]:
    """Wait for a consumer's end; return what each of its epochs gave."""
    taken, error = place("result")
    assert not error
    assert [epoch for epoch, _ in taken] == list(range(taken[0][0], taken[0][0] + len(taken)))
    return [rows for _, rows in taken]


def streaming(producer: tsnb.streams.Producer) -> bool:
    """Return whether a machine takes an epoch."""
    members = list(producer.core.dispatch.members.values())
    return any(member.phase is Phase.STREAMING for member in members)


def machines_of(producer: tsnb.streams.Producer) -> list[str]:
    """Return the relays that are attached, by their names."""
    return [c.name for c in producer.status().consumers if c.name.startswith("cluster-")]


def relay_pid(place: Place, stream: str) -> int:
    return int(dict(place("served"))[stream])


def test_each_batch_reaches_a_node_once_and_every_consumer_gets_what_the_loader_gives(
    machines: Machines, main: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """Two consumers on one node, one on another, none on the producer's. Nothing passes through Ray's object stores."""
    before = machines.stored_bytes()
    together(takers, "main", 2)
    for place in takers:
        place("go_on")
    assert [epochs(place) for place in takers] == [[ALONE, ALONE]] * 3
    members = main.core.dispatch.members.values()
    assert [member.share.batches for member in members] == [2 * BATCHES] * 2
    stored = [after - then for then, after in zip(before, machines.stored_bytes(), strict=True)]
    assert max(stored) < BATCH_BYTES, "of Ray's own"


def test_a_killed_consumer_costs_its_neighbours_nothing_and_its_place_is_gone_on_from_elsewhere(
    main: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """They had waited for it, on its own node and on others; what it lacks can be had on another node, once."""
    victim, *others = takers
    together(takers, "main", first=3)
    for place in others:
        place("go_on")
    until(lambda: all(place("count") > 5 for place in others))
    assert max(place("count") for place in others) < BATCHES, "they wait for it"
    state = victim("place")
    victim.kill()
    assert [epochs(place) for place in others] == [[ALONE]] * 2
    until(lambda: not streaming(main))
    there = others[-1]
    there("start", "rest", "main", state=state)
    assert epochs(there) == [ALONE[3:]]
    assert there("place")["epoch"] == state["epoch"]


def test_a_killed_relay_ends_its_machines_consumers_only_and_is_replaced(
    main: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """They are told; who attaches there again gets a whole epoch from a new relay."""
    here, there = takers[1], takers[2]
    together([here, there], "main", 2)
    former = relay_pid(here, "main")
    os.kill(former, signal.SIGKILL)
    here("go_on")
    error = here("result")[1]
    assert error.startswith("ProducerGone")
    assert "attach again, which starts another relay" in error
    there("go_on")
    assert epochs(there) == [ALONE, ALONE]
    here("start", "c0", None)  # there is one stream in the cluster, and none on that machine any more
    assert epochs(here) == [ALONE]
    assert relay_pid(here, "main") != former
    until(lambda: len(status("main")["relays"]) == 2)


def test_trials_of_ray_tune_share_a_stream_and_begin_together(
    main: tsnb.streams.Producer, tmp_path: Path
) -> None:
    """Two trials, wherever Ray puts them: the same batches of the same epoch, from the first one on."""
    tune: Any = pytest.importorskip("ray.tune")
    [lines] = [block.text for block in blocks_of(ROOT / "docs/ray-cluster.md") if "CommonStart" in block.text]
    names: dict[str, Any] = {}
    exec(lines.replace("CommonStart(4)", "CommonStart(2)"), names)
    start = names["start"]
    trainable = tune.with_resources(tune.with_parameters(tuned, start=start), {"cpu": 0.5})
    tuner = tune.Tuner(
        trainable,
        param_space={"lr": tune.grid_search([0.1, 0.01])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert [r.metrics["rows"] for r in results] == [ALONE] * 2
    assert len({r.metrics["epoch"] for r in results}) == 1


def tuned(config: dict[str, float], start: CommonStart) -> dict[str, Any]:
    with start.attach(stream="main") as batches:
        rows = [digest(batch) for batch in batches]
        return {"rows": rows, "epoch": batches.epoch}


def test_a_cache_serves_all_machines(machines: Machines, takers: list[Place]) -> None:
    """What is kept on the producer's machine is prepared for none again; all fits there, so nothing lies elsewhere."""
    alone = [digest(batch) for batch in loader(rows=80)]
    with tsnb.serve(
        loader(rows=80, slow_s=0.002), name="kept", seed=1, engine="ray", cache="64MiB"
    ) as producer:
        far = takers[2]
        far("start", "far", "kept", 4)
        assert epochs(far) == [alone] * 4
        cache = producer.status().cache
        assert cache is not None
        assert (cache.state, cache.kept, cache.lent_kept) == ("serving", 80, 0)
        assert cache.hits >= 80, "an epoch may have been prepared ahead"


PHOTOS = 80
WANTED: list[dict[str, Any]] = [{"fold": (0, 4)}, {"fold": (0, 4), "held_out": True, "subset": range(40)}]
WANTED.append({"subset": range(0, PHOTOS, 8), "batch_size": 4, "drop_last": True})


def in_order(numbers: list[int], rows: int, wanted: dict[str, Any]) -> list[list[int]]:
    """Return the batches that a consumer of a part is to get of an epoch in this order."""
    given = {"fold": None, "subset": None, "held_out": False, **wanted}
    mask = Part(given["subset"], given["fold"], held_out=given["held_out"]).mask(PHOTOS)
    own = [number for number in numbers if mask[number]]
    cut = [own[start : start + rows] for start in range(0, len(own), rows)]
    return [batch for batch in cut if len(batch) == rows or "drop_last" not in wanted]


def orders(seed: int, epochs: int) -> list[list[int]]:
    """Return the order of a stream's samples in its first epochs, as it is without a cluster."""
    with serve_here(loader(PHOTOS, shuffle=True), StreamOptions(seed=seed), name="alone") as producer:
        batches = tsnb.attach("all", stream=producer.name)
        with batches:
            return [[n for batch in batches for n in batch["label"].tolist()] for _ in range(epochs)]


def test_parts_of_the_samples_are_taken_on_every_machine_and_only_what_is_taken_is_prepared(
    machines: Machines, takers: list[Place], tmp_path: Path
) -> None:
    """Two folds on one node, a subset in batches of its own on another: the union, each its own rows, in one order.

    All begin with the stream's first epoch, which holds everything, whoever asked for it first.
    """
    order = orders(5, 3)
    union = len({n for wanted in WANTED for batch in in_order(order[0], 1, wanted) for n in batch})
    assert union < PHOTOS
    seen = tmp_path / "seen"
    # all stand still until each of them is there, on a busy machine for longer than the default
    patient: dict[str, Any] = {"seed": 5, "engine": "ray", "stall_timeout_s": 120.0, "late_join": 1.0}
    served = tsnb.serve(loader(PHOTOS, shuffle=True, seen=str(seen)), name="parts", **patient)
    with served as producer:
        begun = [
            place.actor.start.remote(f"p{number}", "parts", 3, stop_at=1, **wanted)
            for number, (place, wanted) in enumerate(zip(takers, WANTED, strict=True))
        ]
        ray.get(begun, timeout=ANSWER_S)
        until(lambda: all(place("count") == 1 for place in takers))
        wanted_now = producer.core.dispatch.admission.wanted
        until(
            lambda: (wanted_now() or 0).bit_count() == union
        )  # heard of all of them, so the next epoch has them
        for place in takers:
            place("go_on")
        for place, wanted in zip(takers, WANTED, strict=True):
            taken, error = place("result")
            assert (error, [epoch for epoch, _ in taken]) == ("", [0, 1, 2])
            rows = wanted.get("batch_size", BATCH)
            assert place("samples") == [in_order(numbers, rows, wanted) for numbers in order]
            assert place("expected") == len(in_order(order[0], rows, wanted))
        assert seen.stat().st_size == PHOTOS + 2 * union
        assert len(machines_of(producer)) == len(producer.status().consumers) == 2


def test_the_producers_own_machine_takes_part_and_batch_sizes_are_each_ones_own(
    hasty: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """A consumer beside the loader and one on another node share an epoch; one takes batches of 5."""
    far = takers[2]
    together([far], "hasty")
    with pytest.raises(
        tsnb.errors.ProducerNotFound, match="Several streams are running in the cluster: hasty, main"
    ):
        tsnb.attach("near")
    with tsnb.attach("near", stream="hasty", batch_size=5) as near:
        batches = iter(near)
        first = next(batches)
        far("go_on")
        files = [*first["file"], *(name for batch in batches for name in batch["file"])]
        taken, error = far("result")
        assert (error, [near.epoch]) == ("", [epoch for epoch, _ in taken]), (
            "it came within the late-join window"
        )
        assert sorted(files) == sorted(f"{n}.png" for n in range(ROWS))
        assert len(taken[0][1]) == BATCHES
    assert machines_of(hasty) == [hasty.status().consumers[0].name]


def test_a_machine_that_was_given_up_comes_back_to_its_place(
    hasty: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """Its relay is stopped and says nothing for 10 s. Nobody else has gone on, so its trial loses nothing."""
    far = takers[2]
    together([far], "hasty")
    relay = psutil.Process(relay_pid(far, "hasty"))
    relay.suspend()
    until(lambda: not machines_of(hasty))
    relay.resume()
    far("go_on")
    assert [len(rows) for rows in epochs(far)] == [BATCHES]
    assert len(machines_of(hasty)) == 1


def test_a_machine_that_stood_still_is_told_and_the_others_go_on(
    hasty: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """Its only consumer sleeps past the stream's stall timeout; its next epoch is whole."""
    here, there = takers[1:]
    together([here, there], "hasty", 2)
    there("go_on")
    assert [len(rows) for rows in epochs(there)] == [BATCHES] * 2
    here("go_on")
    error = here("result")[1]
    assert error.startswith("LoaderFailed"), "the order cannot be given again: there is no seed"
    assert "Iterate again for the next epoch" in error
    here("start", "c0", "hasty")
    assert [len(rows) for rows in epochs(here)] == [BATCHES]


def test_without_its_hub_the_cluster_is_told_and_the_producers_own_machine_goes_on(
    hasty: tsnb.streams.Producer, takers: list[Place], caplog: pytest.LogCaptureFixture
) -> None:
    """The last test of that stream: its hub is killed. Nobody waits, the log says what to do, the name is free."""
    far = takers[2]
    together([far], "hasty")
    with tsnb.attach("near", stream="hasty") as near:
        batches = iter(near)
        next(batches)
        relay = relay_pid(far, "hasty")
        os.kill(status("hasty")["pid"], signal.SIGKILL)
        far("go_on")
        assert far("result")[1].startswith("ProducerGone")
        assert sum(1 for _ in batches) == BATCHES - 1
        until(lambda: "its hub" in caplog.text)
        assert "serve it again" in caplog.text
        until(lambda: not machines_of(hasty))
    until(lambda: not psutil.pid_exists(relay))
    hasty.stop()
    assert not [entry for entry in registry.entries() if entry.name == "hasty"]
    with pytest.raises(ValueError, match="Failed to look up"):
        hub_of("hasty")


def test_names_and_clusters_that_are_none_are_errors_with_a_way_out(
    machines: Machines, main: tsnb.streams.Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is served in the cluster, another cluster's address, no such stream, another version of tsnb."""
    with pytest.raises(TsnbError, match="Install the same"):
        ray.get(hub_of("main").relay_on.remote(machines.ids()[1], "/tmp", 999))
    with monkeypatch.context() as elsewhere:  # as on another machine
        elsewhere.setenv("TSNB_RUNTIME_DIR", str(tmp_path / "run"))
        with pytest.raises(NameInUse, match="in the cluster"):
            tsnb.serve([torch.ones(2)], name="main", engine="ray")
    with pytest.raises(TsnbError, match="not in the one at"):
        tsnb.serve(loader(), name="x", engine="ray://10.0.0.1:6379")
    with pytest.raises(
        tsnb.errors.ProducerNotFound, match=r"in the cluster's namespace .* The cluster has .*main\."
    ):
        tsnb.attach("c", stream="nobody")
    several = pytest.raises(tsnb.errors.ProducerNotFound, match="main in the cluster, own on this machine")
    with serve_here([torch.ones(2)], name="own"), several:
        tsnb.attach("c")


def test_a_notebooks_stream_reaches_the_cluster_and_nothing_of_it_outlives_its_kernel(
    machines: Machines, takers: list[Place]
) -> None:
    """`--engine ray://HOST:PORT` in a producer kernel, which is killed: the run is told, hub and relays end."""
    cell = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.cluster.takers import loader as make\n"
        "loader = make()"
    )
    options = StreamOptions(engine=f"ray://{machines.cluster.address}")
    kernel = serve_from_cell(cell, {}, "kernel", options)
    try:
        far = takers[2]
        together([far], "kernel")
        pid = relay_pid(far, "kernel")
        assert kernel.pid is not None
        os.kill(kernel.pid, signal.SIGKILL)
        far("go_on")
        assert far("result")[1].startswith("ProducerGone")
        until(lambda: not psutil.pid_exists(pid))  # relays end with their stream
        until(
            lambda: membership.hub_name("kernel") not in str(ray.util.list_named_actors(all_namespaces=True))
        )
    finally:
        kernel.stop()


def test_ray_data_is_a_loader(machines: Machines, tmp_path: Path) -> None:
    """`iter_torch_batches` is iterated anew for each epoch, as its row in docs/what-can-be-served.md says."""
    pytest.importorskip("ray.data")
    assert_two_epochs_are_as_alone(RAY_DATA, tmp_path)


def test_a_killed_node_is_noticed_and_the_others_go_on(
    machines: Machines, main: tsnb.streams.Producer, takers: list[Place]
) -> None:
    """The last test: one machine of three is lost, with its store, its relay and its consumers."""
    here, there = takers[1:]
    together([here, there], "main", 2)
    machines.cluster.remove_node(machines.nodes[1], allow_graceful=False)
    there("go_on")
    assert epochs(there) == [ALONE, ALONE]
    until(lambda: machines.ids()[1] not in status("main")["relays"])
    assert machines.ids()[2] in status("main")["relays"]
