"""Messages to packets and back.

Pure: no socket. One message is one packet. The first byte is the message's kind; the hot ones are fixed
little-endian structs of 1 to 35 bytes, the rare ones are JSON. Nothing is ever unpickled, and nothing that is
malformed gets further than here: numbers are finite and within bounds, texts are printable (`tsnb.printable`).
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tsnb.errors import LocalProtocolError, RemoteProtocolError
from tsnb.printable import block, one_line
from tsnb.stream.protocol.messages import (
    Ask,
    Balance,
    Batch,
    Bye,
    Continues,
    DeviceRefused,
    DeviceTold,
    Drawn,
    EpochEnded,
    EpochStarted,
    Extended,
    Failed,
    Got,
    HeldUp,
    Hello,
    LayoutTold,
    Leave,
    LengthTold,
    Message,
    NotJoined,
    OnDevice,
    Parked,
    PauseAsked,
    PauseConsumer,
    Planned,
    RankGone,
    Reading,
    Refused,
    Release,
    Rest,
    StopAsked,
    StopConsumer,
    Stopping,
    StopProducer,
    Take,
    Waiting,
    Wants,
    Weighted,
    Welcome,
)

__all__ = [
    "EARLY_KINDS",
    "MAX_MESSAGE_BYTES",
    "decode",
    "encode",
    "is_extended",
    "is_pause",
    "is_rank_gone",
    "release_packet",
]

MAX_MESSAGE_BYTES = 1 << 17
"""Largest packet; a Linux socket buffer (208 KiB by default) takes it whole."""
MAX_NUMBER = 1 << 53
"""No message counts anything that comes to more; all whole numbers up to it are the same in JSON everywhere."""
MAX_SECONDS = 1e9
"""Three decades: longer than any sensible wait."""

_STRUCTS: dict[int, tuple[type[Any], struct.Struct]] = {
    # 1-byte kind, then the fields in order; the hot path of the protocol
    1: (Batch, struct.Struct("<BHIIIIIQI")),
    2: (Take, struct.Struct("<BI")),
    5: (Got, struct.Struct("<BQ")),
    3: (Release, struct.Struct("<BI")),
    4: (Waiting, struct.Struct("<B")),
    6: (EpochEnded, struct.Struct("<BII")),
    7: (Leave, struct.Struct("<B")),
    8: (Rest, struct.Struct("<B?")),
    9: (Bye, struct.Struct("<B")),
    10: (StopAsked, struct.Struct("<B")),
    11: (StopProducer, struct.Struct("<Bd")),
    13: (EpochStarted, struct.Struct("<BIII")),
    14: (NotJoined, struct.Struct("<BIIII")),
    12: (Parked, struct.Struct("<BIId")),
    17: (OnDevice, struct.Struct("<BII")),
    18: (RankGone, struct.Struct("<BIII")),
    19: (PauseAsked, struct.Struct("<B?")),
    20: (Planned, struct.Struct("<BII")),
    21: (LengthTold, struct.Struct("<BII")),
    24: (Continues, struct.Struct("<BII")),
}
_WITH_SECONDS = (11, 12)
"""Kinds whose last field is a time."""
_LAYOUT_KIND = 32
_LAYOUT_HEAD = struct.Struct("<BH")
_ASK_KIND = 33
_DRAWN_KIND = 34
_DRAWN_HEAD = struct.Struct("<BI")
_WANTS_KIND = 35
_WEIGHTED_KIND = 37
_EXTENDED_KIND = 38
_MOST_NAME = 32
"""Letters of an extension's name."""
_ASK_HEAD = struct.Struct("<BIII????")
_OF_BYTES = (_LAYOUT_KIND, _DRAWN_KIND, _WANTS_KIND, _WEIGHTED_KIND, _EXTENDED_KIND)
"""Kinds whose last fields are bytes, of any number."""
_HEADED: dict[type[Any], int] = {Wants: _WANTS_KIND, Drawn: _DRAWN_KIND, Weighted: _WEIGHTED_KIND}
_LEASE_BYTES = 4
_JSON: dict[int, type[Any]] = {
    64: Hello,
    65: Welcome,
    66: Refused,
    67: Failed,
    68: Stopping,
    69: Reading,
    71: StopConsumer,
    72: Balance,
    74: DeviceTold,
    75: DeviceRefused,
    76: HeldUp,
    78: PauseConsumer,
}
_STRUCT_OF = {cls: (kind, packer) for kind, (cls, packer) in _STRUCTS.items()}
_CONSTANT = {cls: bytes((kind,)) for kind, (cls, packer) in _STRUCTS.items() if packer.size == 1}
"""Messages without fields are the same packet each time."""
release_packet: Callable[[int], bytes] = partial(_STRUCTS[3][1].pack, 3)
"""Returns the packet of a `Release`, in one step of compiled code: a finalizer calls it for every batch."""
EARLY_KINDS = frozenset((18, 19, _EXTENDED_KIND))
"""First bytes of packets that a consumer looks for among those that it has not read yet."""
_JSON_OF = {cls: kind for kind, cls in _JSON.items()}


