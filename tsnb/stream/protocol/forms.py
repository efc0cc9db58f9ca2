"""A batch in two forms that lie in one slot: most consumers want the first, and some want more beside it.

What both forms have in common is written once, since a tree names the same object again by a number. A consumer that
wants the first form alone reads its part of the layout, so the rest is never turned into tensors there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol.layout import Layout
from tsnb.stream.protocol.specs import HEADS, leaf_words

__all__ = ["TwoForms", "narrowed", "widest"]


class TwoForms(NamedTuple):
    """A batch of two forms, as a loader gives it to the stream."""

    batch: Any
    """What every consumer gets."""
    whole: Any
    """What those get that asked for the inputs, too."""


def _has_two(layout: Layout) -> bool:
    return layout.spec[:3] == ["named", TwoForms.__module__, TwoForms.__qualname__]


def narrowed(layout: Layout) -> Layout:
    """Return the layout of a batch's first form; a batch of one form keeps its own.

    Args:
        layout: As the producer told it.

    Raises:
        RemoteProtocolError: It does not have two forms.
    """
    if not _has_two(layout):
        return layout
    parts = layout.spec[HEADS["named"] :]
    if len(parts) != len(TwoForms._fields):
        raise RemoteProtocolError(f"a batch of {len(parts)} forms")
    words = leaf_words(parts[0])
    arrays = words.count("a")
    beyond = len(layout.leaf_words) - len(layout.arrays) - (len(words) - arrays)
    return Layout(parts[0], layout.arrays[:arrays], len(words) > arrays, beyond)


def widest(tree: Any) -> Any:
    """Return a batch's second form; a batch of one form stays as it is."""
    return tree.whole if isinstance(tree, TwoForms) else tree
