"""What a trial kernel does before, after and between its cell: called in the child, on its main thread."""

from __future__ import annotations

import difflib
import math
import sys
from pathlib import Path
from typing import Any

from tsnb.config import attach_defaults
from tsnb.kernels.inside.arrival import arrive, seed_everything, use_threads
from tsnb.kernels.inside.reporting import LOG_MESSAGE, REPORT_MESSAGE, Reporter, Row, publish
from tsnb.kernels.shipping import ship

__all__ = ["deliver", "enter", "finish"]


def _send_rows(rows: list[Row]) -> None:
    publish(LOG_MESSAGE, {"rows": [(step, moment, _as_json(numbers)) for step, moment, numbers in rows]})


def _as_json(numbers: dict[str, float]) -> dict[str, float | str]:
    """JSON has no word for nan and inf: they travel as text, which `float` reads."""
    return {name: value if math.isfinite(value) else repr(value) for name, value in numbers.items()}


_reporters: list[Reporter] = []


def enter(settings: dict[str, Any]) -> None:
    """Get ready for the trial's cell. Called once, before it.

    Args:
        settings: What `arrive` takes, and the trial's name, producer, batch_size, device, seed, threads.
    """
    from tsnb.telemetry.metrics import subscribe

    attach_defaults.name = settings["name"]
    attach_defaults.producer = settings["producer"]
    attach_defaults.batch_size = settings["batch_size"]
    attach_defaults.device = settings["device"]
    reporter = Reporter(_send_rows)
    _reporters.append(reporter)
    subscribe(reporter.take)
    arrive(settings, ("Trial", settings["name"]))
    use_threads(settings["threads"])
    if settings["seed"] is not None:
        seed_everything(settings["seed"])


def finish() -> None:
    """Report what is left, and leave every stream. Called once, when the cell has ended, however it did."""
    for reporter in _reporters:
        reporter.flush()
    consumer = sys.modules.get("tsnb.consumer")
    if consumer is not None:
        publish(REPORT_MESSAGE, _report(consumer.consumers()))
        consumer.detach_all()


def _report(consumers: list[Any]) -> dict[str, Any]:
    """Return what the results show of a trial's consumers, all of them together."""
    stats = [consumer.stats() for consumer in consumers]
    samples, inside_s = sum(s.samples for s in stats), sum(s.inside_s for s in stats)
    return {
        "stream": ", ".join(dict.fromkeys(consumer.producer for consumer in consumers)),
        "epochs": sum(s.epochs for s in stats),
        "samples": samples,
        "samples_per_s": round(samples / inside_s, 1) if inside_s else 0.0,
    }


def deliver(name: str, path: str) -> None:
    """Write one of the cell's variables for the notebook to fetch.

    Raises:
        KeyError: There is none of that name; says which there are.
        NotShippable: It cannot travel.
    """
    variables = vars(sys.modules["__main__"])
    if name not in variables:
        own = [n for n in variables if not n.startswith("_")]
        near = difflib.get_close_matches(name, own, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise KeyError(f"the trial has no variable {name!r}.{hint}")
    ship({name: variables[name]}, Path(path), f"pulling {name!r} out of the trial")
