"""Fuzzing both ends of a live socket: nonsense harms its sender alone, and is an error rather than a hang."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

import tsnb
from tests.system.conftest import Run
from tests.transport.lines import Line, connect
from tsnb.balancing.told import Threads
from tsnb.discovery import registry
from tsnb.discovery.registry import find
from tsnb.extensions.live import LiveNow, LiveTold, SetLive
from tsnb.extensions.metrics import Metrics
from tsnb.growing.selection import RoundsAsked
from tsnb.native.memfd import portable, seal
from tsnb.stream.consumer.losses import Losses
from tsnb.stream.memory.arena import HEADER_BYTES, Arena, header_of
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import encode
from tsnb.stream.protocol.extension import READINGS
from tsnb.stream.protocol.layout import ArrayLeaf, Layout
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.local import listen
from tsnb.stream.transport.sockets import Listener
from tsnb.telemetry.observer import Divided, Rebalance, status
from tsnb.telemetry.trial_readings import (
    BesideReading,
    EndReading,
    OutcomeReading,
    OutcomeTold,
    PlannedReading,
    PlanReading,
    StreamsBeside,
    TrialEnded,
    TrialsPending,
    TrialsPlanned,
)
from tsnb.telemetry.tuning import Tune
from tsnb.text.foreign import pack

pytestmark = pytest.mark.system

FUZZERS = 3
FUZZ_S = 4.0
SEEDS = [1, pytest.param(2, marks=pytest.mark.slow)]
CONSUMER_SEEDS = range(12)

SAID_BY_CONSUMERS: list[ms.Message] = [
    ms.Wants(0, b"\x07"),
    ms.Ask(1),
    ms.Ask(2, 0, 3, True),
    ms.Ask(3, now=True, held=(1, 2)),
    ms.Take(),
    ms.Waiting(),
    ms.Release(0),
    ms.Release(3),
    ms.Leave(),
    ms.Rest(),
    ms.Extended("metrics", pack(Metrics({"loss": 0.5}))),
    ms.Extended("metrics", pack(Metrics({}))),
    ms.Bye(),
]
SAID_BY_OTHERS: list[ms.Message] = [
    ms.Steer({"nobody": "stop"}),
    ms.Extended("ends", pack(TrialEnded(EndReading("nobody", "crashed", 1.5)))),
    ms.Extended("ends", pack(TrialsPending({"nobody": "queued", "no name": "x" * 9999}))),
    ms.Extended("nonsense", b"\x80"),
    ms.Welcome("s", 1, 8, 4, None, None, None),
    ms.Refused("full", "no"),
    ms.LayoutTold(0, b"[]"),
    ms.Batch(0, 0, 0, 0, 8, 1, 0, 0),
    ms.Drawn(1, b"\1\0\0\0"),
    ms.Drawn(1, b"", b"\0\0\x80?"),
    ms.Extended("rounds", pack(Losses(b"\1\0\0\0", b"\0\0\x80?"))),
    ms.EpochStarted(1, 0, 0),
    ms.EpochEnded(0, 4),
    ms.EpochEnded(0, 4, True, "x", "y"),
    ms.Parked(0, 0, 1.0),
    ms.RankGone(0, 0, 0),
    ms.Steered("stop"),
    ms.Stopping("no"),
    ms.Extended(READINGS, b"{}"),
]


def mutated(packet: bytes, rng: random.Random) -> bytes:
    """Return a packet with some of its bytes changed, cut off, doubled or put in."""
    made = bytearray(packet)
    for _ in range(rng.randint(1, 4)):
        where = rng.randrange(len(made) + 1)
        kind = rng.randrange(4)
        if kind == 0 and made:
            made[where % len(made)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del made[where:]
        elif kind == 2:
            made[where:where] = rng.randbytes(rng.randint(1, 9))
        else:
            made += made[: rng.randint(0, 64)]
    return bytes(made) or b"\0"


def any_packet(rng: random.Random) -> bytes:
    """Return something a peer might send that is not what it should."""
    kind = rng.random()
    if kind < 0.5:
        return encode(rng.choice(SAID_BY_CONSUMERS))
    if kind < 0.75:
        return mutated(encode(rng.choice(SAID_BY_CONSUMERS + SAID_BY_OTHERS)), rng)
    if kind < 0.85:
        return encode(rng.choice(SAID_BY_OTHERS))
    if kind < 0.95:
        return rng.randbytes(rng.randint(1, 200))
    return bytes((rng.choice([0x92, 0x9F, 0xDC, 32, 255]),)) + rng.randbytes(
        rng.choice([1000, 100_000, 131_000, 150_000])
    )


def hello(rng: random.Random, token: str) -> bytes:
    role = rng.choice(["consumer", "consumer", "consumer", "observer", "", "leaving", "x"])
    made = encode(
        ms.Hello(role, f"fuzz-{rng.randrange(50)}", "fuzzer", token=token if rng.random() < 0.9 else "")
    )
    return mutated(made, rng) if rng.random() < 0.2 else made


def visit(address: str, token: str, rng: random.Random, half_open: list[Line]) -> None:
    """Connect once and misbehave until shown out, or tired of it."""
    try:
        channel = connect(address)
    except ConnectionError:
        return
    channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with contextlib.suppress(ChannelClosed):
        if rng.random() < 0.85:
            channel.send(hello(rng, token))
        for _ in range(rng.randint(0, 60)):
            packet = any_packet(rng)
            if packet[1:2] == encode(ms.StopProducer())[1:2]:
                continue  # no nonsense, but an order
            if rng.random() < 0.1:
                with contextlib.suppress(OSError):
                    socket.send_fds(channel._socket, [packet], [0] * rng.randint(1, 8))
            else:
                channel.send(packet)
            if rng.random() < 0.3:
                channel.receive()
    if rng.random() < 0.1 and len(half_open) < 10:
        half_open.append(channel)
    else:
        channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_live_producer_outlives_fuzzers_and_its_consumer_gets_every_batch_once(
    run: Run, seed: int, tmp_path: Path
) -> None:
    """Several connections at once, any order, any bytes, descriptors passed along; afterwards all is as before."""
    serving = run(
        """
        loader = DataLoader(Numbers(1600), batch_size=16, num_workers=1)
        with tsnb.serve(loader, name="s", stall_timeout_s=1) as producer:
            say("serving")
            core = producer._core
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.05)
                assert core.failure is None, core.failure
            def idle():
                with core.lock:
                    return not core.sessions and not core.dispatch.members
            while not idle(): time.sleep(0.05)
            with core.lock:
                slots = core.slots
                there = len(slots._stack) + len(slots._issued) + core.dispatch.epochs.kept
                say("missing", core.arena.slots - there)
                say("refused", core.refused)
                say("watched", len(producer._server._guard._visits), len(producer._server._pidfds))
        """,
        str(tmp_path / "done"),
    )
    serving.expect("serving")
    steady = run(
        """
        epochs = 0
        while not os.path.exists(sys.argv[1]):
            order = []
            for images, labels in tsnb.attach("steady"):
                assert torch.equal(images[:, 0].long(), labels)
                order += labels.tolist()
            assert order == list(range(1600)), "every sample once, in order"
            epochs += 1
            say("epoch", epochs)
        """,
        str(tmp_path / "done"),
    )
    steady.expect("epoch")
    process = psutil.Process(serving.process.pid)
    address, token = find("s").address, find("s").token
    half_open: list[Line] = []
    counts: list[int] = []

    def fuzz(number: int, until: float) -> None:
        rng = random.Random(f"{seed}-{number}")
        while time.monotonic() < until:
            visit(address, token, rng, half_open)
            counts.append(number)

    def fuzz_for(seconds: float) -> tuple[int, int]:
        threads = [
            threading.Thread(target=fuzz, args=(n, time.monotonic() + seconds)) for n in range(FUZZERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while half_open:
            half_open.pop().close()
        deadline = time.monotonic() + 60
        while [c.name for c in status("s").consumers] != ["steady"]:
            assert time.monotonic() < deadline, "a fuzzer is still attached"
        counted, end = 0, time.monotonic() + 1.5
        while time.monotonic() < end:  # a worker's pipes come and go with the epochs: the most that there are
            counted = max(counted, len(os.listdir(f"/proc/{process.pid}/fd")))
            time.sleep(0.01)
        return counted, process.memory_info().rss

    warm_fds, warm_rss = fuzz_for(1.0)
    steady.expect("epoch")
    fds, rss = fuzz_for(FUZZ_S)
    steady.expect("epoch")
    assert len(counts) > 50, f"only {len(counts)} visits"
    assert fds <= warm_fds + 2, "descriptors that stay"
    assert rss - warm_rss < 24 << 20
    (tmp_path / "done").touch()
    assert steady.end() == 0, steady.lines
    assert serving.expect("missing") == "0"
    assert int(serving.expect("refused")) > 20
    assert serving.expect("watched") == "0 0"
    assert serving.end() == 0


ODD: list[Any] = [
    None,
    True,
    -1,
    1 << 40,
    1 << 53,
    10**400,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    "x",
    "\ud800\x1b[2J",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": {}},
]
"""Each of them as a field, and as what an object holds."""


def odd_packets(message: ms.Message) -> Iterator[bytes]:
    """Give packets of a kind, each with one field that is odd."""
    kind, *fields = msgspec.msgpack.decode(encode(message))
    for place in range(len(fields)):
        for odd in [*ODD, *({name: odd} for odd in ODD for name in ("steady", "a", "no name"))]:
            with contextlib.suppress(OverflowError, UnicodeError):  # MessagePack has no such number or text
                yield msgspec.msgpack.encode([kind, *fields[:place], odd, *fields[place + 1 :]])


PAYLOADS: list[tuple[str, msgspec.Struct]] = [
    ("ends", TrialEnded(EndReading("a", "crashed", 1.5, 7, "too bad", {"loss": 0.5}, 1.0, 0.5))),
    ("ends", TrialsPending({"a": "queued"}, 3)),
    ("ends", TrialsPlanned(PlanReading((PlannedReading("a", 1.0, 2.0, 0.5),), 4, 60.0, 5.5))),
    ("ends", StreamsBeside((BesideReading("a", 1.5, 3.0),))),
    ("ends", OutcomeTold(OutcomeReading(("a",), {"a": "min"}, "No trial waited.", "Duel d: worse."))),
    ("rounds", RoundsAsked("[2000, 0.0, []]", "recent:5000")),
    ("rounds", Losses(b"\1\0\0\0", b"\0\0\x80?")),
    ("tuning", Tune(1, 1 << 30)),
    ("metrics", Metrics({"loss": 0.5})),
    ("cores", Rebalance(False)),
    ("pacing", Divided("together", {"a": 2.0})),
    ("cores", Threads(4, 1, False)),
    ("live", SetLive("steady", '{"lr": 0.1}')),
    ("live", LiveNow('{"lr": "0.1"}')),
    ("live", LiveTold(7, "{}", "ValueError", "lr=3 is invalid.")),
]
"""One of each that an extension is told."""


def odd_inside(value: Any) -> Iterator[Any]:
    """Give a value with each of its parts in turn, and the whole, replaced by each odd one."""
    yield from ODD
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, part in list(parts):
        for odd in odd_inside(part):
            made = value.copy()
            made[place] = odd
            yield made
    if isinstance(value, dict):
        yield from ({**value, odd: 1.0} for odd in ODD if not isinstance(odd, (list, dict)))


def odd_payloads() -> Iterator[bytes]:
    """Give packets for extensions, each with one part that is odd."""
    for name, payload in PAYLOADS:
        for odd in odd_inside(msgspec.to_builtins(payload)):
            with contextlib.suppress(OverflowError, UnicodeError):  # MessagePack has no such number or text
                yield encode(ms.Extended(name, msgspec.msgpack.encode(odd)))


SAYS: dict[str, list[ms.Message]] = {
    "": [ms.Hello("consumer", "a", "odd")],
    "consumer": [ms.Device(refusal="no peer"), ms.Progress(4, 1, 2, 3), ms.Rest(), ms.Got(4)],
    "observer": [
        ms.Steer({}),
    ],
}


@pytest.mark.parametrize("role", SAYS)
def test_a_packet_with_a_value_of_any_kind_ends_its_own_connection_at_most(role: str) -> None:
    """Numbers that are no floats, objects in objects, texts for numbers: in every field of what it may say."""
    loader: Any = DataLoader(torch.arange(64.0), batch_size=4, num_workers=1)  # type: ignore[arg-type]
    with (
        tsnb.serve(loader, name="s", stall_timeout_s=1) as producer,
        tsnb.attach("steady", stream="s") as steady,
    ):
        entry, others = find("s"), deque[Line](maxlen=16)  # the oldest one goes
        taken = iter(steady)
        next(taken)
        packets = [packet for message in SAYS[role] for packet in odd_packets(message)]
        for number, packet in enumerate([*packets, *(odd_payloads() if role else ())]):
            channel = connect(entry.address)
            others.append(channel)
            with contextlib.suppress(ChannelClosed):
                if role:
                    channel.send(encode(ms.Hello(role, f"odd-{number}", "odd", token=entry.token)))
                channel.send(packet)
                channel.receive()
            assert producer._core.failure is None, producer._core.failure
        while others:
            others.popleft().close()
        status("s")
        producer.tune(workers=1)
        assert sum(len(batch) for batch in taken) == 60
        for _ in range(2):
            assert sorted(n for batch in steady for n in batch.tolist()) == list(range(64))
        assert producer._core.failure is None and producer._server.is_alive()


# -- the consumer's side ------------------------------------------------------------------------------------


@contextlib.contextmanager
def fake_producer(name: str) -> Iterator[Listener]:
    """Enter a producer that is none; `attach` finds it and talks to the test."""
    address = registry.new_address(name)
    listener = listen(address)
    entry = registry.register(name, address, "a fake")
    try:
        yield listener
    finally:
        registry.unregister(entry)
        listener.close()


def accepted(listener: Listener, timeout_s: float = 60.0) -> Line:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        channel = listener.accept()
        if channel is not None:
            return cast("Line", channel)
        time.sleep(0.01)
    raise AssertionError("nobody came")


ATTACH = """
    for attempt in range(int(sys.argv[1])):
        say("attaching")
        try:
            for batch in tsnb.attach("c", stream="fake"): pass
            say("outcome", "ended")
        except tsnb.errors.TsnbError as error:
            say("outcome", type(error).__name__, error)
        except Exception:
            import traceback
            say("outcome", "crash", traceback.format_exc().replace(chr(10), " | "))
        tsnb.stream.consumer.detach_all()
    say("descriptors", len(os.listdir("/proc/self/fd")))
