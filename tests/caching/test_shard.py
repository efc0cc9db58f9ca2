"""The port at which a machine lends memory: who gets in, what is refused, and what a worker makes of any answer."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.promises import promptly
from tsnb.caching import lent, shard, shard_wire
from tsnb.caching.encoding import digest
from tsnb.caching.lent import LentMemory, ShardLink
from tsnb.caching.memory import ASSIGNED, AWAY, GIVEN, WHOLE, SampleMemory
from tsnb.caching.shard import Shard
from tsnb.caching.shard_wire import DONE, MOST_PROBE_BYTES, PUT, TAKE, TOKEN_BYTES, BadPeer
from tsnb.caching.token_listener import MOST_STRANGERS

HOST = "127.0.0.1"
ROOM = 1 << 20
RECORD = bytes(range(256)) * 40
HANG_S = 60.0


def later() -> float:
    return time.monotonic() + HANG_S


@pytest.fixture(scope="module")
def token() -> bytes:
    return secrets.token_bytes(TOKEN_BYTES)


@pytest.fixture(scope="module")
def one(token: bytes) -> Iterator[Shard]:
    """A shard for many tests, which keeps what it has however short memory is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "_watch_memory", lambda _: None)
        made = Shard(HOST, ROOM, token)
    yield made
    made.close()


@pytest.fixture
def link(one: Shard, token: bytes) -> Iterator[ShardLink]:
    with contextlib.closing(ShardLink(HOST, one.port, token, later())) as made:
        made.clear(later())
        yield made


# -- what a worker does -------------------------------------------------------------------------------------


def test_a_sample_comes_back_as_it_was_put_and_only_as_a_whole(link: ShardLink, one: Shard) -> None:
    """Another size, another number and one behind the room are not there; what was cleared is not there either."""
    assert link.put(7, 64, RECORD, later())
    back = link.take(7, len(RECORD), later())
    assert back is not False
    assert back.tobytes() == RECORD
    assert link.take(7, len(RECORD) - 1, later()) is False
    assert link.take(8, len(RECORD), later()) is False
    assert not link.put(9, ROOM - len(RECORD) + 1, RECORD, later())
    assert link.take(9, len(RECORD), later()) is False
    assert one.used_bytes == 64 + len(RECORD)
    assert not link.put(9, ROOM, bytes(ROOM), later()), "what is not kept is read to its end all the same"
    assert link.put(9, 0, b"", later())
    link.clear(later())
    assert one.used_bytes == 0
    assert link.take(7, len(RECORD), later()) is False
    probed = link.probe(1000, later())
    assert probed is not False
    assert probed.nbytes == 1000


def test_memory_that_is_given_back_takes_what_lies_last_and_is_not_filled_again(token: bytes) -> None:
    """The densest samples lie first."""
    made = Shard(HOST, ROOM, token)
    with contextlib.closing(made), contextlib.closing(ShardLink(HOST, made.port, token, later())) as link:
        for number in range(10):
            assert link.put(number, number * len(RECORD), RECORD, later())
        made.give_back(4 * len(RECORD) + 1)
        there = [link.take(number, len(RECORD), later()) is not False for number in range(10)]
        assert there == [True] * 5 + [False] * 5
        assert not link.put(9, 9 * len(RECORD), RECORD, later())
        made.give_back(ROOM)
        assert made.used_bytes == 0
        assert link.take(0, len(RECORD), later()) is False


