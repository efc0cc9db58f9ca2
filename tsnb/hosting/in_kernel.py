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
from tsnb.hosting.served import LEAVING_MESSAGE, SERVED_MESSAGE, seed_of
from tsnb.kernels.cargo.lane import take
from tsnb.kernels.in_kernel.arrival import arrive
from tsnb.kernels.in_kernel.output_channel import publish
from tsnb.native.ties import untie
from tsnb.text.printable import plain_warnings

__all__ = ["enter", "prove", "serve_variable"]

LEAVING_S = 5.0
"""How long the kernel may take to end in good order once its stream has."""


def enter(settings: Mapping[str, Any]) -> None:
    """Take in what was shipped. Called once, first.

    Args:
        settings: What `arrive` takes, the stream's `name`, and with a cache `kept`: the number under which its memory
            was sent.
    """
    if "kept" in settings:
        from tsnb.caching.memory import adopt

        adopt(take(settings["kept"]))
    arrive(settings, ("Producer", settings["name"]))


def prove(variable: str) -> None:
    """Take one batch of a loader, so that its faults are known before another loader is stopped for it.

    One that can be iterated only once is left alone.

    Args:
        variable: The loader's name here; if it is not a loader, serving it will say so.

    Raises:
        Exception: Whatever the loader raises.
    """
    from torch.utils.data import DataLoader

    loader = vars(sys.modules["__main__"]).get(variable, ())
    factory = callable(loader) and not hasattr(loader, "__iter__")
    batches = iter(loader(0) if factory else loader)
    if batches is not loader:
        next(batches, None)
    if isinstance(loader, DataLoader):
        loader._iterator = None  # lets go of workers that would stay for the next epoch


def serve_variable(
    variable: str, options: Mapping[str, Any], spare_seed: int | None = None, outlive: bool = False
) -> None:
    """Serve one of this kernel's variables. Returns once its first batch is there. Called once.

    Args:
        variable: The loader's name here.
        options: `tsnb.serve`'s keywords.
        spare_seed: The seed of a DataLoader that was given none: the notebook's, or one that was chosen where its order
            must be one that can be given again.
        outlive: Whether this kernel goes on when the process that started it ends.

    Raises:
        LoaderFailed: The variable does not exist, or the loader is broken or empty.
        NameInUse: The name is served.
    """
    from tsnb.serving import serve

    variables = vars(sys.modules["__main__"])
    if variable not in variables:
        raise LoaderFailed(
            f"the cell did not create the variable {variable!r}, which is to be served. Assign the loader "
            "to it"
        )
    loader, then = variables[variable], options["then"]
    if then is not None and then not in variables:
        raise LoaderFailed(
            f"the cell did not create the variable {then!r}, which then= names. Assign the frozen part to it"
        )
    seed = seed_of(loader, options["seed"], spare_seed, restarts=options["reconnect_s"] > 0)
    part = None if then is None else variables[then]
    with plain_warnings():
        producer = serve(loader, **{**options, "seed": seed, "then": part})
    producer.endings.append(lambda: publish(LEAVING_MESSAGE, {}))
    if producer.core.stop_asked.is_set():  # before its first batch
        publish(LEAVING_MESSAGE, {})
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=producer.stop).start())
    threading.Thread(target=_end_with, args=(producer,), name="tsnb-end", daemon=True).start()
    publish(SERVED_MESSAGE, {"seed": seed, "order": producer.order})
    if outlive:
        untie()


def _end_with(producer: Any) -> None:
    """End this kernel when its stream has been stopped, by whomever."""
    producer.wait()
    late = threading.Timer(LEAVING_S, os._exit, (0,))
    late.daemon = True
    late.start()

    from ipykernel.kernelapp import IPKernelApp

    loop = IPKernelApp.instance().io_loop
    loop.add_callback(loop.stop)
