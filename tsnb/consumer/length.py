"""How many batches an epoch has for one consumer, and how many samples a batch has."""

from __future__ import annotations

from tsnb.consumer.options import Options
from tsnb.wire.messages import Welcome

__all__ = ["epoch_length", "full_batch_size"]


def epoch_length(stream: Welcome, options: Options) -> int:
    """Return a consumer's batches in an epoch.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.

    Raises:
        TypeError: The loader does not say how many there are.
    """
    length = _epoch_length(stream, options)
    if length is not None:
        return length
    raise TypeError(
        f"the loader behind {stream.name!r} does not say how many samples an epoch has, so this consumer has no "
        "len(). Iterate it; it ends with the epoch."
    )


def _epoch_length(stream: Welcome, options: Options) -> int | None:
    own, samples = options.stream_batch_size, stream.epoch_samples
    if own is None and not (options.drop_last and samples is not None):
        return stream.epoch_batches
    if samples is None:
        return None
    size = own or stream.batch_size or 1
    return samples // size if options.drop_last else -(-samples // size)


def full_batch_size(stream: Welcome, options: Options) -> int | None:
    """Return the samples in a consumer's full batch, where known; for a rank those in the largest part of one.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.
    """
    rows = options.stream_batch_size or stream.batch_size
    return -(-rows // options.world_size) if rows and options.sharded else rows
