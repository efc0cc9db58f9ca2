"""The port for relays, and a relay's source, over real sockets and without Ray: what crosses, breaks or is refused."""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.producer.sources import Fails, Numbers
from tests.promises import promptly
from tsnb.caching.shard_wire import TOKEN_BYTES, BadPeer, prove
from tsnb.cluster import relay_port, remote_epochs
from tsnb.cluster.relay_port import RelayPort
from tsnb.cluster.relay_wire import Address, Alive, FromProducer, Link, MachineParts, mask_of, part_of
from tsnb.cluster.remote_epochs import RemoteEpochs
from tsnb.cluster.stream_relay import StreamRelay
from tsnb.errors import LoaderFailed
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.serving.stream import Producer
from tsnb.stream.loader.packing import ArrivingImage
from tsnb.stream.loader.seams import Covering, Ready
from tsnb.stream.protocol import messages as ms

pytestmark = pytest.mark.timeout(120, func_only=True)

HOST = "127.0.0.1"
HANG_S = 30.0
SAMPLES, BATCH = 96, 4
BATCHES = SAMPLES // BATCH


def facts_of(producer: Producer) -> dict[str, Any]:
    source = producer.core.source
    assert source is not None
    facts = {name: getattr(source, name) for name in ("batch_size", "batches", "samples", "order")}
    return facts | {"indices": tuple(source.indices), "batch_bytes": producer.core.batch_bytes}


@contextlib.contextmanager
def served(loader: Any, **options: Any) -> Iterator[tuple[Producer, RelayPort]]:
    """Serve a loader, with a port for relays."""
    name = f"far-{secrets.token_hex(3)}"
    with serve_here(loader, StreamOptions(**options), name=name, in_step=True, least_band=20) as producer:
        port = RelayPort(producer, HOST, secrets.token_bytes(TOKEN_BYTES))
        try:
            yield producer, port
        finally:
            port.close()


@pytest.fixture(scope="module")
def numbers() -> Iterator[tuple[Producer, RelayPort]]:
    """One stream for many tests, in one order that can be given again."""
    with served(DataLoader(Numbers(SAMPLES), BATCH, shuffle=True), seed=3) as made:
        yield made


@contextlib.contextmanager
def relay(producer: Producer, port: RelayPort) -> Iterator[RemoteEpochs]:
    """Return a relay's source, which says now and then that it lives."""
    made = RemoteEpochs(port.address, facts_of(producer), HOST)
    made.connect()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            made.beat()

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield made
    finally:
        ended.set()
        beating.join()
        made.disconnect()


def taken(
    source: RemoteEpochs,
    epoch: int,
    start: int = 0,
    each: Callable[[int], None] | None = None,
    cover: int | None = None,
) -> list[list[int]]:
    """Take an epoch as a producer does; return what each of its batches held."""
    found: list[list[int]] = []
    for given_ in source.begin(epoch, start, cover):
        if isinstance(given_, Ready):
            if each is not None:
                each(len(found))
            image: ArrivingImage = given_.batch
            memory = np.empty(image.size, np.uint8)
            image.fill(memory)
            found.append(memory[: 8 * image.rows].view(np.int64).tolist())
            if given_.drawn is not None:
                assert list(given_.drawn) == found[-1], "which samples it holds is known"
    return found


def promptly_gone(producer: Producer) -> None:
    promptly(lambda: not [c for c in producer.status().consumers if c.name.startswith("cluster-")])


