"""The producer: the one process that owns the loader, and decides who may have which batch.

The decisions are light to import; what carries them out, with torch, is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsnb.producer.serving import serve
    from tsnb.producer.stream import Producer

__all__ = ["Producer", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'stream' if name == 'Producer' else 'serving'}"), name)
