"""`tsnb.doctor`: all checks, one after the other.

Two of them try the real thing: a loader with a worker is served here, and taken here and by a real trial kernel.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, TensorDataset

from tsnb.attaching import attach
from tsnb.checks import machine
from tsnb.checks.findings import Checkup, Finding
from tsnb.kernels.hub import Hub, the_hub
from tsnb.kernels.processes.child import Child
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.telemetry.observer import status

__all__ = ["doctor", "stream", "trial"]

SAMPLES, BATCH = 40, 8
IN_TRIAL = """
import tsnb
with tsnb.attach("doctor", stream={name!r}) as batches:
    seen = [sample for batch, in batches for sample in batch[:, 0].tolist()]
assert seen == list(range({samples})), f"the trial got {{seen}}"
"""


@contextlib.contextmanager
def _served() -> Iterator[str]:
    """Serve a small loader with one worker; give the stream's name."""
    rows = torch.arange(float(SAMPLES))[:, None].repeat(1, 64)
    loader: DataLoader[Any] = DataLoader(TensorDataset(rows), BATCH, num_workers=1)
    name = f"doctor-{os.getpid()}"
    with serve_here(loader, StreamOptions(stall_timeout_s=5.0), name=name):
        yield name


def stream() -> Finding:
    """Serve a loader and take an epoch of it."""
    began = time.perf_counter()
    with _served() as name, attach("doctor", name) as consumer:
        seen = [sample for (batch,) in consumer for sample in batch[:, 0].tolist()]
        in_place = status(name).in_place
    took_s = time.perf_counter() - began
    if seen != list(range(SAMPLES)):
        return Finding(
            "stream", "fails", f"An epoch of {SAMPLES} samples arrived as {seen}.", "Please report this."
        )
    says = f"tsnb served a loader, and received every sample once, in order, in {took_s:.1f} s."
    if not in_place:
        says += " Its worker could not write into shared memory, so batches are copied once."
        return Finding("stream", "limited", says)
    return Finding("stream", "works", says)


@contextlib.contextmanager
def _kernel(hub: Hub) -> Iterator[Child]:
    """Start a background kernel."""

    async def made() -> Child:
        return Child(hub, "doctor", lambda *_: None)

    child = hub.call(made())
    try:
        hub.call(child.start())
        yield child
    finally:
        hub.call(child.kill())


def trial() -> Finding:
    """Start a real trial kernel, and let it take an epoch."""
    hub = the_hub()
    with _served() as name, _kernel(hub):  # the first one waits for the fork server's imports
        began = time.perf_counter()
        with _kernel(hub) as child:
            ready_s = time.perf_counter() - began
            reply = hub.call(child.execute(IN_TRIAL.format(name=name, samples=SAMPLES), order=True))
            forked = psutil.Process(child.pid).ppid() != os.getpid()
    if reply["status"] != "ok":
        return Finding("trials", "fails", f"A trial raised {reply['ename']}: {reply['evalue']}")
    says = f"A background kernel was ready in {ready_s:.1f} s and read an epoch of that loader."
    if forked:
        return Finding("trials", "works", says)
    why = (
        "TSNB_START=spawn is set."
        if os.environ.get("TSNB_START") == "spawn"
        else "See docs/how-trials-start.md for the reason."
    )
    return Finding(
        "trials",
        "limited",
        f"{says} It was started as a new process, not forked, which takes 2 s and 170 MiB per trial.",
        why,
    )


CHECKS: dict[str, Callable[[], Finding]] = {
    "system": machine.system,
    "cores": machine.cores,
    "memory": machine.memory,
    "open files": machine.open_files,
    "directories": machine.files,
    "only you": machine.only_you,
    "stream": stream,
    "trials": trial,
    "panel": machine.panel,
    "GPU": machine.gpus,
    "extras": machine.extras,
}
"""Each part, and what looks at it."""


def doctor() -> Checkup:
    """Check what works on this machine, with a real stream and trial.

    Takes some seconds, leaves nothing behind, and does not disturb running trials.

    Example:
        >>> tsnb.doctor().works

    Returns:
        What works, what does not, and what to do about it. It shows as a list or table, with `works` for programs.
    """
    return Checkup([_checked(part, check) for part, check in CHECKS.items()])


def _checked(part: str, check: Callable[[], Finding]) -> Finding:
    """Run one check; whatever it raises is what was found."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  # the next check may say why
        return Finding(part, "fails", f"{type(error).__name__}: {error}")
