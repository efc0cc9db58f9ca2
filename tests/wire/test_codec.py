"""Messages to packets and back; what is malformed gets no further."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile import JUNK, changed_somewhere
from tsnb.errors import LocalProtocolError, RemoteProtocolError
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import MAX_MESSAGE_BYTES, decode, encode, release_packet
from tsnb.stream.protocol.fields import Line, Sent, cleaners
from tsnb.stream.protocol.layout import ArrayLeaf, Layout, decode_values, encode_values
from tsnb.stream.protocol.table import CAPACITY, CAPACITY_BYTES, LayoutReader, LayoutWriter

EXAMPLES: list[ms.Message] = [
    ms.Hello("consumer", "resnet", "script train.py"),
    ms.Hello("consumer", "bert", "script train.py", rank=1, world_size=4, cut="batch_size=8", back=True),
    ms.Wants(100, b"\x07\xff"),
    ms.Ask(7),
    ms.Ask(8, 3, 120, exact=True, now=False, held=(1, 2**32 - 1)),
    ms.Ask(9, 3, 120, exact=True, held=(1,), patient=True),
    ms.Ask(10, here=True),
    ms.Take(),
    ms.Take(12),
    ms.Got(1 << 40),
    ms.Waiting(),
    ms.Release(2**32 - 1),
    ms.Leave(),
    ms.Rest(),
    ms.Rest(stands=True),
    ms.Bye(),
    ms.StopProducer(60.0),
    ms.Steer({"resnet": "stop", "bert": "pause", "gpt": "go on"}),
    ms.Steered("pause"),
    ms.Steered("stop"),
    ms.Extended("ends", b"\x81\xa1a\x01"),
    ms.Extended("live", b""),
    ms.Welcome("mnist", 12, 8, 4, None, 79, None, "seed 1", 60.0),
    ms.Refused("full", "no room"),
    ms.LayoutTold(65535, b"[]"),
    ms.Batch(1, 2, 3, 4, 64, 5, 2**40, 17),
    ms.Batch(1, 2, 3, 4, 64, 5, 2**40, 17, 3),
    ms.Device('{"memory": "AA=="}'),
    ms.Device(refusal="no peer"),
    ms.Drawn(5, b"\1\0\0\0\2\0\0\0"),
    ms.Drawn(5, b"\1\0\0\0\2\0\0\0", b"\0\0\x80?\0\0\0?"),
    ms.EpochStarted(1, 2, 40),
    ms.NotJoined(1, 2, 120, 10),
    ms.EpochEnded(3, 79),
    ms.EpochEnded(3, 12, True, "boom", "Traceback"),
    ms.Parked(1, 2, 30.5),
    ms.HeldUp(3, 2, 57, "a, b and c", 12.5, 30.0),
    ms.RankGone(1, 2, ms.WHOLE_EPOCH),
    ms.Stopping("it was stopped", 30.0),
    ms.Progress(40, 3),
    ms.Progress(40, 3, 2, 40),
]
HELLO = encode(EXAMPLES[0])
HELLO_FIELDS = msgspec.msgpack.decode(HELLO)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_every_message_survives_the_wire(message: ms.Message) -> None:
    """All kinds, and no kind is forgotten here."""
    assert decode(encode(message)) == message


def test_every_message_has_an_example() -> None:
    """A message that is added is tested."""
    named = {name for name in ms.__all__ if name[0].isupper()} - {
        "ALL_ROWS",
        "MAX_LENGTH",
        "Message",
        "PROTOCOL",
        "Steering",
        "WHOLE_EPOCH",
    }
    assert {type(m).__name__ for m in EXAMPLES} == named


def test_a_batch_is_a_few_dozen_bytes() -> None:
    """No tensor byte crosses a socket (promise 2)."""
    assert len(encode(ms.Batch(1, 2, 3, 4, 64, 5, 6, 7))) <= 50


@given(st.binary(max_size=200))
def test_random_bytes_raise_one_error_and_nothing_else(packet: bytes) -> None:
    """Whatever arrives, the serving thread lives."""
    try:
        decode(packet)
    except RemoteProtocolError:
        pass


@given(st.sampled_from(EXAMPLES), st.data())
def test_packets_with_a_flipped_byte_raise_one_error_and_nothing_else(
    message: ms.Message, data: st.DataObject
) -> None:
    """Near misses too."""
    packet = bytearray(encode(message))
    packet[data.draw(st.integers(0, len(packet) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(packet))
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\xff",
        b"\x90",
        b"\x91",
        b"\x91\x7f",
        b"\x91\xa4Take",
        b"\x40{}",
        HELLO[:2],
        msgspec.msgpack.encode([*HELLO_FIELDS[:2], 1, *HELLO_FIELDS[3:]]),
        msgspec.msgpack.encode([*HELLO_FIELDS, *([None] * 50), 10**400 % 2**64]) + b"\x91" * 100_000,
        b"\x92" + HELLO[3:4] + b"\x91" * 100_000,
        encode(ms.Ask(1)) + b"x",
        encode(ms.Drawn(5, b"", b"\1\0\0\0"))[:-5] + b"\xc4\x03\1\0\0",
        encode(ms.Drawn(5, b"\1\0\0\0")).replace(b"\xc4\x04\1\0\0\0", b"\xc4\x03\1\0\0"),
    ],
)
def test_malformed_packets_are_refused(packet: bytes) -> None:
    """Empty, unknown, no array, wrong types, nested without end, too long, a number cut short."""
    with pytest.raises(RemoteProtocolError):
        decode(packet)


HOSTILE = "\x1b]0;title\x07a\x9b2J\u202eb\r\nc"


@settings(max_examples=500)
@given(st.sampled_from(EXAMPLES), st.data())
def test_a_message_with_any_field_replaced_is_one_error_or_fit_to_be_used(
    message: ms.Message, data: st.DataObject
) -> None:
    """Its numbers are finite and within bounds, its texts are printable."""
    fields = msgspec.msgpack.decode(encode(message))
    fields = changed_somewhere(fields, data, JUNK | st.just(HOSTILE) | st.just(b"x"))
    try:
        packet = msgspec.msgpack.encode(fields)
    except (OverflowError, UnicodeError):  # MessagePack has no such number or text
        return
    try:
        found = decode(packet)
    except RemoteProtocolError:
        return
    for field, value in msgspec.structs.asdict(found).items():
        if isinstance(found, ms.Device) or (isinstance(found, ms.Welcome) and field == "dataset"):
            continue  # JSON, whose texts are cleaned when it is read
        if isinstance(value, str):
            lines = value.split("\n") if isinstance(found, ms.EpochEnded) else [value]
            assert all(line.isprintable() for line in lines), value
        elif isinstance(value, dict):
            assert all(key.isprintable() for key in value)
        elif isinstance(value, (int, float)):
            assert 0 <= value <= ms.MAX_LENGTH


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e300])
def test_times_that_nobody_means_are_refused(seconds: float) -> None:
    """A wait for them would not end, or raise in the middle of a loop."""
    for message in (ms.StopProducer(seconds), ms.Parked(0, 0, seconds), ms.Stopping("bye", seconds)):
        with pytest.raises(RemoteProtocolError, match="float"):
            decode(encode(message))


def test_a_field_of_a_newer_version_is_ignored() -> None:
    """So that a Hello of any version can be answered."""
    fields = msgspec.msgpack.decode(encode(ms.Stopping("bye")))
    assert decode(msgspec.msgpack.encode([*fields, {"new": 1}])) == ms.Stopping("bye")


def test_a_text_that_no_socket_takes_is_cleaned_before_it_is_sent() -> None:
    """A lone surrogate, as in the name of a file that is not UTF-8; and one that is sent all the same."""
    assert decode(encode(ms.Refused("full", "script \udcff.py"))) == ms.Refused("full", "script ?.py")
    packet = encode(ms.Refused("full", "\ue000")).replace("\ue000".encode(), b"\xed\xa0\x80")
    with pytest.raises(RemoteProtocolError):
        decode(packet)


def test_every_text_says_how_it_is_cleaned() -> None:
    """A field that is a plain `str` would reach terminals and pages as it came."""

    class Plain(Sent, frozen=True, tag=99):
        names: tuple[str, ...] = ()

    class Inside(Sent, frozen=True, tag=98):
        names: tuple[Line, ...] = ()

    for cls in (Plain, Inside):
        with pytest.raises(TypeError, match=f"{cls.__name__}.names"):
            cleaners(cls)


def test_a_finalizers_packet_is_a_release() -> None:
    """It is made in one step, with its lease in four bytes."""
    for lease in (0, 5, 1 << 16, 2**32 - 1):
        assert decode(release_packet(lease)) == ms.Release(lease)


def test_a_packet_that_is_too_large_is_our_own_error() -> None:
    """It says what to change."""
    with pytest.raises(LocalProtocolError, match="into fewer ones"):
        encode(ms.LayoutTold(0, b"x" * MAX_MESSAGE_BYTES))


def test_layouts_survive_and_bad_ones_are_refused() -> None:
    """Offsets and sizes from outside are checked before anything is read by them."""
    layout = Layout(["dict", ["x"], ["a", "tensor"]], (ArrayLeaf("tensor", "float32", (2, 3), 64),), False)
    assert Layout.decode(layout.encode()) == layout
    strided = ArrayLeaf("numpy", "<f4", (2, 0, 3), 8, (-12, 4, 4))
    empty = Layout(["tuple", ["v"], ["a", "numpy"]], (strided,), True)
    assert Layout.decode(empty.encode()) == empty
    form = b'[["a","tensor"],[["tensor","float32",1,false]],[0],false]\n'
    assert Layout.decode(form + b"[3,0]").arrays[0].shape == (3,)
    for bad in (
        *(b"", b"{}", b"[1]", b"[" * 100_000, b"\n", b"[]\n[]", form, form + b"{}"),
        *(
            form + b"[-1,0]",
            form + b"[3,-1]",
            form + b"[3]",
            form + b"[3,0,0]",
            form + b"[3,true]",
            form + b"[3,0.0]",
        ),
        *(form + b"[%d,0]" % 2**62, form + b"[0,%d]" % 10**400, form + b"[3,0]\n[]"),
        *(
            form.replace(b"[0]", which) + b"[3,0]"
            for which in (b"[1]", b"[-1]", b"[true]", b"[]", b"0", b"[0,0]")
        ),
        *(form.replace(b"1,", n + b",") + b"[3,0]" for n in (b"2", b"-1", b"65", b"true", b"1.0")),
        form.replace(b"tensor", b"scalar").replace(b"false]]", b"true]]") + b"[3,0,1]",
        form.replace(b"false]]", b"true]]") + b"[3,0,-4]",
        form.replace(b"false]]", b"true]]") + b"[1,0,%d]" % 2**62,
    ):
        with pytest.raises(RemoteProtocolError):
            Layout.decode(bad)


@given(
    st.lists(st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False))
)
def test_values_survive_as_json(values: list[object]) -> None:
    """Any integer size, any text, bytes, exact floats."""
    assert decode_values(encode_values([*values, values, 2 + 3j])) == [*values, values, 2 + 3j]


def test_a_layout_is_told_once_until_the_table_is_full() -> None:
    """A stream whose every batch has a new shape stays bounded on both sides."""
    writer, reader = LayoutWriter(), LayoutReader()
    assert writer.intern(b"a") == (0, True)
    assert writer.intern(b"a") == (0, False)
    for index in range(CAPACITY):
        number, new = writer.intern(str(index).encode())
        assert new
        assert number < CAPACITY
    with pytest.raises(RemoteProtocolError, match="unknown layout"):
        reader.lookup(3)


@pytest.mark.parametrize("tensors", [1, 160, 2500])
def test_layouts_that_never_come_again_stay_bounded_in_bytes(tensors: int) -> None:
    """Detection batches: each has shapes of its own. Both sides forget together, and what comes again is known."""
    writer, reader = LayoutWriter(), LayoutReader()
    told: dict[int, int] = {}
    for index in range(max(200, 6000 // tensors)):
        leaf = ArrayLeaf("tensor", "float32", (index, 4), 0)
        layout = Layout(["list", *[["a", "tensor"]] * tensors], (leaf,) * tensors, False)
        encoded = layout.encode()
        number, new = writer.intern(encoded)
        assert new
        reader.learn(number, layout)
        told = {**told, number: len(encoded)} if number else {0: len(encoded)}
        assert sum(told.values()) <= CAPACITY_BYTES and len(told) <= CAPACITY
        assert set(told) == set(reader._layouts), "no more than the writer knows"
        assert reader.lookup(number) == layout
        assert writer.intern(encoded) == (number, False)


def test_what_a_reader_keeps_of_varying_shapes_is_a_few_times_what_was_told() -> None:
    """A detection batch: 32 images with five tensors each, of which only the shapes are new every time."""
    target = ["dict", ["image", "boxes", "labels", "area", "iscrowd"], *[["a", "tensor"]] * 5]

    def told(index: int) -> bytes:
        shapes = [(3, 600 + index, 800), (index, 4), (index,), (index,), (index,)] * 32
        words = ["float32", "float32", "int64", "float32", "int64"] * 32
        leaves = [
            ArrayLeaf("tensor", d, s, 64 * n) for n, (d, s) in enumerate(zip(words, shapes, strict=True))
        ]
        return Layout(["list", *[target] * 32], tuple(leaves), False).encode()

    packets = [told(1000 + index) for index in range(50)]
    Layout.decode(packets[0])
    tracemalloc.start()
    try:
        kept = [Layout.decode(packet) for packet in packets]
        for layout in kept:  # as the reading of a batch does
            assert layout.array_bytes and layout.leaf_words and layout.samples
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used <= 6 * sum(map(len, packets)), used / sum(map(len, packets))
    assert all(layout.spec is kept[0].spec for layout in kept), "read once"


@given(
    st.lists(
        st.one_of(
            st.text(max_size=900),
            st.binary(max_size=900),
            st.lists(st.text(st.characters(), max_size=300), max_size=9),
            st.lists(st.binary(max_size=300), max_size=9),
            st.lists(st.one_of(st.text(max_size=300), st.none(), st.floats()), max_size=9),
        ),
        max_size=6,
    )
)
def test_long_texts_and_bytes_travel_as_they_are(values: list[Any]) -> None:
    """Beside all else; lone surrogates, and texts of no letters, too."""
    again = decode_values(encode_values(values))
    assert repr(again) == repr(values)


def test_columns_that_are_none_are_refused() -> None:
    """Cut short, of other lengths, of another word, without numbers."""
    whole = encode_values([["a" * 600, "\ud800"], b"b" * 600])
    assert whole[:1] == b"\x01" and decode_values(whole) == [["a" * 600, "\ud800"], b"b" * 600]
    for end in range(1, len(whole), 7):
        with pytest.raises(RemoteProtocolError):
            decode_values(whole[:end])
    for head in (
        '["texts",2,602]',
        '["texts",-1,603]',
        '["odd",2,603]',
        '["texts",true,603]',
        '["text",2,603]',
        "3",
    ):
        text = f'[{{"column":{head}}}]'.encode()
        with pytest.raises(RemoteProtocolError):
            decode_values(b"\x01" + len(text).to_bytes(4, "little") + text + whole[5 + whole[1] :])
