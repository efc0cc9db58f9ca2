"""What a producer's balancer and the processes of its trials tell each other: payloads of `extensions.cores`."""

from __future__ import annotations

import msgspec

from tsnb.text.foreign import Text, Whole

__all__ = ["Allotted", "Threads"]


class Threads(msgspec.Struct, frozen=True):
    """On how many threads torch computes in the consumer's process: said when it attaches and when that changes."""

    number: Whole
    own: Whole
    """Its number before the producer asked for another."""
    fixed: bool
    """Whether its user has chosen it, so that it stays."""


class Allotted(msgspec.Struct, frozen=True):
    """The producer has given the consumer's process other cores, or is about to; another number of threads is wanted.

    Threads are changed between two steps. The cores are the producer's to change, but if it dies, the consumer puts
    itself back.
    """

    threads: Whole
    """For torch to compute on; 0: as many as before anything was changed."""
    cores: Text
    """As the kernel writes them ("0-3,8"); empty: it has all that it had."""
    home: Text
    """Those that it had before."""
