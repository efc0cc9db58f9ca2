"""What a producer kernel does: take in a loader, serve it, and end when the stream has ended.

Called in the child, on its main thread, which is free again as soon as the first batch is there: the stream
has threads of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from tsnb.errors import LoaderFailed
from tsnb.kernels.inside.arrival import arrive

__all__ = ["enter", "serve_variable"]

LEAVING_S = 5.0
"""How long the kernel may take to end in good order once its stream has."""


def enter(settings: Mapping[str, Any]) -> None:
    """Take in what was shipped. Called once, first.

    Args:
        settings: What `arrive` takes, and the stream's `name`.
    """
    arrive(settings, ("Producer", settings["name"]))


def serve_variable(variable: str, options: Mapping[str, Any]) -> None:
    """Serve one of this kernel's variables. Returns once its first batch is there. Called once.

    Args:
        variable: The loader's name here.
        options: `tsnb.serve`'s keywords.

    Raises:
        LoaderFailed: There is no such variable, or the loader is broken or empty.
        NameInUse: The name is served.
    """
    from tsnb.producer import serve

    variables = vars(sys.modules["__main__"])
    if variable not in variables:
        raise LoaderFailed(f"the cell has to build a variable named {variable!r}: that is what is served")
    producer = serve(variables[variable], **options)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=producer.stop).start())
    threading.Thread(target=_end_with, args=(producer,), name="tsnb-end", daemon=True).start()


def _end_with(producer: Any) -> None:
    """End this kernel when its stream has been stopped, by whomever."""
    producer.wait()
    late = threading.Timer(LEAVING_S, os._exit, (0,))
    late.daemon = True
    late.start()

    from ipykernel.kernelapp import IPKernelApp

    loop = IPKernelApp.instance().io_loop
    loop.add_callback(loop.stop)
