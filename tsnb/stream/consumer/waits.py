"""What is looked at while a consumer waits for a message; what is done between two batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from tsnb.config import attach_defaults

__all__ = ["Wished", "answered_by", "look_for_wish", "pass_boundary"]


def answered_by(deadline: float) -> Callable[[float], None]:
    """Return what looks, while a message is waited for, whether that takes too long.

    Args:
        deadline: Until when, by the monotonic clock. After it a TimeoutError is raised.
    """
    began = time.monotonic()

    def look(_waited_s: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"The stream did not answer within {deadline - began:.0f} s.")

    return look


class Wished(Exception):
    """Something is to be done at the boundary between two batches."""


def look_for_wish(_waited_s: float) -> None:
    """While it is paused, nothing is worth a word.

    Raises:
        Wished: Something is to be done.
    """
    if attach_defaults.boundary is not None:
        raise Wished


def pass_boundary() -> None:
    """Between two batches, in the thread that takes them: do once what was wished for."""
    wish, attach_defaults.boundary = attach_defaults.boundary, None
    if wish is not None:
        wish()