"""
GOOD = Layout(
    ["dict", ["x", "y"], ["a", "tensor"], ["v"]], (ArrayLeaf("tensor", "float32", (4, 2), 0),), True
)
BAD_LAYOUTS = [
    b"{}",
    b"[]",
    b"[[],[],false]",
    b'[["list"],[["tensor","float32",[4],0]],false]',
    b'[["a","tensor"],[],false]',
    b'[["a","tensor"],[["tensor","float32",[4],99999999]],false]',
    b'[["a","tensor"],[["tensor","float32",[1099511627776,1099511627776],0]],false]',
    b'[["a","tensor"],[["tensor","float32",[0,1208925819614629174706176],0]],false]',
    b'[["a","tensor"],[["tensor","Tensor",[4],0]],false]',
    b'[["a","numpy"],[["numpy","O",[4],0]],false]',
    b'[["a","numpy"],[["numpy","no such",[4],0]],false]',
    b'[["dict",["x"]],[],false]',
    b'[["dict",["x","x"],["a","tensor"]],[["tensor","float32",[4],0]],false]',
    b'[["dict",[["x"]],["a","tensor"]],[["tensor","float32",[4],0]],false]',
    b'[["named","os","stat_result",["no field!"],["a","tensor"]],[["tensor","float32",[4],0]],false]',
    b'[["data",1,2,3],[],false]',
    b'[["what"],[],false]',
    b'["a",[],false]',
    b'[["v"],[],false]',
    b"[" * 10_000,
    b'[["a","tensor"],[["tensor","qint8",[4],0]],false]',
    b'[["a","tensor"],[["tensor","quint4x2",[4],0]],false]',
    b'[["a","tensor"],[["tensor","float32",["4"],0]],false]',
    b'[["a","numpy"],[["numpy","|V0",[4],0]],false]',
    b'[["named","x","Y",["_hidden"],["a","tensor"]],[["tensor","qint8",[4],0]],false]',
    b'[["data","tsnb.discovery.registry","Entry",["__class__"],["a","tensor"]],[["tensor","float32",[4],0]],false]',
    b'["' + b'["list",' * 300 + b'["a","tensor"]' + b"]" * 300 + b',[["tensor","float32",[4],0]],false]',
]


def welcome() -> bytes:
    return encode(ms.Welcome("fake", os.getpid(), 8, 4, 4, None, None))


def arena_with(values: bytes) -> Arena:
    arena = Arena.create()
    arena.fit(4, 4096)
    arena.buffer[arena.offset_of(0) + 64 : arena.offset_of(0) + 64 + len(values)] = values
    return arena


def in_an_epoch(channel: Line, arena: Arena) -> None:
    """Do what a producer does until its consumer waits for the first batch."""
    channel.wait(60.0)
    channel.receive()  # its Hello
    channel.send(welcome(), arena.fd)
    channel.wait(60.0)
    channel.send(encode(ms.EpochStarted(1, 0, 0)))


def test_a_consumer_says_what_is_wrong_with_each_layout_and_goes_on_living(run: Run) -> None:
    """Malformed descriptions of a batch: no crash, no object made from bytes, no hang."""
    with fake_producer("fake") as listener:
        script = run(ATTACH, str(len(BAD_LAYOUTS)))
        arena = arena_with(b"[1]")
        for layout in BAD_LAYOUTS:
            script.expect("attaching")
            channel = accepted(listener)
            in_an_epoch(channel, arena)
            for packet in (
                encode(ms.LayoutTold(0, layout)),
                encode(ms.Batch(0, 0, 0, 0, 4, 1, 64, 3)),
                encode(ms.EpochEnded(0, 1)),
            ):
                with contextlib.suppress(ChannelClosed):
                    channel.send(packet)
            outcome = script.expect("outcome")
            assert outcome.startswith("RemoteProtocolError"), (layout, outcome)
            channel.close()
        arena.close()
        assert script.end() == 0


@pytest.mark.parametrize(
    "batch",
    [
        ms.Batch(9, 0, 0, 0, 4, 1, 64, 3),
        ms.Batch(0, 4, 0, 0, 4, 1, 64, 3),
        ms.Batch(0, 0, 0, 0, 4, 1, 2**40, 3),
        ms.Batch(0, 0, 0, 0, 4, 1, 64, 2**31),
        ms.Batch(0, 0, 0, 0, 4, 1, 64, 2),
        ms.Batch(0, 0, 0, 0, 4, 1, 128, 4),
    ],
    ids=[
        "unknown layout",
        "no such slot",
        "values far away",
        "values too long",
        "values cut off",
        "no values",
    ],
)
def test_a_consumer_says_what_is_wrong_with_a_batch(run: Run, batch: ms.Batch) -> None:
    """Numbers that point outside."""
    with fake_producer("fake") as listener:
        script = run(ATTACH, "1")
        arena = arena_with(b"[1]")
        channel = accepted(listener)
        in_an_epoch(channel, arena)
        channel.send(encode(ms.LayoutTold(0, GOOD.encode())))
        channel.send(encode(batch))
        assert script.expect("outcome").startswith("RemoteProtocolError")
        channel.close()
        arena.close()


def test_a_consumer_meets_false_welcomes(run: Run) -> None:
    """No arena, a descriptor that is none, another message, garbage, silence at once, a header that lies."""
    liar = os.memfd_create("liar", os.MFD_ALLOW_SEALING)
    os.pwrite(liar, header_of((1 << 31) - 1, (1 << 64) - 1).ljust(HEADER_BYTES, b"\0"), 0)
    seal(liar)
    read, write = os.pipe()
    arena = Arena.create()
    attempts: list[tuple[list[tuple[bytes, int | None]], str]] = [
        ([(welcome(), None)], "RemoteProtocolError"),
        ([(encode(ms.Take()), arena.fd)], "RemoteProtocolError"),
        ([(b"\xff", arena.fd)], "RemoteProtocolError"),
        ([(encode(ms.Refused("full", "no room")), None)], "JoinRefused no room"),
        ([], "ProducerGone"),
        ([(welcome(), arena.fd), (encode(ms.Batch(0, 0, 0, 0, 4, 1, 64, 3)), None)], "RemoteProtocolError"),
        ([(welcome(), read), (encode(ms.Batch(0, 0, 0, 0, 4, 1, 64, 3)), None)], "RemoteProtocolError"),
        ([(welcome(), liar), (encode(ms.Batch(0, 0, 0, 0, 4, 1, 64, 3)), None)], "ArenaFull"),
    ]
    with fake_producer("fake") as listener:
        script = run(ATTACH, str(len(attempts)))
        for packets, wanted in attempts:
            script.expect("attaching")
            channel = accepted(listener)
            channel.wait(60.0)
            channel.receive()
            with contextlib.suppress(ChannelClosed):  # it may hang up at the first of them
                for packet, fd in packets:
                    channel.send(packet, fd)
                    if fd is not None:
                        channel.send(encode(ms.EpochStarted(1, 0, 0)))
                        channel.send(encode(ms.LayoutTold(0, GOOD.encode())))
            if not packets:
                channel.close()
            outcome = script.expect("outcome")
            assert outcome.startswith(wanted), (packets, outcome)
            channel.close()
        first = int(script.expect("descriptors"))
        assert first < 30, "none of what came along stays open"
    for fd in (liar, read, write):
        os.close(fd)
    arena.close()


def test_a_consumer_does_not_map_memory_that_can_be_cut_short(run: Run) -> None:
    """Its producer cuts it while the batch is being read: that would end the consumer by SIGBUS."""
    if portable():
        pytest.skip("POSIX shared memory has no seals")
    shrinks = os.memfd_create("shrinks", os.MFD_ALLOW_SEALING)
    os.pwrite(shrinks, header_of(4, 4096).ljust(HEADER_BYTES + 64, b"\0") + b"[1]", 0)
    os.ftruncate(shrinks, HEADER_BYTES + 4 * 4096)
    with fake_producer("fake") as listener:
        script = run(
            """
            try:
                for batch in tsnb.attach("c", stream="fake"):
                    say("mapped")
                    sys.stdin.readline()
                    say("sum", batch["x"].sum())
            except tsnb.errors.TsnbError as error:
                say("outcome", type(error).__name__, error)
            """,
            stdin=True,
        )
        channel = accepted(listener)
        channel.wait(60.0)
        channel.receive()
        channel.send(welcome(), shrinks)
        channel.send(encode(ms.EpochStarted(1, 0, 0)))
        channel.send(encode(ms.LayoutTold(0, GOOD.encode())))
        channel.send(encode(ms.Batch(0, 0, 0, 0, 4, 1, 64, 3)))
        try:
            assert "can still shrink" in script.expect("outcome RemoteProtocolError")
        except AssertionError:  # it was mapped: see what becomes of it
            os.ftruncate(shrinks, 0)
            script.answer("go on")
            assert script.end() >= 0, "ended by a signal"
            raise
        finally:
            os.close(shrinks)
            channel.close()


def test_a_consumer_outlives_a_producer_that_sends_anything(run: Run) -> None:
    """Random and mutated packets in any order, then the end: a clear error each time, never a crash or a hang."""
    rng = random.Random(7)
    arena = arena_with(b"[1]")
    good: list[ms.Message] = [
        ms.LayoutTold(0, GOOD.encode()),
        ms.Batch(0, 0, 0, 0, 4, 1, 64, 3),
        ms.Batch(0, 1, 0, 1, 4, 2, 64, 0),
        *SAID_BY_OTHERS,
        *SAID_BY_CONSUMERS,
    ]
    with fake_producer("fake") as listener:
        script = run(ATTACH, "150")
        for _ in range(150):
            script.expect("attaching")
            channel = accepted(listener)
            with contextlib.suppress(ChannelClosed):
                in_an_epoch(channel, arena)
                for _ in range(rng.randint(1, 12)):
                    packet = encode(rng.choice(good))
                    channel.send(packet if rng.random() < 0.6 else mutated(packet, rng))
            channel.close()
            outcome = script.expect("outcome")
            word = outcome.split()[0]
            known = (
                "RemoteProtocolError",
                "ProducerGone",
                "StreamStopped",
                "JoinRefused",
                "LoaderFailed",
                "ConsumerTimedOut",
                "StopRequested",
                "ended",
            )
            assert word in known, outcome
        assert int(script.expect("descriptors")) < 30
    arena.close()


def test_an_entry_that_points_nowhere_is_a_clear_error(run: Run) -> None:
    """The signpost stands, and nobody listens: the socket died before its process."""
    entry = registry.register("fake", f"tsnb-{os.getuid()}-{secrets.token_hex(8)}", "a fake")
    try:
        assert run(ATTACH, "1").expect("outcome").startswith("ProducerGone")
    finally:
        registry.unregister(entry)
