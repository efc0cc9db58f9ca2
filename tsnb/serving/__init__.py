"""A stream put together: a producer, and all that is built on it.

| module | what it owns |
|---|---|
| `starting` | `serve`: a loader behind a name, on this machine or over a cluster |
| `stream` | a loader that is being served, as its process sees it |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.serving.starting import begin, serve, serve_here
    from tsnb.serving.stream import Producer

__all__ = ["Producer", "begin", "serve", "serve_here"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Producer": "tsnb.serving.stream",
        "begin": "tsnb.serving.starting",
        "serve": "tsnb.serving.starting",
        "serve_here": "tsnb.serving.starting",
    },
)
