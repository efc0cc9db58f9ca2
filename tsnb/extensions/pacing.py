"""Dividing compute between the trials of a stream in another way while they train: an observer asks, the producer does.

observer --Divided--> producer's half
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.config import check_balance
from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol.extension import Extension, Remote, Undoable
from tsnb.telemetry.observer import Divided
from tsnb.text.foreign import unpack

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["Pacing"]


class Pacing(Extension):
    """The producer's half.

    Args:
        core: The producer's.
    """

    name = "pacing"

    def __init__(self, core: Core) -> None:
        self._core = core

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Divide compute as an observer asks.

        Raises:
            RemoteProtocolError: It asks for something that ours never would: it checks first.
            Undoable: The stream's machines keep in step.
        """
        if peer.role != "observer":
            raise RemoteProtocolError(f"{self.name!r} from a {peer.role}")
        try:
            asked = unpack(Divided, payload)
            pacing, weights = check_balance(asked.pacing, asked.weights)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(str(error)[:200]) from None
        try:
            self._core.balance(pacing, weights)
        except ValueError as error:
            raise Undoable(str(error).removesuffix("."), "in-step") from None
