"""What a detached trial's kernel does itself, since its notebook may be gone: enter itself, bound its log, end."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from ipykernel.kernelapp import IPKernelApp

from tsnb.errors import TsnbError
from tsnb.kernels.output.logfile import LogFile
from tsnb.records.detached_entries import DetachedEntry
from tsnb.records.run import Run

__all__ = ["enter_detached", "leave"]

REPLY_S = 0.5
"""How long the kernel stays after its code, so that a notebook that is still there gets its last words."""

LEAVING_S = 5.0
"""How long it may take to end in good order after that; a thread of the user's may not let it."""


LOOK_S = 2.0
"""How often the size of the log is looked at."""


def enter_detached(run: Run) -> None:
    """Make this process known to other notebooks. If that fails, a warning says so, and training goes on."""
    threading.Thread(target=_bound, args=(LogFile(run.log_path),), name="tsnb-log", daemon=True).start()
    try:
        DetachedEntry.here(
            run.as_settings(), IPKernelApp.instance().abs_connection_file, str(run.log_path)
        ).write()
    except (TsnbError, OSError) as error:
        logging.getLogger("tsnb").warning("other notebooks will not find this trial: %s", error)


def leave(failure: str) -> None:
    """End this kernel soon. Called once, when its code has ended, on its main thread.

    Args:
        failure: Written at the end of its log: a traceback otherwise goes to front ends only.
    """
    if failure:
        _write_down(failure)
    loop = IPKernelApp.instance().io_loop
    loop.call_later(REPLY_S, loop.stop)
    late = threading.Timer(REPLY_S + LEAVING_S, os._exit, (0,))
    late.daemon = True
    late.start()


def _bound(log: LogFile) -> None:
    """Keep the log, which this process's standard output is, from filling the disk."""
    while log.path.exists():  # else there is nothing that grows under that name any more
        log.shorten()
        time.sleep(LOOK_S)


def _write_down(text: str) -> None:
    """Write to the process's own standard error, past what goes to front ends."""
    descriptor = getattr(sys.stderr, "_original_stdstream_copy", None)
    if isinstance(descriptor, int):
        os.write(descriptor, f"{text}\n".encode(errors="replace"))