def test_a_shard_gives_memory_back_by_itself(token: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine's gets short."""
    made = Shard(HOST, ROOM, token)
    with contextlib.closing(made), contextlib.closing(ShardLink(HOST, made.port, token, later())) as link:
        assert link.put(0, 0, RECORD, later())
        monkeypatch.setattr(shard, "wanted_back", lambda used, _stalled: used)
        promptly(lambda: made.used_bytes == 0)
        assert link.take(0, len(RECORD), later()) is False


# -- who gets in --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stranger(port: int) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, port), HANG_S) as sock:
        yield sock


def greeted(sock: socket.socket) -> bytes:
    return shard_wire.read(sock, 40, later())


def test_who_does_not_know_the_token_gets_no_word_but_the_challenge(
    one: Shard, link: ShardLink, token: bytes
) -> None:
    """Nor who says again what another has said, sends the challenge back, or asks before it has proven anything."""
    assert link.put(7, 0, RECORD, later())
    with pytest.raises((BadPeer, OSError)):
        ShardLink(HOST, one.port, secrets.token_bytes(TOKEN_BYTES), later())
    nonce = secrets.token_bytes(32)
    with stranger(one.port) as sock:
        proof = shard_wire._mac(token, b"worker", greeted(sock)[8:], nonce)
    ask = struct.pack("<BQQQ", TAKE, 7, 0, len(RECORD))
    for said in (nonce + proof, bytes(64), ask * 3):
        with stranger(one.port) as sock:
            greeted(sock)
            sock.sendall(said)
            assert ends(sock) == b""
    with stranger(one.port) as sock:
        challenge = greeted(sock)[8:]
        sock.sendall(challenge + shard_wire._mac(token, b"shard", challenge, challenge))
        assert ends(sock) == b""


def ends(sock: socket.socket) -> bytes:
    """Return what comes until the other side ends the connection, which it has to."""
    sock.settimeout(HANG_S)
    said = b""
    with contextlib.suppress(ConnectionError):
        while came := sock.recv(4096):
            said += came
    return said


def test_a_shard_that_does_not_know_the_token_is_told_no_sample(token: bytes) -> None:
    """Somebody listens where one was: the worker sends its proof, which is good for nothing, and goes."""
    heard: list[bytes] = []

    def play(sock: socket.socket) -> None:
        sock.sendall(b"tsnb-l1\0" + bytes(32))
        heard.append(shard_wire.read(sock, 64, later()))
        sock.sendall(bytes(32))
        heard.append(ends(sock))

    with answering(play) as port, pytest.raises(BadPeer, match="token"):
        ShardLink(HOST, port, token, later())
    assert heard[1:] == [b""]
    another = answering(lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request" * 4))
    with another as port, pytest.raises(BadPeer, match="not a shard"):
        ShardLink(HOST, port, token, later())


@contextlib.contextmanager
def answering(play: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen, and do something with each connection in turn; give the port."""
    with socket.create_server((HOST, 0)) as listener:

        def work() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock, contextlib.suppress(OSError):
                        play(sock)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(HANG_S)
    assert not thread.is_alive()


def test_strangers_that_say_nothing_are_few_and_do_not_stay(
    one: Shard, link: ShardLink, token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is not even greeted; who has proven to be a worker is not disturbed. Later others get in again."""
    assert link.put(1, 0, RECORD, later())
    with monkeypatch.context() as patient, contextlib.ExitStack() as end:
        patient.setattr(shard_wire, "HANDSHAKE_S", HANG_S)
        first, *_, last = [end.enter_context(stranger(one.port)) for _ in range(MOST_STRANGERS + 1)]
        assert ends(last) == b""
        assert len(greeted(first)) == 40
        assert link.take(1, len(RECORD), later()) is not False
    promptly(lambda: one._listener._strangers == 0)
    monkeypatch.setattr(shard_wire, "HANDSHAKE_S", 0.2)
    with stranger(one.port) as silent:
        assert len(ends(silent)) == 40
    monkeypatch.undo()
    with contextlib.closing(ShardLink(HOST, one.port, token, later())) as again:
        assert again.take(1, len(RECORD), later()) is not False


# -- what makes no sense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        (0, 0, 0, 0),
        (9, 0, 0, 0),
        (255, 1, 1, 1),
        (TAKE, 1, 0, ROOM + 1),
        (TAKE, 1, 0, 2**64 - 1),
        (PUT, 1, 0, 2**63),
        (PUT, 1, ROOM + 1, 1),
        (PUT, 1, 2**64 - 1, 1),
        (shard_wire.PROBE, 0, 0, MOST_PROBE_BYTES + 1),
    ],
)
def test_a_request_that_makes_no_sense_ends_the_connection(
    one: Shard, link: ShardLink, token: bytes, request_: tuple[int, int, int, int]
) -> None:
    """Before memory is taken for what it says; others notice nothing."""
    assert link.put(1, 0, RECORD, later())
    with contextlib.closing(ShardLink(HOST, one.port, token, later())) as bad:
        bad._sock.sendall(struct.pack("<BQQQ", *request_))
        assert ends(bad._sock) == b""
    assert link.take(1, len(RECORD), later()) is not False


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(proven=st.booleans(), said=st.binary(max_size=400))
def test_any_bytes_leave_a_shard_as_it_is(
    one: Shard, link: ShardLink, token: bytes, proven: bool, said: bytes
) -> None:
    """From a stranger, or behind a proof: the connection ends, samples of others are what they were."""
    assert link.put(2**40, 512 << 10, RECORD, later())
    with contextlib.ExitStack() as end:
        if proven:
            sock = end.enter_context(contextlib.closing(ShardLink(HOST, one.port, token, later())))._sock
            said = bytes([200]) + said  # an operation that there is not
        else:
            sock = end.enter_context(stranger(one.port))
        with contextlib.suppress(OSError):
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
        ends(sock)
    back = link.take(2**40, len(RECORD), later())
    assert back is not False
    assert back.tobytes() == RECORD


def test_a_sample_that_stops_in_the_middle_is_not_there(
    one: Shard, link: ShardLink, token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was killed, or stands still; an older one of that number is not taken for it."""
    assert link.put(1, 0, RECORD, later())
    monkeypatch.setattr(shard, "WHOLE_S", 0.2)
    for ending in (True, False):
        half = ShardLink(HOST, one.port, token, later())
        half._sock.sendall(struct.pack("<BQQQ", PUT, 1, 0, len(RECORD)) + RECORD[:5000])
        if ending:
            half.close()
        else:
            assert ends(half._sock) == b""
        promptly(lambda: link.take(1, len(RECORD), later()) is False)


# -- what a worker makes of it ------------------------------------------------------------------------------


@pytest.fixture
def memory(token: bytes) -> Iterator[SampleMemory]:
    made = SampleMemory.create()
    made.fit(4, 1 << 16, bytes(16))
    made.token = token
    made.form = WHOLE
    made.learn(2, digest(RECORD), 0.01, len(RECORD), WHOLE)
    made.assign(np.array([2]), np.array([0], np.uint8), np.array([128]))
    yield made
    made.close()


def lend(memory: SampleMemory, port: int) -> LentMemory:
    memory.lenders[0] = (0.0, HOST.encode(), 1, port)
    return LentMemory(memory)


def test_a_worker_writes_and_reads_by_the_table_also_where_it_was_spawned(
    memory: SampleMemory, one: Shard, link: ShardLink
) -> None:
    """A sample that is not assigned, or of another form, is not asked for; one that was given back is a miss."""
    there = lend(memory, one.port)
    assert there.read(2) is None
    there.write(2, RECORD)
    assert memory.states[2] == AWAY
    read = there.read(2)
    assert read is not None
    assert read.tobytes() == RECORD
    assert memory.away().tolist() == [False, False, True, False]
    assert isinstance(there.__getstate__(), SampleMemory), "no connection travels"
    again = LentMemory.__new__(LentMemory)
    again.__setstate__(there.__getstate__())
    assert again.read(2) is not None
    link.clear(later())
    assert there.read(2) is None
    assert memory.states[2] == GIVEN


def test_what_comes_back_as_anything_else_is_not_taken(
    memory: SampleMemory, one: Shard, link: ShardLink
) -> None:
    """Whoever has changed it, on the machine or on the way: its digest is noted here, and nothing is unpickled."""
    there = lend(memory, one.port)
    there.write(2, RECORD)
    other = bytearray(RECORD)
    other[-1] ^= 1
    assert link.put(2, 128, bytes(other), later())
    assert there.read(2) is None
    assert memory.states[2] == GIVEN


@pytest.mark.parametrize(
    "answer",
    [b"", struct.pack("<BQ", DONE, 1 << 62), struct.pack("<BQ", 7, 0), struct.pack("<BQ", 1, 5), b"\0" * 8],
    ids=["nothing", "too long", "no status", "gone, and yet there", "half"],
)
def test_an_answer_that_makes_no_sense_is_a_miss_and_its_machine_is_left_alone(
    memory: SampleMemory, token: bytes, answer: bytes
) -> None:
    """By all workers, for a while; then it is asked again."""
    asked: list[int] = []

    def play(sock: socket.socket) -> None:
        shard_wire.greet(sock, token)
        asked.append(1)
        shard_wire.read(sock, 25, later())
        sock.sendall(answer)

    memory.states[2] = AWAY
    with answering(play) as port:
        there, beside = lend(memory, port), LentMemory(memory)
        assert there.read(2) is None
        assert there.read(2) is None
        assert beside.read(2) is None
        assert len(asked) == 1
        memory.lenders["silent_until_s"] = 0.0
        assert there.read(2) is None
        assert len(asked) == 2
    assert memory.states[2] == AWAY, "it may be there still"


@pytest.mark.parametrize("said", [0, 1], ids=["no greeting", "no answer"])
def test_a_machine_that_does_not_answer_in_time_costs_one_wait(
    memory: SampleMemory, token: bytes, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    """And one that trickles costs no more than that: the whole answer has one deadline."""
    monkeypatch.setattr(lent, "ANSWER_S", 0.3)
    done = threading.Event()

    def play(sock: socket.socket) -> None:
        if said:
            shard_wire.greet(sock, token)
            sock.sendall(struct.pack("<BQ", DONE, len(RECORD)))
            while not done.wait(0.05):
                sock.sendall(b"x")
        done.wait(HANG_S)

    memory.states[2] = AWAY
    with answering(play) as port:
        there = lend(memory, port)
        began = time.monotonic()
        assert there.read(2) is None
        took_s = time.monotonic() - began
        assert 0.2 < took_s < HANG_S
        assert there.read(2) is None
        done.set()
    memory.states[2] = ASSIGNED
    memory.lenders["silent_until_s"] = 0.0
    assert there.waits_for(2)
    there.write(2, RECORD)  # nobody is there any more
    assert memory.states[2] == ASSIGNED, "it is tried again, later"
    assert not there.waits_for(2)
