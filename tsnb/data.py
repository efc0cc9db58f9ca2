"""Batches and samples: their types, a cache, growing data, and rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.samples.cut import cache
    from tsnb.samples.grown import grow
    from tsnb.samples.selection import every, interval, rounds, worse
    from tsnb.stream.consumer.attaching import log_losses
    from tsnb.stream.protocol.adapters import register

__all__ = ["cache", "every", "grow", "interval", "log_losses", "register", "rounds", "worse"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "interval": "tsnb.samples.selection",
        "cache": "tsnb.samples.cut",
        "every": "tsnb.samples.selection",
        "grow": "tsnb.samples.grown",
        "log_losses": "tsnb.stream.consumer.attaching",
        "register": "tsnb.stream.protocol.adapters",
        "rounds": "tsnb.samples.selection",
        "worse": "tsnb.samples.selection",
    },
)
