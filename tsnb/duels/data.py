"""The data that a duel trains on: the name of its stream, and what the stream tells of its loader.

The seeds of a duel count together only if all of them had the same data. What a stream does not tell is not compared:
a network drive's files may change under one name, for example.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import asdict, dataclass, replace

from tsnb.errors import TsnbError
from tsnb.stream.protocol.messages import Welcome
from tsnb.telemetry.observer import Observer

__all__ = ["Data", "data_of"]


@dataclass(frozen=True)
class Data:
    """What is known of the data; an empty field is not known."""

    stream: str = ""
    """Name of the stream; empty: the code of the arms names it."""
    samples: int | None = None
    """Samples in an epoch."""
    batch_size: int | None = None
    """That of the loader."""
    dataset: str = ""
    """Hash of what the stream tells of the dataset: its kind, its length and its small attributes."""
    order: str = ""
    """Hash of what decides about the order of an epoch, but the seed: it has the contents of tables."""

    def change(self, now: Data) -> str:
        """Return how later data differs from this, in words; empty if it does not, as far as both are known.

        Example:
            >>> Data("digits", 900).change(Data("digits", 300))
            "the data of the stream 'digits' has changed (900 samples before, 300 samples now)"

        Args:
            now: The later data.
        """
        if self.stream != now.stream and self.stream and now.stream:
            return f"they were on the stream {self.stream!r}, and the duel is now on {now.stream!r}"
        pairs = zip(self._facts, now._facts, strict=True)
        if not any(before and after and before != after for before, after in pairs):
            return ""
        sizes = self._size, now._size
        told = f" ({sizes[0]} before, {sizes[1]} now)" if all(sizes) and sizes[0] != sizes[1] else ""
        return f"the data of the stream {now.stream or self.stream!r} has changed{told}"

    def with_more(self, now: Data) -> Data:
        """Return this, with what later data tells beyond it.

        Args:
            now: The later data.
        """
        told = {name: value for name, value in asdict(now).items() if not getattr(self, name)}
        return replace(self, **told)

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.samples, self.batch_size, self.dataset, self.order

    @property
    def _size(self) -> str:
        said = [] if self.samples is None else [f"{self.samples} samples"]
        return ", ".join([*said, *([f"batch size {self.batch_size}"] if self.batch_size else [])])


def data_of(stream: str) -> Data:
    """Return what a stream of this machine tells of its data; its name alone if it does not answer.

    Args:
        stream: Name of the stream; empty: nothing is known.
    """
    if not stream:
        return Data()
    with contextlib.suppress(TsnbError), contextlib.closing(Observer(stream)) as observer:
        observer.now()
        if observer.welcome is not None:
            return _told(stream, observer.welcome)
    return Data(stream)


def _told(stream: str, welcome: Welcome) -> Data:
    if welcome.grows:  # its length and its order change while it is served
        return Data(stream, batch_size=welcome.batch_size)
    order = " ".join(word for word in welcome.order.split(" ") if not word.startswith("seed="))
    return Data(stream, welcome.epoch_samples, welcome.batch_size, _hash(welcome.dataset), _hash(order))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest() if text else ""
