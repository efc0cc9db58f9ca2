"""One sentence from two readings; readings as text; numbers from training loops."""

from __future__ import annotations

import math
import os
import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tsnb.show.words import balanced
from tsnb.telemetry import metrics
from tsnb.telemetry.readings import ConsumerReading, HostReading, ProcessReading, StreamReading
from tsnb.telemetry.shown.diagnosis import diagnose


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


def test_running_ahead_ends_where_the_kept_batches_are_full() -> None:
    """In pacing free nobody is said to go as fast as it can while the window is full and holds two of three."""
    earlier = stream(consumer("wide"), consumer("mlp"), consumer("small"), pacing="free", window=256)
    later = stream(
        consumer("wide", computing=2, lag=256, state="sets the pace"),
        consumer("mlp", computing=0.5, held=1.5),
        consumer("small", computing=1, held=1),
        pacing="free",
        window=256,
        window_fill=256,
    )
    found = diagnose(earlier, later)
    assert found.lead == "All 256 buffered batches are in use: mlp and small must wait for wide."
    assert "as fast as it can" not in "".join(balanced(later))
    assert "as fast as it can until 256 batches" in "".join(balanced(replace(later, window_fill=10)))


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
    assert found.lead == "big sets the pace."
    assert found.text == "big sets the pace. small waits for slower trials 75 % of its time."


@pytest.mark.parametrize("beside", [(), (consumer("resting", state="paused"),)])
def test_slower_trials_are_told_of_only_where_there_is_another(beside: tuple[ConsumerReading, ...]) -> None:
    """One that others have left, or that waits for those that start with it, is alone: no window would help."""
    alone = consumer("first", computing=0.86, held=1.14, state="sets the pace")
    found = diagnose(stream(consumer("first"), *beside), stream(alone, *beside, time_s=102.0))
    assert found.text == "No other trial is reading. first waited for other trials 57 % of its time."
    assert found.pace is None
    waits = consumer("first", computing=0.8, waiting=0.9, held=0.3)
    assert diagnose(stream(consumer("first")), stream(waits)).lead.startswith("The loader is the limit")


def test_no_trial_sets_the_pace_while_none_computes() -> None:
    """They wait to start together: the window has no part in that."""
    earlier = stream(consumer("a"), consumer("b"))
    found = diagnose(earlier, stream(consumer("a", held=2.0), consumer("b", held=2.0), time_s=102.0))
    assert (
        found.text == "No trial is training yet. a and b wait for other trials 100 % and 100 % of their time."
    )
    assert found.pace is None


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
        "The loader is the limit at 10.0 batches/s. a and b wait for data 60 % and 50 % of their time; "
        "more workers would help if cores are free."
    )


def test_busy_models_are_said_to_be_busy() -> None:
    """Model-bound: nothing to mend."""
    found = diagnose(stream(consumer("a")), stream(consumer("a", computing=1.9, waiting=0.1)))
    assert (found.kind, found.text) == (
        "model-bound",
        "No trial is waiting. a computes 95 % of its time.",
    )


def machine(cores: int, cpu: float, loader_cpu: float = 2.0) -> HostReading:
    loader = ProcessReading(cpu=loader_cpu, memory_bytes=1, cores=cores)
    return HostReading(cores, cpu, memory_used_bytes=1, memory_total_bytes=2, producer=loader)


