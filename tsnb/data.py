"""Batches and samples: their types, a cache, growing data, and rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.caching.cut import cache
    from tsnb.growing.grown import grow
    from tsnb.growing.selection import every, interval, rounds, worse
    from tsnb.stream.consumer.attaching import log_losses
    from tsnb.stream.protocol.adapters import register

__all__ = ["cache", "every", "grow", "interval", "log_losses", "register", "rounds", "worse"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "interval": "tsnb.growing.selection",
        "cache": "tsnb.caching.cut",
        "every": "tsnb.growing.selection",
        "grow": "tsnb.growing.grown",
        "log_losses": "tsnb.stream.consumer.attaching",
        "register": "tsnb.stream.protocol.adapters",
        "rounds": "tsnb.growing.selection",
        "worse": "tsnb.growing.selection",
    },
)
