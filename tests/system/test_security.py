"""Promise 7 with real sockets: only you, nothing unpickled, and whoever breaks the protocol harms itself alone."""

from __future__ import annotations

import ast
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from tests.system.conftest import Run
from tests.system.scripts import ROOT, Script
from tests.transport.lines import Line, connect, framed
from tsnb.discovery import registry
from tsnb.discovery.registry import find
from tsnb.errors import JoinRefused, TsnbError
from tsnb.extensions.metrics import Metrics
from tsnb.native.memfd import portable
from tsnb.stream.producer.guard import BURST, HELLO_S, MAX_OBSERVERS, MAX_STRANGERS
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode, encode
from tsnb.stream.protocol.extension import READINGS
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.telemetry.metrics import LONGEST_NAME
from tsnb.telemetry.observer import Observer, status
from tsnb.text.foreign import pack

pytestmark = pytest.mark.system

SERVE = """
    # an epoch that no test sees the end of
    producer = tsnb.serve(DataLoader(Numbers(64000000), batch_size=64), name="s", window=4, late_join=0.0)
    core = producer._core
    say("serving")
    while not os.path.exists(sys.argv[1]):
        say("refused", core.refused)
        time.sleep(0.05)
"""
STEADY = """
    count = 0
    for images, labels in tsnb.attach(sys.argv[1] if len(sys.argv) > 1 else "steady"):
        assert torch.equal(images[:, 0].long(), labels)
        count += 1
        if count % 20 == 0: say("batches", count)
        time.sleep(0.001)
"""


@pytest.fixture
def serving(run: Run, tmp_path: Path) -> Script:
    script = run(SERVE, str(tmp_path / "never"))
    script.expect("serving")
    return script


def refused(serving: Script, at_least: int, timeout_s: float = 60.0) -> int:
    """Wait until so many connections were refused; return how many."""
    deadline = time.monotonic() + timeout_s
    while (count := int(serving.expect("refused"))) < at_least:
        assert time.monotonic() < deadline, f"{count} connections refused, not {at_least}"
    return count


def hello(role: str, name: str, origin: str = "a test", stream: str = "s") -> ms.Hello:
    """Return the first message of one that has read the producer's entry."""
    return ms.Hello(role, name, origin, token=find(stream).token)


def attached(name: str) -> Line:
    """Return the connection of a consumer that has been welcomed and does nothing of itself."""
    channel = connect(find("s").address)
    channel.send(encode(hello("consumer", name)))
    assert channel.wait(60.0)
    packet, fd = channel.receive_with_fd()
    assert packet is not None and isinstance(decode(packet), ms.Welcome)
    assert fd is not None
    os.close(fd)
    return channel


def drained(channel: Line, timeout_s: float = 60.0) -> bool:
    """Read until the other end closes; return whether it does in time."""
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            channel.wait(0.1)
            channel.receive()
    except ChannelClosed:
        return True
    return False


def flood(channel: Line, packet: bytes, most: int) -> int:
    """Send a packet over and over, reading nothing; return how often until the other end closed."""
    for sent in range(most):
        try:
            while not channel.send(packet):
                time.sleep(0.001)
        except ChannelClosed:
            return sent
    return most


def take_for_ever(channel: Line) -> None:
    """Take every batch that comes, and release none."""
    while True:
        assert channel.wait(60.0)
        packet = channel.receive()
        if packet is not None and isinstance(decode(packet), ms.Batch):
            channel.send(encode(ms.Take()))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def closing(channels: list[Line]) -> Iterator[None]:
    try:
        yield
    finally:
        for channel in channels:
            channel.close()


