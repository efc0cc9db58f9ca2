"""How many batches an epoch has for one consumer."""

from __future__ import annotations

from tsnb.consumer.options import Options
from tsnb.wire.messages import Welcome

__all__ = ["epoch_length"]


def epoch_length(stream: Welcome, options: Options) -> int | None:
    """Return a consumer's batches in an epoch; None where the loader does not say how many there are.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.
    """
    own, samples = options.stream_batch_size, stream.epoch_samples
    if own is None and not (options.drop_last and samples is not None):
        return stream.epoch_batches
    if samples is None:
        return None
    size = own or stream.batch_size or 1
    return samples // size if options.drop_last else -(-samples // size)
