"""One sentence from two readings; readings as text; numbers from training loops."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tsnb.telemetry import metrics
from tsnb.telemetry.diagnosis import diagnose
from tsnb.telemetry.readings import ConsumerReading, StreamReading


def consumer(
    name: str, *, computing: float = 0, waiting: float = 0, held: float = 0, **more: object
) -> ConsumerReading:
    made = ConsumerReading(name, 1, "streaming", 0, 5, 0, 0, 5, 320, computing, waiting, held)
    return replace(made, **more)  # type: ignore[arg-type]


def stream(*consumers: ConsumerReading, **more: object) -> StreamReading:
    made = StreamReading(
        time_s=100.0,
        name="mnist",
        pid=1,
        state="serving",
        epoch=0,
        published=10,
        epoch_batches=79,
        window=8,
        window_fill=0,
        batches=10,
        loading_s=0,
        blocked_s=0,
        workers=2,
        slots_used=1,
        slots=9,
        slot_bytes=4096,
        touched_bytes=4096,
        in_place=10,
        copied=0,
        consumers=consumers,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_slowest_model_is_named_when_others_are_held_back() -> None:
    """Window-bound: who, and how much of whose time."""
    earlier = stream(consumer("big"), consumer("small"))
    later = stream(
        consumer("big", computing=2, lag=8, state="sets the pace"),
        consumer("small", computing=0.5, held=1.5),
        time_s=102.0,
    )
    found = diagnose(earlier, later)
    assert (found.kind, found.pace) == ("window-bound", "big")
    assert found.text == "big sets the pace: small spends 75% of its time held back."


def test_the_loader_is_named_when_consumers_wait_for_data() -> None:
    """Loader-bound: its rate, its workers, and what would help."""
    earlier = stream(consumer("a"), consumer("b"))
    later = stream(
        consumer("a", computing=0.8, waiting=1.2),
        consumer("b", computing=1, waiting=1),
        time_s=102.0,
        batches=30,
    )
    found = diagnose(earlier, later)
    assert found.kind == "loader-bound"
    assert found.text == (
        "The loader is the limit at 10.0 batches/s (2 workers): a spends 60% and b spends 50% of their time "
        "waiting for data; more workers would help if cores are free."
    )


def test_busy_models_are_said_to_be_busy() -> None:
    """Model-bound: nothing to mend."""
    found = diagnose(stream(consumer("a")), stream(consumer("a", computing=1.9, waiting=0.1)))
    assert (found.kind, found.text) == (
        "model-bound",
        "a is busy computing at least 95% of the time; nobody waits.",
    )


@pytest.mark.parametrize(
    ("later", "kind"),
    [
        (stream(), "idle"),
        (stream(consumer("a", state="joining")), "starting"),
        (stream(consumer("a", state="between epochs")), "idle"),
        (stream(state="failed", failure="boom"), "failed"),
        (stream(state="gone"), "gone"),
    ],
)
def test_a_stream_that_does_not_stream_is_described_too(later: StreamReading, kind: str) -> None:
    """Every state has a sentence."""
    found = diagnose(stream(consumer("a", state="joining")), later)
    assert found.kind == kind
    assert found.text.endswith((".", "boom"))


def test_a_reading_survives_as_text_and_a_newer_one_can_be_read() -> None:
    """Observers of another version see what they know."""
    reading = stream(consumer("a", metrics={"loss": 0.5}))
    assert StreamReading.from_json(reading.to_json()) == reading
    newer = reading.to_json().replace('"window":8', '"window":8,"new_thing":1')
    assert StreamReading.from_json(newer) == reading
    with pytest.raises(ValueError, match="not a stream reading"):
        StreamReading.from_json('{"name": "x"}')


def test_logged_numbers_reach_listeners_and_the_last_ones_are_kept() -> None:
    """Numbers, 0-d tensors, one-element tensors."""
    heard: list[tuple[int | None, dict[str, float]]] = []
    unsubscribe = metrics.subscribe(lambda step, numbers: heard.append((step, numbers)))
    metrics.log(loss=torch.tensor(0.5), accuracy=1)
    metrics.log(step=3, loss=torch.tensor([0.25]))
    unsubscribe()
    unsubscribe()
    metrics.log(loss=9)
    assert heard == [(None, {"loss": 0.5, "accuracy": 1.0}), (3, {"loss": 0.25})]
    assert metrics.latest()["loss"] == 9
    with pytest.raises(TypeError, match=r"shape \(2,\).*mean"):
        metrics.log(loss=torch.zeros(2))


def test_numbers_in_a_dict_and_steps_as_they_come() -> None:
    """As other loggers take them; what cannot be meant is told with the way to write it."""
    heard: list[tuple[int | None, dict[str, float]]] = []
    unsubscribe = metrics.subscribe(lambda step, numbers: heard.append((step, numbers)))
    metrics.log({"loss": 1, "step": 5}, step=np.int64(3), accuracy=2)
    metrics.log(huge=10**400, low=-(10**400), step=4)
    assert heard == [
        (3, {"loss": 1.0, "step": 5.0, "accuracy": 2.0}),
        (4, {"huge": math.inf, "low": -math.inf}),
    ]
    wrong: Any
    for wrong, words in (
        (((0.3,), {}), r"tsnb.log\(0.3\): give numbers a name"),
        (((), {"loss": 1, "step": 0.5}), "whole number"),
        (((), {"loss": 1, "step": "last"}), "takes a number"),
    ):
        with pytest.raises(TypeError, match=words):
            metrics.log(*wrong[0], **wrong[1])
    unsubscribe()
    assert len(heard) == 2


def test_what_a_forked_child_logs_is_told_to_go_nowhere() -> None:
    """The threads that send it on are in the parent; a child that is heard itself (by a stream) is left alone."""
    unsubscribe = metrics.subscribe(lambda step, numbers: None)
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            metrics.log(loss=1)
            metrics.log(loss=2)
        os.write(sending, "|".join(str(warning.message) for warning in told).encode())
        os._exit(0)
    os.waitpid(child, 0)
    unsubscribe()
    assert os.read(receiving, 1000).decode() == (
        "tsnb.log in a child process of the trial (a DataLoader worker, say) is not heard: log in the trial itself."
    )
    os.close(receiving)
    os.close(sending)