def test_several_machines_get_every_batch_once_in_order_whatever_breaks(
    numbers: tuple[Producer, RelayPort],
) -> None:
    """Three machines take four epochs. Their connections break at random moments, in the middle of batches too."""
    producer, port = numbers
    rng = random.Random(1)
    found: dict[int, list[list[list[int]]]] = {}
    breaks: list[int] = []

    def each(number: int) -> None:
        if number % 5 == 3 and len(breaks) < 6 and rng.random() < 0.3:
            breaks.append(number)
            port.drop()

    with contextlib.ExitStack() as stack:
        relays = [stack.enter_context(relay(producer, port)) for _ in range(3)]

        def take(number: int) -> None:
            found[number] = [taken(relays[number], epoch, each=each) for epoch in range(1, 5)]

        threads = [threading.Thread(target=take, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
    assert breaks
    for epochs in found.values():
        assert all(sorted(n for batch in epoch for n in batch) == list(range(SAMPLES)) for epoch in epochs)
        assert epochs == found[0]
    assert sorted(found) == [0, 1, 2]
    promptly_gone(producer)


def test_the_rest_of_an_epoch_is_given_from_its_place(numbers: tuple[Producer, RelayPort]) -> None:
    """As a trial wants it that goes on elsewhere. Its batches are those of the whole epoch."""
    producer, port = numbers
    with relay(producer, port) as source:
        whole = taken(source, 9)
        assert taken(source, 9, 5) == whole[5:]
    promptly_gone(producer)


@pytest.mark.parametrize("seed", range(3))
def test_every_machine_gets_the_samples_of_its_consumers_whatever_happens(seed: int) -> None:
    """Machines that take parts die and come, and take other parts: each batch holds what the machine was told.

    What is prepared is what the machines take, and no more.
    """
    rng = random.Random(seed)
    with served(DataLoader(Numbers(SAMPLES), BATCH, shuffle=True), seed=seed) as (producer, port):

        def dropping(at: int) -> None:
            if at == 2:
                port.drop()

        for epoch in range(1, 6):
            parts = [sum(1 << n for n in range(SAMPLES) if n % 6 == rng.randrange(6)) for _ in range(2)]
            with contextlib.ExitStack() as stack:
                relays = [stack.enter_context(relay(producer, port)) for _ in parts]
                for source, part in zip(relays, parts, strict=True):
                    source.expect(part)
                union = parts[0] | parts[1]
                promptly(lambda union=union: producer.core.dispatch.admission.wanted() == union)  # type: ignore[misc]
                held: list[set[int]] = [set(), set()]

                def take(
                    number: int,
                    source: RemoteEpochs,
                    held: Any = held,
                    parts: Any = parts,
                    epoch: int = epoch,
                ) -> None:
                    held[number] = {
                        n for batch in taken(source, epoch, 0, dropping, parts[number]) for n in batch
                    }

                threads = [threading.Thread(target=take, args=each) for each in enumerate(relays)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(HANG_S)
                for mine, part in zip(held, parts, strict=True):
                    assert {n for n in range(SAMPLES) if part >> n & 1} <= mine
            promptly_gone(producer)


def covers_of(source: RemoteEpochs, epoch: int, cover: int) -> list[Covering]:
    """Begin an epoch; return what is told of it before its first batch."""
    told: list[Any] = []
    for one in source.begin(epoch, 0, cover):
        if isinstance(one, Ready):
            break
        told.append(one)
    return [one for one in told if isinstance(one, Covering)]


@pytest.mark.parametrize("over", [False, True], ids=["it goes on", "it has come to its end"])
def test_an_epoch_that_holds_more_than_was_asked_for_is_told_before_its_first_batch(over: bool) -> None:
    """Another machine takes all: then the batches are whole, and others on this machine may take more of them, too."""
    loader = DataLoader(Numbers(SAMPLES), BATCH, shuffle=True)
    with (
        served(loader, seed=1, late_join=1.0) as (producer, port),
        relay(producer, port) as everything,
        relay(producer, port) as some,
    ):
        everything.expect(None)
        some.expect(0b1)
        promptly(lambda: producer.core.dispatch.admission.wanted() is None)
        if over:
            assert len(taken(everything, 0)) == BATCHES
        else:
            next(everything.begin(0))
        assert covers_of(some, 0, 0b1) == [Covering(None)]


def test_a_loaders_error_reaches_other_machines_with_its_traceback() -> None:
    """And the next epoch can be asked for."""
    with served(DataLoader(Fails(40, bad=30), BATCH)) as (producer, port), relay(producer, port) as source:
        for epoch in range(2):
            with pytest.raises(LoaderFailed, match="raised") as failed:
                taken(source, epoch)
            assert "Traceback" in failed.value.loader_traceback


def test_a_batch_that_fits_no_slot_is_read_and_the_next_epoch_is_whole(
    numbers: tuple[Producer, RelayPort],
) -> None:
    """Its bytes are on the connection already."""
    producer, port = numbers
    with relay(producer, port) as source:
        epoch: Any = source.begin(30)
        while not isinstance(next(epoch), Ready):
            pass
        epoch.close()
        assert len(taken(source, 31)) == BATCHES


def test_a_machine_that_says_nothing_is_given_up_and_the_others_go_on(
    numbers: tuple[Producer, RelayPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its lease, however long the stream would wait for one that stands still."""
    monkeypatch.setattr(relay_port, "LEASE_S", 1.0)
    producer, port = numbers
    silent = RemoteEpochs(port.address, facts_of(producer), "silent")
    silent.connect()
    begun = silent.begin(40)
    next(begun)
    with relay(producer, port) as source:
        assert len(taken(source, 40)) == BATCHES
    promptly(lambda: "cluster-silent" not in [c.name for c in producer.status().consumers])
    silent.disconnect()


@pytest.mark.slow
def test_a_process_that_says_nothing_is_an_error_where_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is stopped, or its machine is unreachable: a trial is told after a while, and can iterate again."""
    monkeypatch.setattr(remote_epochs, "SILENT_S", 5.0)
    released = threading.Event()

    def slow() -> Iterator[torch.Tensor]:
        yield torch.zeros(2, dtype=torch.int64)
        released.wait(HANG_S)
        yield torch.ones(2, dtype=torch.int64)

    with served(lambda _epoch: slow()) as (producer, port), relay(producer, port) as source:
        batches = source.begin(0)
        while not isinstance(given_ := next(batches), Ready):
            pass
        given_.batch.fill(np.empty(given_.batch.size, np.uint8))
        until = time.monotonic() + 7.0
        while time.monotonic() < until:  # the loader takes its time, and the process says that it is there
            assert not isinstance(next(batches), Ready)
        port.close()
        with pytest.raises(
            LoaderFailed, match=rf"at {HOST}:{port.address.port} has not answered .*Iterate again"
        ):
            list(batches)
        released.set()


def test_a_port_that_cannot_be_reached_is_named_with_its_host(
    numbers: tuple[Producer, RelayPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall: the trial that attaches there is told, and no relay stays."""
    producer, port = numbers
    with socket.socket() as taken_:
        taken_.bind((HOST, 0))  # nobody listens there
        closed = taken_.getsockname()[1]
        monkeypatch.setenv("TSNB_RUNTIME_DIR", "/nowhere")
        made = StreamRelay(
            "far", Address(HOST, closed, port.address.token), "/nowhere", facts_of(producer), {}
        )
        refusal = made.open()
    assert isinstance(refusal, str)
    assert f"cannot reach TCP port {closed} of {HOST}" in refusal
    assert "firewall" in refusal


# -- strangers, and what makes no sense ---------------------------------------------------------------------


def test_who_does_not_know_the_token_is_told_nothing(numbers: tuple[Producer, RelayPort]) -> None:
    """Nor does it become a consumer; a relay for its part trusts no port that does not know it."""
    producer, port = numbers
    before = len(producer.status().consumers)
    with (
        socket.create_connection((HOST, port.address.port), HANG_S) as sock,
        pytest.raises((BadPeer, OSError)),
    ):
        prove(sock, secrets.token_bytes(TOKEN_BYTES), time.monotonic() + HANG_S)
    assert len(producer.status().consumers) == before


@contextlib.contextmanager
def proven(port: RelayPort) -> Iterator[Link]:
    with socket.create_connection((HOST, port.address.port), HANG_S) as sock:
        prove(sock, port.address.token, time.monotonic() + HANG_S)
        yield Link(sock, FromProducer, SAMPLES, HANG_S)


def until_its_end(link: Link) -> Iterator[Any]:
    """Give all that the other side says before it ends the connection."""
    with contextlib.suppress(ConnectionError):
        while True:
            yield link.hear()


HELLO = ms.Hello("consumer", "fuzz", "a test")
NONSENSE: list[Any] = [
    [ms.Take()],
    [Alive()],
    [HELLO, HELLO],
    [HELLO, MachineParts(b"\0" * 1000, None)],
    [HELLO, ms.Ask(1, 1 << 31, (1 << 31) + 1, True)],
    [HELLO, ms.Welcome("x", 1, 1, 1, None, None, None)],
    [ms.Hello("consumer", "fuzz", "a test", protocol=1)],
]


@pytest.mark.parametrize("said", NONSENSE)
def test_messages_that_make_no_sense_end_the_connection_alone(
    numbers: tuple[Producer, RelayPort], said: list[Any]
) -> None:
    """The stream goes on for others."""
    producer, port = numbers
    with proven(port) as link:
        with contextlib.suppress(OSError):
            for message in said:
                link.say(message)
        heard = list(until_its_end(link))
    assert all("same version" in one.reason for one in heard if isinstance(one, ms.Refused))
    assert isinstance(said[0], ms.Hello) == bool(heard)
    promptly_gone(producer)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_leave_the_stream_as_it_is(
    numbers: tuple[Producer, RelayPort], junk: bytes, framed: bool
) -> None:
    """With a size before them, or without one: the connection ends, or waits for the rest of it."""
    producer, port = numbers
    with proven(port) as link:
        link.say(HELLO)
        link.hear()
        with contextlib.suppress(OSError):
            link.sock.sendall(struct.pack("<I", len(junk)) + junk if framed else junk)
    assert producer.status().state


@given(st.binary(max_size=300))
def test_any_bytes_from_the_streams_side_are_a_bad_peer(junk: bytes) -> None:
    """A relay takes nothing for a message that is none."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(ours, FromProducer, None, 1.0)
        theirs.sendall(struct.pack("<I", len(junk)) + junk)
        with contextlib.suppress(BadPeer):
            assert isinstance(link.hear(), FromProducer)
        theirs.sendall(struct.pack("<I", 1 << 30))
        with pytest.raises(BadPeer, match="a message of"):
            link.hear()


@given(st.none() | st.integers(0, 1 << SAMPLES))
def test_samples_cross_as_masks(part: int | None) -> None:
    """All, some, or none."""
    assert part_of(mask_of(part)) == part
