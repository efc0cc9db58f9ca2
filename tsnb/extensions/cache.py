"""The cache of prepared samples, as a stream's readings tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsnb.caching.keeper import Keeper
from tsnb.stream.protocol.extension import Extension

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["CacheCounts", "keeper_of"]


class CacheCounts(Extension):
    """Says what a stream's cache holds.

    Args:
        keeper: The cache.
    """

    name = "cache"

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def reading(self, since: int) -> dict[str, Any]:
        """Return its numbers."""
        return {"cache": self._keeper.counts()}


def keeper_of(core: Core) -> Keeper | None:
    """Return the cache of a stream; None: it has none."""
    return core.keeper if isinstance(core.keeper, Keeper) else None