@pytest.mark.parametrize(
    ("host", "workers", "advice"),
    [
        (machine(cores=8, cpu=3.0), 2, "2 more workers would help."),
        (machine(cores=4, cpu=3.0), 2, "1 more worker would help."),
        (
            machine(cores=4, cpu=3.9),
            2,
            "all 4 cores are busy, so cheaper transforms would help, but more workers",
        ),
        (machine(cores=1, cpu=1.0, loader_cpu=0.9), 0, "the only core is busy, so cheaper transforms"),
        (
            machine(cores=2, cpu=2.0, loader_cpu=0.3),
            2,
            "all 2 cores are busy, so more workers would help only if",
        ),
        (machine(cores=2, cpu=1.0, loader_cpu=0.0), 0, "num_workers=1 would help."),
        (machine(cores=8, cpu=7.1, loader_cpu=0.3), 2, "2 more workers would help."),
        (None, 0, "num_workers=2 or more would help if cores are free."),
    ],
    ids=[
        "room",
        "room for one",
        "no room",
        "one core",
        "no room, idle workers",
        "no worker yet",
        "workers that wait for a disk",
        "unknown",
    ],
)
def test_workers_are_advised_only_where_they_have_cores(
    host: HostReading | None, workers: int, advice: str
) -> None:
    """As many as would feed the consumer that waits least, and no more than there is room for."""
    earlier = stream(consumer("a"), consumer("b"))
    later = stream(
        consumer("a", computing=0.4, waiting=1.6),
        consumer("b", computing=1.0, waiting=1.0),
        time_s=102.0,
        workers=workers,
    )
    assert f"; {advice}" in diagnose(earlier, later, host).text
    assert diagnose(earlier, replace(later, host=host)) == diagnose(earlier, later, host)


@pytest.mark.parametrize(
    ("blocked_s", "workers", "host", "said"),
    [
        (1.0, 0, None, "; the loader could deliver 2.0x faster."),
        (1.0, 2, None, "; the loader could deliver up to 2.0x faster."),
        (1.0, 2, machine(cores=2, cpu=1.9, loader_cpu=1.25), "; the loader could deliver 1.6x faster."),
        (1.99, 0, None, "; the loader could deliver more than 10x faster."),
        (1.99, 2, None, "of its time."),
        (0.1, 0, None, "of its time."),
        (1.9, 2, machine(cores=2, cpu=1.9, loader_cpu=1.9), "of its time."),
    ],
)
def test_what_the_loader_has_to_spare_is_said_where_it_is_known(
    blocked_s: float, workers: int, host: HostReading | None, said: str
) -> None:
    """From the time it stood still, bounded by what its workers' cores have left; else silence."""
    earlier = stream(consumer("big"), consumer("small"), workers=workers)
    later = stream(
        consumer("big", computing=2, lag=8, state="sets the pace"),
        consumer("small", computing=0.5, held=1.5),
        time_s=102.0,
        blocked_s=blocked_s,
        workers=workers,
    )
    assert diagnose(earlier, later, host).text.endswith(said)


def test_many_trials_are_counted_not_named() -> None:
    """The sentence stays one line with eight trials."""
    small = [consumer(f"t{k}") for k in range(7)]
    earlier = stream(consumer("big"), *small)
    later = stream(
        consumer("big", computing=2.0, state="sets the pace"),
        *(replace(c, computing_s=2 - 0.2 * (k + 1), held_s=0.2 * (k + 1)) for k, c in enumerate(small)),
        time_s=102.0,
    )
    assert (
        diagnose(earlier, later).text
        == "big sets the pace. 7 trials wait for slower trials 10 to 70 % of their time."
    )


def test_a_newcomer_that_sets_the_pace_is_named_at_once() -> None:
    """Its counters began with its attachment, so they say where its time went although it was not there before."""
    later = stream(
        consumer("small", computing=0.5, held=1.5), consumer("big", computing=1, lag=8), time_s=102.0
    )
    assert diagnose(stream(consumer("small")), later).pace == "big"


def test_trials_that_hold_each_other_are_told_what_evens_it_out() -> None:
    """Nobody is the slowest for good."""
    later = stream(
        consumer("a", computing=1.6, held=0.4), consumer("b", computing=1.7, held=0.3), time_s=102.0
    )
    assert diagnose(stream(consumer("a"), consumer("b")), later).text == (
        "Each trial sets the pace at times. a and b wait for slower trials 20 % and 15 % of their time; "
        "a window larger than 8 would balance that."
    )


