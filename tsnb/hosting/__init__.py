"""Loaders served from background kernels: started, restarted, reloaded, started again when they crash.

What the notebook's own code calls (`ProducerKernel`) hands work to the thread that owns all kernels
(`tsnb.kernels.hub`) and waits. Names load on first use.

| module | what it owns |
|---|---|
| `serving`, `served` | loaders served from background kernels: starting, reloading; what from, and how |
| `producing`, `life` | one stream through all lives of its kernel; one such life |
| `refusals` | which changes of a stream are refused, and why |
| `crashes` | how far a stream had come, and whether its crashed producer is started again |
| `supervising` | the same for a process of the command line: `tsnb serve --restart on-crash` |
| `in_kernel` | what runs in a producer's kernel |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsnb.hosting.producing import ProducerKernel
    from tsnb.hosting.serving import producer_kernels, serve_from_cell, serve_loader

__all__ = ["ProducerKernel", "producer_kernels", "serve_from_cell", "serve_loader"]

_HOMES = {
    "ProducerKernel": "producing",
    "producer_kernels": "serving",
    "serve_from_cell": "serving",
    "serve_loader": "serving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
