"""Messages to packets and back.

Pure: no socket. One message is one packet: a MessagePack array of its kind's number and its fields, 2 bytes for a
message without fields and about 20 for a batch. Nothing is ever unpickled, and nothing that is malformed gets
further than here: msgspec refuses unknown kinds and numbers out of bounds, and texts are made printable (`fields`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import get_args

import msgspec

from tsnb.errors import LocalProtocolError, RemoteProtocolError
from tsnb.stream.protocol.fields import cleaners
from tsnb.stream.protocol.messages import Extended, Message, RankGone, Release, Steered
from tsnb.text.printable import one_line

__all__ = ["EARLY_KINDS", "MAX_MESSAGE_BYTES", "decode", "encode", "release_packet"]

MAX_MESSAGE_BYTES = 1 << 17
"""Largest packet; a Linux socket buffer (208 KiB by default) takes it whole."""

_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(Message).decode
_CLEANERS = {cls: found for cls in get_args(Message) if (found := cleaners(cls))}
"""Of each kind that has texts, what makes them printable."""
EARLY_KINDS = frozenset(
    _write(each)[1:2] for each in (Extended("x", b""), RankGone(0, 0, 0), Steered("pause"))
)
"""Second bytes, which hold the kind, of packets that a consumer looks for among those that it has not read yet."""

release_packet: Callable[[int], bytes] = partial(struct.Struct(">3sI").pack, _write(Release(1 << 31))[:3])
"""Returns the packet of a `Release`, in one step of compiled code: a finalizer calls it for every batch.

The lease always takes four bytes. `encode` writes fewer for a small one.
"""


def encode(message: Message) -> bytes:
    """Return the message's packet. Bounds are checked by whoever reads it.

    Raises:
        LocalProtocolError: It is larger than a packet may be, or a number does not fit into one.
    """
    try:
        packet = _write(message)
    except UnicodeEncodeError:  # a lone surrogate, as in the name of a file that is not UTF-8
        packet = _write(_cleaned(message))
    except OverflowError as error:
        raise LocalProtocolError(f"{message!r:.300} cannot be sent: {error}") from None
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
        RemoteProtocolError: Unknown kind, wrong length, or fields of the wrong type or out of bounds.
    """
    try:
        message = _read(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed message: {one_line(error, 300)}") from None
    return _cleaned(message) if type(message) in _CLEANERS else message


def _cleaned(message: Message) -> Message:
    """Return a message with its texts made printable."""
    texts = _CLEANERS[type(message)]
    return msgspec.structs.replace(
        message, **{field: clean(getattr(message, field)) for field, clean in texts.items()}
    )