@pytest.mark.parametrize(
    ("later", "kind"),
    [
        (stream(), "idle"),
        (stream(consumer("a", state="joining")), "starting"),
        (stream(consumer("a", state="between epochs")), "idle"),
        (stream(consumer("a", state="timed out")), "idle"),
        (stream(state="starting"), "starting"),
        (stream(state="failed", failure="boom"), "failed"),
        (stream(state="gone"), "gone"),
    ],
)
def test_a_stream_that_does_not_stream_is_described_too(later: StreamReading, kind: str) -> None:
    """Every state has a sentence."""
    found = diagnose(stream(consumer("a", state="joining")), later)
    assert found.kind == kind
    assert found.text.endswith((".", "boom"))
    assert found.lead.endswith((".", ":"))
    assert found.text.startswith(found.lead)


def test_a_single_reading_of_a_running_stream_claims_nothing() -> None:
    """A panel that is opened late does not say that nothing has been read."""
    one = stream(consumer("a", computing=30.0))
    assert diagnose(one, one).text.startswith("a is reading.")
    fresh = stream(consumer("a", state="joining", batches=0))
    assert diagnose(fresh, fresh).text == "a is attached. No batch has been read yet."


def test_nobody_is_left_is_told_from_nobody_has_come() -> None:
    """A stream whose trials have all ended does not say that its first batches are ready."""
    fresh = replace(stream(), state="idle", batches=8, window=8)
    assert diagnose(fresh, fresh).text == "No trial is attached. The first batches are ready."
    after = replace(fresh, batches=378)
    assert (
        diagnose(fresh, after).text
        == "No trial is attached. All trials have left. Batches are ready for the next trial."
    )
    coming = {"a": "starting", "b": "running", "c": "queued: it needs 2.1 GiB"}
    awaited = replace(fresh, batches=99, pending=coming, to_come=5)
    assert diagnose(awaited, awaited).text == (
        "No trial is attached. Of the next trials, 2 are starting and 1 is queued."
    )
    more = replace(fresh, batches=99, to_come=5)
    assert diagnose(more, more).text == "No trial is attached. More trials are to start: 5."
    assert diagnose(replace(fresh, batches=99), replace(fresh, batches=99)).lead == "No trial is attached."
    assert "preparing" in diagnose(fresh, replace(fresh, state="starting")).text


def test_a_reading_survives_as_text_and_a_newer_one_can_be_read() -> None:
    """Observers of another version see what they know."""
    reading = stream(consumer("a", metrics={"loss": 0.5}))
    assert StreamReading.from_json(reading.to_json()) == reading
    brief = reading.to_json(brief=True)
    assert StreamReading.from_json(brief) == reading
    assert '"loss":0.5' in brief and '"moves"' not in brief and 2 * len(brief) < 1.5 * len(reading.to_json())
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
    metrics.log({"val": {"loss": 0.5, "acc": {"top1": 1}}})
    metrics.log("loss", 0.25)
    assert heard[2:] == [(None, {"val/loss": 0.5, "val/acc/top1": 1.0}), (None, {"loss": 0.25})]
    unsubscribe()


