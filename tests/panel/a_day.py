"""A simulated day of one stream, and the pages that open in it, kept by the front end's code (`frontend/day.mjs`)."""

from __future__ import annotations

import base64
import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.panel.test_frontend import TESTS, node
from tests.reports.made import START_S, consumer, reading
from tsnb.panel.tape import Tape
from tsnb.telemetry.readings import ConsumerReading, EndReading, StreamReading

__all__ = ["EPOCH", "EVERY_S", "READINGS", "loss", "pages_of", "readings_of_a_day"]

EPOCH = 500
"""Loader batches."""
EVERY_S = 4.0
"""Between two readings: a sixteenth of what a real day brings, over as many batches."""
READINGS = 21_600
PER_S = 9.7
"""Batches a second of the fastest."""


def loss(batches: int, k: int) -> float:
    """Return a loss that is below 0.1 after 1,500 batches, and its noise."""
    return 2.3 * math.exp(-batches / 400) + 0.05 + 0.02 * math.sin(batches * 1.7 + k)


def validated(epoch: int) -> float:
    """Return an accuracy that stays the same for two epochs."""
    return 1 - 1 / (2 + epoch // 2)


def _trial(k: int, after_s: float) -> ConsumerReading:
    begins_s = (0.0, 30_000.0, 0.0)[k]
    busy_s = after_s - begins_s
    batches = int(busy_s * PER_S)
    metrics, logged_at = {"loss": loss(batches, k)}, {"loss": batches}
    if batches >= EPOCH:
        metrics["val_acc"] = validated(batches // EPOCH)
        logged_at["val_acc"] = batches // EPOCH * EPOCH
    return consumer(
        ("all-day", "late", "short")[k],
        *(0.7 * busy_s, 0.1 * busy_s, 0.1 * busy_s),
        batches=batches,
        pid=10 + k,
        epoch=batches // EPOCH,
        position=batches % EPOCH,
        epochs=1 + batches // EPOCH,
        metrics=metrics,
        logged_at=logged_at,
        sparse=("val_acc",) if batches >= EPOCH else (),
    )


def readings_of_a_day(count: int = READINGS) -> Iterator[StreamReading]:
    """Give readings of one trial all day, one that comes late, and one that ends in the afternoon."""
    for number in range(count):
        after_s = number * EVERY_S
        here = [k for k in range(3) if (k != 1 or after_s > 30_000) and (k != 2 or after_s < 50_000)]
        ends: tuple[EndReading, ...] = ()
        if after_s >= 50_000:
            ends = (EndReading("short", "done", START_S + 50_000, 12, "", {"loss": 0.0625}),)
        batches = int(after_s * PER_S)
        fields = {"batches": batches, "epoch": batches // EPOCH, "published": batches % EPOCH}
        yield reading(
            after_s, *(_trial(k, after_s) for k in here), ends=ends, epoch_batches=EPOCH, name="day", **fields
        )


def pages_of(tape: Tape, its: Iterator[StreamReading], opened: Sequence[int], folder: Path) -> Any:
    """Return what the front end has at the end in each page, those opened after so many readings, in the order of time.

    Args:
        tape: Fed with all of it.
        its: The readings.
        opened: After how many readings another page opens; 0: before the first.
        folder: Where what is told to the pages is written.
    """
    path = folder / "told.jsonl"
    with path.open("w", encoding="utf-8") as file:

        def write(what: dict[str, Any]) -> None:
            file.write(json.dumps(what) + "\n")

        for number, one in enumerate(its):
            if number in opened:
                parts = [base64.b64encode(part).decode() for part in (tape.history(), tape.curves())]
                write({"scene": tape.scene(), "history": parts[0], "curves": parts[1]})
            message = tape.feed(one)
            write({"content": message.content, "frame": base64.b64encode(message.frame).decode()})
    done = subprocess.run(
        [node(), str(TESTS / "day.mjs"), str(path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