def encode(message: Message) -> bytes:
    """Return the message's packet.

    Raises:
        LocalProtocolError: It is larger than a packet may be, or a number does not fit.
    """
    always = _CONSTANT.get(type(message))
    if always is not None:
        return always
    fixed = _STRUCT_OF.get(type(message))
    try:
        if fixed is not None:
            return fixed[1].pack(fixed[0], *message)
        if isinstance(message, Ask):
            packet = _ASK_HEAD.pack(_ASK_KIND, *message[:5], message.patient, message.here)
            packet += struct.pack(f"<{len(message.held)}I", *message.held)
        elif isinstance(message, LayoutTold):
            packet = _LAYOUT_HEAD.pack(_LAYOUT_KIND, message.number) + message.layout
        elif isinstance(message, Extended):
            name = message.name.encode("ascii")
            packet = bytes((_EXTENDED_KIND, len(name))) + name + message.payload
        elif isinstance(message, (Wants, Drawn, Weighted)):
            packet = _DRAWN_HEAD.pack(_HEADED[type(message)], message[0]) + message[1]
        else:
            fields = json.dumps(message._asdict(), separators=(",", ":")).encode()
            packet = bytes((_JSON_OF[type(message)],)) + fields
    except struct.error as error:
        raise LocalProtocolError(f"{message!r} cannot be sent: {error}") from None
    if len(packet) > MAX_MESSAGE_BYTES:
        raise LocalProtocolError(
            f"A {type(message).__name__} message of {len(packet):,} bytes exceeds the limit of "
            f"{MAX_MESSAGE_BYTES:,} bytes per packet. Stack the tensors of a batch into fewer ones in "
            "your collate_fn."
        )
    return packet


def decode(packet: bytes) -> Message:
    """Read one packet.

    Raises:
        RemoteProtocolError: Unknown kind, wrong length, or fields of the wrong type.
    """
    if not packet:
        raise RemoteProtocolError("empty packet")
    kind = packet[0]
    fixed = _STRUCTS.get(kind)
    if fixed is not None:
        cls, packer = fixed
        if len(packet) != packer.size:
            raise RemoteProtocolError(f"{cls.__name__} of {len(packet)} bytes instead of {packer.size}")
        fields = packer.unpack(packet)[1:]
        if kind in _WITH_SECONDS and not 0 <= fields[-1] <= MAX_SECONDS:
            raise RemoteProtocolError(f"{cls.__name__} with {fields[-1]} seconds")
        made: Message = tuple.__new__(cls, fields)  # as `_make`, which checks the length again
        return made
    if kind in _OF_BYTES:
        return _decode_bytes(kind, packet)
    if kind == _ASK_KIND:
        return _decode_ask(packet)
    if kind in _JSON:
        return _decode_json(_JSON[kind], packet[1:])
    raise RemoteProtocolError(f"unknown message kind {kind}")


def _decode_bytes(kind: int, packet: bytes) -> Message:
    """Read a message that ends in bytes, of any number.

    Raises:
        RemoteProtocolError: There are too few, or not whole numbers of them.
    """
    if kind == _LAYOUT_KIND and len(packet) >= _LAYOUT_HEAD.size:
        return LayoutTold(_LAYOUT_HEAD.unpack_from(packet)[1], packet[_LAYOUT_HEAD.size :])
    whole = len(packet) % 4 == _DRAWN_HEAD.size % 4 and len(packet) >= _DRAWN_HEAD.size
    if kind in (_DRAWN_KIND, _WEIGHTED_KIND) and whole:
        told = Drawn if kind == _DRAWN_KIND else Weighted
        return told(_DRAWN_HEAD.unpack_from(packet)[1], packet[_DRAWN_HEAD.size :])
    if kind == _WANTS_KIND and len(packet) >= _DRAWN_HEAD.size:
        return Wants(_DRAWN_HEAD.unpack_from(packet)[1], packet[_DRAWN_HEAD.size :])
    if kind == _EXTENDED_KIND and len(packet) > 1:
        name = packet[2 : 2 + packet[1]]
        if len(name) == packet[1] <= _MOST_NAME and name.isalpha():  # of bytes: letters of ASCII alone
            return Extended(name.decode(), packet[2 + len(name) :])
    raise RemoteProtocolError(f"a message of kind {kind} with {len(packet)} bytes")