class Bad:
    """Raises whatever is asked of it."""

    def __float__(self) -> float:
        raise RuntimeError("not me")

    __repr__ = __str__ = __float__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("given", "rest", "words"),
    [
        (((0.3,), {}), {}, r"tsnb.log\(float\) was ignored because the numbers have no name"),
        (((object(), 1, 2), {}), {}, r"tsnb.log\(object, int, int\) was ignored"),
        (
            ((), {"loss": 1, "step": 0.5}),
            {"loss": 1.0},
            r"step=0.5\) was ignored because a step is a whole number",
        ),
        (((), {"loss": 1, "step": "last"}), {"loss": 1.0}, r"step='last'\)"),
        (((), {"loss": 1, "step": float("nan")}), {"loss": 1.0}, "step=nan"),
        (((), {"loss": 1, "step": 2**70}), {"loss": 1.0}, "step=1180591620717411303424"),
        (((), {"loss": 1, "step": Bad()}), {"loss": 1.0}, "step=<Bad>"),
        (
            ((), {"loss": torch.zeros(2), "a": 1}),
            {"a": 1.0},
            r"loss=.* of shape \(2,\), not a number .* mean",
        ),
        (((), {"loss": np.zeros((2, 3)), "a": 1}), {"a": 1.0}, r"ndarray of shape \(2, 3\)"),
        (((), {"bad": Bad(), "a": 1}), {"a": 1.0}, "it is a Bad, not a number"),
        (((), {"made": [1, 2], "a": 1}), {"a": 1.0}, "it is a list"),
        (((), {"lr": None, "a": 1}), {"a": 1.0}, ""),
        (((), {"phase": "warm", "a": 1}), {"a": 1.0}, ""),
        (((), {"a": np.float32(1), "b": torch.tensor(True), "c": False}), {"a": 1.0, "b": 1.0, "c": 0.0}, ""),
        ((({1: 2},), {}), {"1": 2.0}, ""),
    ],
)
def test_nothing_that_is_logged_ends_a_training(
    given: Any, rest: dict[str, float], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of once by its name, and all else that was logged with it is kept."""
    monkeypatch.setattr(metrics, "_warned", set())
    heard: list[dict[str, float]] = []
    unsubscribe = metrics.subscribe(lambda step, numbers: heard.append(numbers))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        metrics.log(*given[0], **given[1])
        metrics.log(*given[0], **given[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(metrics, "_warned", set())
        metrics.log(*given[0], **given[1])
    unsubscribe()
    assert heard == ([rest] * 3 if rest else [])
    assert len(told) == bool(words)
    if words:
        assert re.search(words, str(told[0].message))
        assert told[0].filename == __file__, "the place is the user's"


def test_a_listener_that_raises_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    """The others hear of it; it is told of once."""
    heard: list[dict[str, float]] = []

    def broken(step: int | None, numbers: dict[str, float]) -> None:
        raise OSError("full")

    ends = [metrics.subscribe(broken), metrics.subscribe(lambda step, numbers: heard.append(numbers))]
    metrics.log(loss=1)
    metrics.log(loss=2)
    for end in ends:
        end()
    assert heard == [{"loss": 1.0}, {"loss": 2.0}]
    assert caplog.text.count("could not be sent on") == 1


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
        "tsnb.log has no effect in a child process of the trial, such as a DataLoader worker. "
        "Call it in the trial itself."
    )
    os.close(receiving)
    os.close(sending)


def test_by_weight_nobody_is_blamed_for_who_is_held_back() -> None:
    """No model sets the pace there, and a wider window would change nothing."""
    earlier = stream(consumer("light"), consumer("heavy"), pacing="weights")
    later = stream(
        consumer("light", computing=0.5, held=1.5),
        consumer("heavy", computing=2),
        pacing="weights",
        time_s=102.0,
    )
    found = diagnose(earlier, later)
    assert (found.kind, found.pace) == ("weighed", None)
    assert found.text == "Compute is shared by weight. light waits for slower trials 75 % of its time."


def test_a_group_that_waits_for_a_rank_names_it() -> None:
    """While nobody reads, that is what matters; while others do, what limits them does."""
    rank = consumer("bert[0]", state="awaits ranks", batches=0, awaits="ranks 2 and 3 of 4")
    alone = stream(rank, consumer("bert[1]", state="joining", batches=0))
    assert diagnose(alone, alone).lead == "bert waits for ranks 2 and 3 of 4."
    found = diagnose(stream(rank, consumer("a")), stream(rank, consumer("a", computing=2.0)))
    assert "bert" not in found.text
