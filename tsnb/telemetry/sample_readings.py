"""What becomes of a stream's samples, as a part of its reading: the cache, and data that grows."""

from __future__ import annotations

from dataclasses import dataclass

from tsnb.text.foreign import Number, Text, Whole

__all__ = ["CACHE_STATES", "GROWTH_KINDS", "CacheReading", "FrozenReading", "GrowthReading"]

CACHE_STATES = ("learning", "proving", "serving", "off")
"""learning: what each sample costs is measured, in the first epoch; proving: each is prepared a second time and
compared, and chosen ones are kept; serving: kept ones are taken; off: samples cannot be kept, `why` says the reason."""


@dataclass(frozen=True)
class CacheReading:
    """The cache of a stream's samples at one moment (docs/cache.md)."""

    state: Text
    """One of `CACHE_STATES`."""
    why: Text
    """Why samples are kept as they are before `transform`, or not at all; empty where neither is so."""
    samples: Whole
    """In the data set."""
    kept: Whole
    """Of them in memory."""
    kept_bytes: Whole
    """Memory in use, with the notes on each sample."""
    limit_bytes: Whole
    """What it may use."""
    given_bytes: Whole
    """Given back so far because memory was short."""
    hits: Whole
    """Samples taken from it so far."""
    misses: Whole
    """Samples prepared so far."""
    saved_s: Number
    """What preparing the taken ones would have cost, in seconds of one core."""
    lenders: Whole = 0
    """Other machines of the cluster in whose memory samples are kept."""
    lent_kept: Whole = 0
    """Samples in their memory, beside `kept`."""
    lent_bytes: Whole = 0
    """What these take there."""
    lent_hits: Whole = 0
    """Of `hits`, those that were fetched from there."""
    packed: Whole = 0
    """Of `kept`, those that lie packed in memory and are unpacked at each hit."""


GROWTH_KINDS = ("round", "entered")
"""round: an epoch of selected samples began; entered: new samples came into an epoch, or it began with them."""


@dataclass(frozen=True)
class GrowthReading:
    """Something that became of a growing data set's samples (docs/growing-data.md)."""

    time_s: Number
    """When: wall clock, seconds since 1970."""
    kind: Text
    """One of `GROWTH_KINDS`."""
    epoch: Whole
    """The epoch's number, from 0; a round's is that of its epoch."""
    samples: Whole
    """How many the round has, or have entered."""
    select: Text = ""
    """Which samples a round has, as they were asked for."""
    reason: Text = ""
    """What its trigger said, in words; empty where that is not known."""


@dataclass(frozen=True)
class FrozenReading:
    """The frozen part of a network that a stream computes (docs/frozen.md)."""

    name: Text
    """What it is called where the stream was started."""
    computing_s: Number
    """Seconds that it has computed so far, in all workers together."""
    batches: Whole
    """Batches that it has computed so far; those that came from the cache not included."""
    inputs: bool = False
    """Whether batches hold its inputs, too."""