@pytest.mark.parametrize(
    "part",
    [
        "stream/protocol",
        "stream/transport",
        "stream/memory",
        "stream/consumer",
        "telemetry",
        "discovery",
        "stream/producer/server.py",
        "caching/shard.py",
        "caching/shard_wire.py",
        "caching/lent.py",
        "caching/token_listener.py",
        "cluster/relay_port.py",
        "cluster/relay_wire.py",
    ],
)
def test_what_receives_from_sockets_cannot_unpickle(part: str) -> None:
    """None of these imports anything that makes objects out of bytes, nor do the producer's other receiving parts."""
    where = ROOT / "tsnb" / part
    files = [where] if where.is_file() else sorted(where.rglob("*.py"))
    if part == "stream/producer/server.py":
        producer = ROOT / "tsnb" / "stream" / "producer"
        files += [producer / f"{name}.py" for name in ("guard", "session", "core", "welcoming")]
        files += sorted((ROOT / "tsnb" / "stream" / "decisions").glob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            imported = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in imported:
                assert name.split(".")[0] not in {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, file
            called = node.func if isinstance(node, ast.Call) else None
            word = getattr(called, "id", None) or getattr(called, "attr", None)
            assert word not in {"eval", "exec", "loads_pickle", "import_module", "__import__"}, (file, word)
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                assert (called.value.id, called.attr) not in {("torch", "load"), ("np", "load")}, file


def test_malformed_and_misplaced_messages_are_counted_and_end_the_connection(
    serving: Script, run: Run
) -> None:
    """Every kind of nonsense, once; the consumer beside them goes on."""
    steady = run(STEADY)
    steady.expect("batches")
    ours = hello("consumer", "x")
    nonsense = [
        b"\xff",
        b"\x92\x01\x01",
        encode(ms.Take()),  # before the Hello
        encode(ms.Welcome("s", 1, 1, 1, None, None, None)),
        encode(structs.replace(ours, role="leaving")),
        encode(structs.replace(ours, role="")),
        encode(structs.replace(ours, name="../../etc")),
        encode(structs.replace(ours, name="x" * 100_000)),
        encode(structs.replace(ours, rank=2, world_size=2)),
        encode(structs.replace(ours, rank=-1, world_size=0)),
        b"\x93" + b"x" * 150_000,  # larger than a packet of ours
    ]
    for packet in nonsense:
        channel = connect(find("s").address)
        channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with closing([channel]):
            channel.send(packet)
            assert drained(channel), packet[:40]
    far = [encode(ms.Ask(1, 2**32 - 1)), encode(ms.Ask(1, 0, 2**32 - 1, True))]
    for later in (
        encode(ours),
        encode(ms.StopProducer()),
        encode(ms.Extended(READINGS, b"{}")),
        b"",
        b"\x63",
        *far,
    ):
        channel = attached("odd")
        with closing([channel]):
            channel.send(later or b"\0")
            assert drained(channel), later[:40]
    observer = connect(find("s").address)
    with closing([observer]):
        observer.send(encode(hello("observer", "o")))
        observer.send(encode(ms.Take()))
        assert drained(observer)
    assert refused(serving, 19) == 19
    steady.expect("batches")


def test_who_does_not_know_the_entrys_token_is_told_nothing_and_gets_nothing(serving: Script) -> None:
    """A process of this user that sees the socket and not the directory: another container with the same network."""
    entry = find("s")
    for role in ("consumer", "observer"):
        for token in ("", entry.token[:-1], "x" * 32, "\ud800"):
            channel = connect(entry.address)
            with closing([channel]):
                channel.send(encode(ms.Hello(role, "x", "a test", token=token)))
                assert channel.wait(60.0)
                packet, fd = channel.receive_with_fd()
                answer = decode(packet or b"")
                assert isinstance(answer, ms.Refused) and "TSNB_RUNTIME_DIR" in answer.reason
                assert fd is None and "'s'" not in answer.reason
                assert drained(channel)
    assert refused(serving, 8) == 8
    assert status("s").consumers == ()


def test_numbers_and_texts_of_any_size_are_shown_cut(serving: Script) -> None:
    """What a peer says about itself reaches observers: short, printable; nan and inf as they are."""
    channel = connect(find("s").address)
    with closing([channel]):
        channel.send(encode(hello("consumer", "x", "\x1b[31m" + "o" * 1000)))
        numbers = {"big": (1 << 64) - 1, "nan": math.nan, "inf": math.inf, "n" * 500: 1}
        channel.send(encode(ms.Extended("metrics", pack(Metrics(numbers)))))
        observer, until_s = Observer("s"), time.monotonic() + 120
        try:
            while (
                not (reading := observer.read(5.0))
                or not reading.consumers
                or not reading.consumers[0].metrics
            ):
                assert time.monotonic() < until_s, "its numbers never came"
        finally:
            observer.close()
        shown = {name: str(number) for name, number in reading.consumers[0].metrics.items()}
        assert shown == {"big": str(float(1 << 64)), "nan": "nan", "inf": "inf", "n" * LONGEST_NAME: "1.0"}
        other = connect(find("s").address)
        with closing([other]):
            other.send(encode(hello("consumer", "x", "second")))
            assert other.wait(60.0)
            answer = decode(other.receive() or b"")
            assert isinstance(answer, ms.Refused)
            assert "?[31mooo" in answer.reason and len(answer.reason) < 500


@pytest.mark.parametrize(
    "message",
    [ms.Take(), ms.Release(7), ms.Ask(1), ms.Extended("metrics", pack(Metrics({"x" * 1000: 1.0})))],
    ids=lambda m: type(m).__name__,
)
def test_a_flooding_peer_is_cut_off_and_the_others_go_on(
    serving: Script, run: Run, message: ms.Message
) -> None:
    """It sends what no grant asks for, as fast as it can; it is counted and dropped, and nobody starves."""
    steady = run(STEADY)
    steady.expect("batches")
    channel = attached("flood")
    with closing([channel]):
        sent = flood(channel, encode(message), 100 * BURST)
        assert sent < 20 * BURST, "cut off"
    steady.expect("batches")
    assert refused(serving, 1) == 1


@pytest.mark.slow
def test_who_takes_and_never_releases_is_cut_off_before_the_slots_run_out(serving: Script, run: Run) -> None:
    """It keeps to the protocol but for that one thing; twenty of them, one after the other, cost nobody a slot."""
    steady = run(STEADY)
    steady.expect("batches")
    for turn in range(20):
        channel = attached("hoarder")
        with closing([channel]):
            # a little ahead of the others: from its start the epoch cannot be had any more
            now = status("s")
            channel.send(encode(ms.Ask(1, now.epoch, now.published + 50, exact=True)))
            with pytest.raises(ChannelClosed):
                take_for_ever(channel)
        assert refused(serving, turn + 1) == turn + 1
        before = status("s").batches
        deadline = time.monotonic() + 60
        while status("s").batches < before + 20:
            assert time.monotonic() < deadline, "the one who behaves stands still"
            time.sleep(0.01)
        steady.expect("batches")


@pytest.mark.slow
def test_flooding_while_reading_nothing_cannot_grow_the_producer(serving: Script) -> None:
    """An observer that asks for a thousand stops and never reads, one that never reads at all."""
    silent = [connect(find("s").address) for _ in range(5)]
    with closing(silent):
        for channel in silent:
            channel.send(encode(hello("observer", "o")))
        process = psutil.Process(serving.process.pid)
        time.sleep(1.0)
        before = process.memory_info().rss
        victim = attached("victim")
        with closing([victim]):
            flood(silent[0], encode(ms.Steer({"victim": "stop"})), 100 * BURST)
        time.sleep(2.0)
        assert process.memory_info().rss - before < 8 << 20
    assert refused(serving, 1) >= 1


@pytest.mark.slow
def test_who_never_says_hello_is_dropped_and_a_flood_of_connections_is_bounded(
    serving: Script, run: Run
) -> None:
    """Half-open connections cost a descriptor each for a few seconds; a newcomer finds its place among them."""
    before = descriptors(serving.process.pid)
    count = MAX_STRANGERS + 40
    half_open: list[Line] = []
    with closing(half_open):
        half_open.extend(connect(find("s").address) for _ in range(count))
        run(STEADY).expect("batches")
        assert descriptors(serving.process.pid) <= before + MAX_STRANGERS + 10
        deadline = time.monotonic() + HELLO_S + 60
        assert all(drained(channel, deadline - time.monotonic()) for channel in half_open)
        assert refused(serving, count) == count


def test_more_observers_than_a_stream_takes_are_told_so(serving: Script) -> None:
    """Each costs the producer four readings a second."""
    observers = [Observer("s") for _ in range(MAX_OBSERVERS)]
    try:
        assert observers[-1].read(10.0) is not None
        extra = Observer("s")
        try:
            with pytest.raises(JoinRefused, match="Close some panels"):
                extra.read(5.0)
        finally:
            extra.close()
    finally:
        for observer in observers:
            observer.close()
    assert refused(serving, 0) == 0, "a refusal in good order is no breach"


def test_descriptors_that_are_passed_along_are_closed_at_once(serving: Script) -> None:
    """SCM_RIGHTS garbage, a thousand of them: none stays open in the producer, whose own come and go."""
    channel = attached("fds")
    with closing([channel]):
        before = descriptors(serving.process.pid)
        read, write = os.pipe()
        try:
            for _ in range(100):
                socket.send_fds(channel._socket, [framed(channel, encode(ms.Waiting()))], [read] * 10)
                time.sleep(0.002)
            time.sleep(0.5)
            assert descriptors(serving.process.pid) < before + 10
        finally:
            os.close(read)
            os.close(write)
    assert refused(serving, 0) == 0


def test_nobody_who_attaches_can_cut_the_shared_memory_short(run: Run) -> None:
    """A truncated file would end every process that reads it, by SIGBUS."""
    if portable():
        pytest.skip("POSIX shared memory has no seals on Linux; macOS sizes it once")
    script = run(
        """
        with tsnb.serve([torch.zeros(3)] * 3, name="s") as producer:
            fd = producer._core.arena.fd  # what each of them is sent
            for size in (0, 1 << 40):
                try: os.ftruncate(fd, size)
                except PermissionError: say("sealed")
        """
    )
    script.expect("sealed")
    script.expect("sealed")


@pytest.mark.slow
def test_a_producer_that_takes_no_connection_is_an_error_not_a_hang() -> None:
    """Its queue is full and it stands still: SIGSTOP, a debugger."""
    address = registry.new_address("still")
    stream = address.startswith("/")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if stream else socket.SOCK_SEQPACKET) as listener:
        listener.bind(address if stream else "\0" + address)
        listener.listen(1)
        waiting = [connect(address) for _ in range(2)]
        with closing(waiting), pytest.raises(TsnbError, match="has accepted no connection"):
            connect(address)
    Path(address).unlink(missing_ok=True)
