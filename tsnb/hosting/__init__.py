"""Loaders served from background kernels: started, restarted, reloaded, started again when they crash.

What the notebook's own code calls (`ProducerKernel`) hands work to the thread that owns all kernels
(`tsnb.kernels.hub`) and waits. Names load on first use.

| module | what it owns |
|---|---|
| `serving`, `served` | loaders served from background kernels: starting, reloading; what from, and how |
| `producing`, `life` | one stream through all lives of its kernel; one such life |
| `stopping` | the end of a stream, asked for by its name, also while it is being restarted |
| `refusals` | which changes of a stream are refused, and why |
| `crashes` | how far a stream had come, and whether its crashed producer is started again |
| `supervising` | the same for a process of the command line: `tsnb serve --restart on-crash` |
| `in_kernel` | what runs in a producer's kernel |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.hosting.producing import ProducerKernel
    from tsnb.hosting.serving import producer_kernels, serve_from_cell, serve_loader

__all__ = ["ProducerKernel", "producer_kernels", "serve_from_cell", "serve_loader"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ProducerKernel": "tsnb.hosting.producing",
        "producer_kernels": "tsnb.hosting.serving",
        "serve_from_cell": "tsnb.hosting.serving",
        "serve_loader": "tsnb.hosting.serving",
    },
)