def is_rank_gone(packet: bytes) -> bool:
    """Whether it is a well-formed `RankGone`: looked for among packets that are not read yet."""
    return _is(packet, RankGone)


def is_pause(packet: bytes) -> bool:
    """Whether it is a well-formed `PauseAsked`: as above."""
    return _is(packet, PauseAsked)


def is_extended(packet: bytes) -> bool:
    """Whether it says that it is an `Extended`: as above."""
    return packet[:1] == bytes((_EXTENDED_KIND,))


def _is(packet: bytes, cls: type[Any]) -> bool:
    kind, packer = _STRUCT_OF[cls]
    return len(packet) == packer.size and packet[0] == kind


def _decode_ask(packet: bytes) -> Ask:
    leases, odd = divmod(len(packet) - _ASK_HEAD.size, _LEASE_BYTES)
    if leases < 0 or odd:
        raise RemoteProtocolError(f"Ask of {len(packet)} bytes")
    *head, patient, here = _ASK_HEAD.unpack_from(packet)[1:]
    held = struct.unpack_from(f"<{leases}I", packet, _ASK_HEAD.size)
    return Ask._make((*head, held, patient, here))


def _decode_json(cls: type[Any], text: bytes) -> Message:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {cls.__name__}: {error}") from None
    if not isinstance(fields, dict):
        raise RemoteProtocolError(f"malformed {cls.__name__}: not an object")
    # a field this version does not know is dropped: versions are compared in Hello, before anything else
    known = {k: v for k, v in fields.items() if k in cls._fields}
    try:
        message: Message = cls(**known)
    except TypeError as error:
        raise RemoteProtocolError(f"malformed {cls.__name__}: {error}") from None
    return cls._make(_checked(cls, field, value) for field, value in zip(cls._fields, message, strict=True))  # type: ignore[no-any-return]  # one of `Message`


def _checked(cls: type[Any], field: str, value: Any) -> Any:
    """Return a field's value, made fit to be used and shown.

    Raises:
        RemoteProtocolError: It is of another type, or out of bounds.
    """
    wanted = _FIELD_TYPES[cls][field]
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise RemoteProtocolError(f"malformed {cls.__name__}: {field} is a {type(value).__name__}")
    if isinstance(value, str):
        return _CLEANED.get((cls, field), one_line)(value)
    if isinstance(value, dict):
        holds = _HELD[cls, field]
        for each in value.values():
            if not _fits(each, holds):
                raise RemoteProtocolError(f"malformed {cls.__name__}: {field} has a {type(each).__name__}")
        return {one_line(key): one_line(each) if holds is str else each for key, each in value.items()}
    most = MAX_SECONDS if float in wanted else MAX_NUMBER
    if value is not None and not 0 <= value <= most:  # so that NaN is refused too
        raise RemoteProtocolError(f"malformed {cls.__name__}: {field} is {value!r:.80}")
    return value


def _fits(value: Any, holds: type) -> bool:
    """Whether a value in an object is of its type. JSON has integers that are no floats, and ones too large for one."""
    if holds is float and type(value) is int:
        return abs(value) <= sys.float_info.max
    return type(value) is holds


_CLEANED: dict[tuple[type[Any], str], Callable[[str], str]] = {
    (Failed, "message"): block,
    (Failed, "traceback"): block,
    (Reading, "text"): str,  # JSON, whose texts are cleaned when it is read
    (DeviceTold, "handles"): str,  # the same, never shown
    (Welcome, "dataset"): str,  # the same
}
"""What makes a text printable; `one_line` where nothing is said."""

_OBJECTS = {"dict[str, float]": float, "dict[str, bool]": bool, "dict[str, str]": str}
"""Types of what the values of an object may be."""
_TYPES: dict[str, tuple[type[Any], ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
    **dict.fromkeys(_OBJECTS, (dict,)),
}


def _spelling(annotation: Any) -> str:
    """Return an annotation as it is written: NamedTuple wraps the postponed ones in a ForwardRef."""
    return str(getattr(annotation, "__forward_arg__", annotation))


_SPELLED = {
    (cls, field): _spelling(cls.__annotations__[field]) for cls in _JSON.values() for field in cls._fields
}
_FIELD_TYPES = {cls: {field: _TYPES[_SPELLED[cls, field]] for field in cls._fields} for cls in _JSON.values()}
_HELD = {each: _OBJECTS[spelled] for each, spelled in _SPELLED.items() if spelled in _OBJECTS}
