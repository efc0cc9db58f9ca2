"""What stands for the loader's dataset and sampler in a training process: lengths and small attributes, no samples.

Code for a `DataLoader` asks for `len(loader.dataset)`, `loader.dataset.classes` and `len(loader.sampler)`.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from torch.utils.data import Dataset, SequentialSampler

from tsnb.stream.consumer.batches.unpacking import delivered_from
from tsnb.stream.protocol.layout import Layout

if TYPE_CHECKING:
    from tsnb.stream.consumer.consumer import Consumer

__all__ = ["StreamDataset", "StreamSampler", "told_of"]

MOST_BYTES = 1 << 26
"""Of an attribute: more than any producer of ours tells."""


def told_of(text: str) -> dict[str, Any]:
    """Return what a stream tells of its loader's dataset."""
    facts: dict[str, Any] = json.loads(text) if text else {}
    return facts


class StreamDataset(Dataset[Any]):
    """Stands for the dataset of a stream's loader, or for one inside that (of a Subset, say).

    Args:
        stream: The stream's name.
        samples: How many samples there are; None: that is not known.
        facts: What the stream tells of it.
    """

    def __init__(self, stream: str, samples: int | None, facts: dict[str, Any]) -> None:
        self._stream = stream
        self._samples = samples
        self._facts = facts

    def __len__(self) -> int:
        """Return the samples in the dataset; with `subset=` or `fold=`, those that are this consumer's.

        Raises:
            TypeError: The loader's dataset has no length.
        """
        if self._samples is None:
            raise TypeError(
                f"The loader of {self._stream!r} has no dataset with a length, so len(loader.dataset) "
                "is unknown. Count the samples as they arrive."
            )
        return self._samples

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_":  # while it is being copied or unpickled, too
            raise AttributeError(name)
        facts = self._facts
        if name in facts.get("inner", ()):
            inner = facts["inner"][name]
            return StreamDataset(self._stream, inner["samples"], inner)
        if name not in facts.get("attributes", ()):
            raise AttributeError(
                f"{name!r} of the dataset of {self._stream!r} is not available here. The dataset stays "
                "with its loader, and only small attributes are copied. Create the dataset in this "
                "process as well, or pass what you need with the batches."
            )
        value = _read(facts["attributes"][name])
        self.__dict__[name] = value
        return value

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(
            f"dataset[{index!r:.40}] is not available here. The samples of {self._stream!r} stay with "
            "its loader. Iterate over the consumer for batches, or create the dataset in this process "
            "as well."
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"The dataset of {self._stream!r} cannot be iterated here. Its samples stay with its "
            "loader. Iterate over the consumer for batches, or create the dataset in this process as "
            "well."
        )

    def __repr__(self) -> str:
        kind = self._facts.get("kind", "dataset")
        return f"<{kind} of the stream {self._stream!r}: {self._samples} samples>"


def _read(text: str) -> Any:
    packed = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
    head, _, rest = packed.partition(b"\n")
    size, offset, values = map(int, head.split(b","))
    memory = np.frombuffer(bytearray(rest[size:]) or bytearray(1), np.uint8)
    return delivered_from(Layout.decode(rest[:size]), memory, offset, values).tree()


class StreamSampler(SequentialSampler):
    """Stands for the loader's sampler.

    It is a `SequentialSampler`, so that trainers leave it: batches come as they come, and this process shuffles none.

    Args:
        consumer: Whose.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def __len__(self) -> int:
        """Return the samples that this consumer gets in an epoch, those of its rank alone.

        Raises:
            TypeError: The loader does not say how many there are.
        """
        return self.consumer._inner.epoch_samples

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"The sampler of {self.consumer.stream!r} cannot be iterated here, because it stays with "
            "its loader. Iterate over the consumer for batches."
        )

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the stream counts its epochs itself."""
