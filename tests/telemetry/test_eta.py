"""How long trials still take: played trainings with a clock of their own."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from tests.panel.streams import three_models
from tsnb.show.words import all_left, remaining
from tsnb.telemetry.forecast.eta import NO_ETA, Eta, last_of
from tsnb.telemetry.forecast.etas import Etas
from tsnb.telemetry.readings import ConsumerReading, StreamReading


@dataclass
class Training:
    """A training of equal epochs, as readings would tell of it four times a second."""

    epochs: int = 8
    batches: int = 100
    step_s: float = 0.5
    gap_s: float = 0.0
    """Between two epochs, and after the last."""
    noise: float = 0.0
    drift: float = 0.0
    """By how much a step is longer at the end than at the start, as a share."""
    planned: int | None = None
    stops_at: int | None = None
    """Batches after which its loop breaks."""
    has_length: bool = True
    seed: int = 0

    @property
    def long(self) -> int:
        return self.stops_at or self.batches

    def events(self) -> list[tuple[float, float, int, int, bool]]:
        """Time, seconds inside, epochs begun, position, whether inside; at each batch taken and each epoch's end."""
        luck, time_s, inside_s, found = random.Random(self.seed), 0.0, 0.0, []
        for epoch in range(1, self.epochs + 1):
            slow = 1.0
            for position in range(1, self.long + 1):
                found.append((time_s, inside_s, epoch, position, True))
                if position % 10 == 1:  # noise that lasts for some batches, as another program makes it
                    slow = math.exp(luck.gauss(0, self.noise))
                done = (epoch - 1 + position / self.long) / self.epochs
                step_s = self.step_s * slow * (1 + self.drift * done)
                time_s, inside_s = time_s + step_s, inside_s + step_s
            found.append((time_s, inside_s, epoch, self.long, False))
            time_s += self.gap_s
        found.append((time_s, inside_s, self.epochs, self.long, False))
        return found

    def readings(self, every_s: float = 0.25, pid: int = 1) -> Iterator[tuple[float, StreamReading]]:
        """Give readings, each with the seconds that are really left."""
        events, blank = self.events(), three_models().reading()
        end_s, at = events[-1][0], 0
        for k in range(int(end_s / every_s)):
            now_s = k * every_s
            while at + 1 < len(events) and events[at + 1][0] <= now_s:
                at += 1
            began_s, inside_s, epoch, position, inside = events[at]
            if inside:
                inside_s += now_s - began_s
            consumer = ConsumerReading(
                "cnn", pid, "streaming" if inside else "between epochs", epoch - 1, position, 0, 0,
                (epoch - 1) * self.long + position, 0, inside_s, 0.0, 0.0, epochs=epoch,
                planned=self.epochs if self.planned is None else self.planned,
            )  # fmt: skip
            length = self.batches if self.has_length else None
            yield (
                end_s - now_s,
                replace(blank, time_s=1e9 + now_s, epoch_batches=length, consumers=(consumer,)),
            )


def asked(training: Training, *shares: float) -> list[tuple[float, Eta]]:
    """Return what is really left and what is said, when so much of the time has passed."""
    etas, said = Etas(), []
    readings = list(training.readings(training.step_s / 2))
    for k, (left_s, reading) in enumerate(readings):
        etas.feed(reading)
        if k in {int(len(readings) * share) for share in shares}:
            said.append((left_s, etas.of("cnn")))
    return said


@pytest.mark.parametrize("gap_s", [0.0, 20.0])
def test_a_quarter_of_the_way_it_is_within_a_tenth(gap_s: float) -> None:
    """With epochs alike, noisy steps and a validation after each: within 10 % at a quarter, and of the whole later."""
    for seed in range(5):
        (left_s, first), *later = asked(
            Training(gap_s=gap_s, noise=0.15, seed=seed), 0.25, 0.3, 0.5, 0.75, 0.9
        )
        assert first.whole and first.left_s == pytest.approx(left_s, rel=0.1)
        for after_s, eta in later:
            assert abs(eta.left_s - after_s) <= 0.1 * left_s, seed


@pytest.mark.parametrize(
    ("epoch_s", "batches", "epochs", "stops_at"),
    [
        (0.43, 32, 40, None),
        (1.3, 100, 12, None),
        (1.3, 100, 12, 40),
        (2.6, 100, 8, None),
        (60.0, 100, 3, None),
    ],
)
def test_epochs_may_be_as_short_as_the_time_between_two_readings(
    epoch_s: float, batches: int, epochs: int, stops_at: int | None
) -> None:
    """Where an epoch was left nobody sees, four times a second: how far apart two of them begin, counters tell."""
    training = Training(epochs, batches, epoch_s / (stops_at or batches), stops_at=stops_at)
    etas, readings = Etas(), list(training.readings())
    for k, (left_s, reading) in enumerate(readings):
        etas.feed(reading)
        if 0.2 * len(readings) <= k <= 0.8 * len(readings):
            eta = etas.of("cnn")
            assert eta.left_s == pytest.approx(left_s, rel=0.03) and eta.low_s <= left_s <= eta.high_s


def test_intervals_hold_about_four_times_in_five() -> None:
    """Over trainings that are noisy in bursts and become slower: neither never wrong nor mostly wrong."""
    held = []
    for seed in range(40):
        drift = random.Random(seed).uniform(-0.2, 0.2)
        for left_s, eta in asked(Training(epochs=4, noise=0.3, drift=drift, seed=seed), 0.3, 0.6):
            held.append(eta.low_s <= left_s <= eta.high_s)
    assert 0.65 <= sum(held) / len(held) <= 0.97


def test_the_epochs_of_a_clone_are_counted_with_those_that_it_goes_on_from() -> None:
    """As those that it has taken are: 3.5 of 8, say, and never of 6."""
    etas = Etas()
    for _, reading in Training(epochs=6).readings():
        clone = replace(reading.consumers[0], epochs_before=2)
        etas.feed(replace(reading, consumers=(clone,)))
        assert etas.of("cnn").epochs in (0, 8)
    assert etas.of("cnn").epochs == 8


def test_a_change_of_pace_is_believed_soon() -> None:
    """Another trial joins and halves the pace: from that moment on only the new one counts."""
    etas = Etas()
    readings = [reading for _, reading in Training(epochs=10).readings(0.5)]
    half = len(readings) // 2
    for reading in readings[:half]:
        etas.feed(reading)
    before, then_s = etas.of("cnn"), readings[half - 1].time_s
    for reading in readings[half : half + 50]:  # the same, in twice the time
        now, more_s = reading.consumers[0], reading.time_s - then_s
        slower = replace(now, computing_s=now.computing_s + more_s)
        both = slower, replace(slower, name="other")
        etas.feed(replace(reading, time_s=then_s + 2 * more_s, consumers=both))
    assert before.left_s == pytest.approx(250, rel=0.03)
    assert etas.of("cnn").left_s == pytest.approx(450, rel=0.05), "225 s at the old pace"


def test_of_its_first_moments_nothing_is_concluded() -> None:
    """Steps of 5 ms, the first ones ten times as long while others start: no number rather than one far too large."""
    etas, said = Etas(), []
    for left_s, reading in Training(epochs=2, batches=4000, step_s=0.005).readings(0.25):
        now = reading.consumers[0]
        slow_s = min(0.5, 9 * now.computing_s)  # what those first steps have taken more
        later = replace(
            reading,
            time_s=reading.time_s + slow_s,
            consumers=(replace(now, computing_s=now.computing_s + slow_s),),
        )
        etas.feed(later)
        if (eta := etas.of("cnn")).known:
            said.append((left_s, eta.left_s))
    assert said[0][0] > 37, "it is told soon"
    assert all(said_s == pytest.approx(left_s, rel=0.25) for left_s, said_s in said if left_s > 1)


def test_who_looks_late_is_told_the_same_at_once() -> None:
    """Another notebook, a terminal: a trial's counters say its mean pace, so nobody has to watch it for a minute."""
    first, late = Etas(), Etas()
    readings = [reading for _, reading in Training(epochs=10, noise=0.15).readings()]
    half = len(readings) // 2
    for reading in readings[:half]:
        first.feed(reading)
    for reading in readings[half : half + 8]:
        first.feed(reading)
        late.feed(reading)
        told = late.of("cnn")
        assert told.left_s == pytest.approx(first.of("cnn").left_s, rel=0.1)
        assert told.low_s <= first.of("cnn").left_s <= told.high_s


def test_without_a_number_of_epochs_it_goes_to_the_end_of_this_one() -> None:
    """And says so; the same where the loop has gone on beyond the number that was said."""
    ((left_s, eta),) = asked(Training(planned=0), 0.3)
    in_epoch_s = left_s % 50
    assert eta.known and not eta.whole and eta.left_s == pytest.approx(in_epoch_s, abs=2)
    assert remaining(eta).startswith("epoch 0:")
    assert all_left(eta) == ""
    (_, within), (_, beyond) = asked(Training(epochs=8, planned=2), 0.2, 0.6)
    assert (within.epochs, beyond.epochs) == (2, 0)


def test_a_loop_that_breaks_and_a_loader_without_length() -> None:
    """An epoch is as long as the last one was; before that nothing is known where the loader has no length."""
    for training in (Training(stops_at=40), Training(has_length=False)):
        ((left_s, eta),) = asked(training, 0.5)
        assert eta.left_s == pytest.approx(left_s, rel=0.05)
    assert asked(Training(has_length=False), 0.1)[0][1] is NO_ETA


def test_a_training_that_was_parked_and_one_that_is_started_anew() -> None:
    """Time in which it stood still makes its gaps no longer; another process begins anew."""
    etas = Etas()
    readings = [reading for _, reading in Training(gap_s=5.0).readings()]
    half = readings[: len(readings) // 2]
    for reading in half:
        etas.feed(reading)
    before, rest_s = etas.of("cnn"), 400.0
    parked = replace(half[-1].consumers[0], state="timed out")
    for k in range(1, 101):
        etas.feed(replace(half[-1], time_s=half[-1].time_s + k * rest_s / 100, consumers=(parked,)))
    assert not etas.of("cnn").known
    for reading in readings[len(half) : len(half) + 40]:
        etas.feed(replace(reading, time_s=reading.time_s + rest_s))
    assert etas.of("cnn").left_s == pytest.approx(before.left_s - 10, rel=0.03)
    for _, reading in Training(step_s=0.1).readings(pid=2):
        etas.feed(replace(reading, time_s=reading.time_s + 10_000))
        if reading.consumers[0].batches == 400:
            break
    assert etas.of("cnn").left_s == pytest.approx(40, rel=0.05)


def test_a_producer_that_is_started_again_is_no_new_start() -> None:
    """Counters begin at 0 again and the trial goes on in the middle of its epoch: epochs and pace are known."""
    etas = Etas()
    readings = list(Training(epochs=4).readings())
    half = len(readings) * 3 // 8
    for _, reading in readings[:half]:
        etas.feed(reading)
    base = readings[half - 1][1].consumers[0]
    for left_s, reading in readings[half : half + 60]:
        now = reading.consumers[0]
        fresh = replace(
            now,
            batches=now.batches - base.batches,
            computing_s=now.computing_s - base.computing_s,
            epochs=1,
        )
        etas.feed(replace(reading, pid=99, consumers=(fresh,)))
        assert left_s
    assert etas.of("cnn").left_s == pytest.approx(left_s, rel=0.05)


def test_all_trials_end_with_the_last() -> None:
    """All of them: the longest; not known where that of one is not."""
    short, long = Eta(60, 50, 80, 3), Eta(750, 600, 900, 10)
    assert last_of([short, long]) == long
    assert last_of([short, NO_ETA]) is NO_ETA and last_of([]) is NO_ETA
    assert last_of([short, Eta(9, 8, 10, 0)]) is NO_ETA
    assert all_left(long) == "all done in 12:30 (10:00 to 15:00)"
    noon_s = datetime.fromisoformat("2026-11-24 12:00").astimezone().timestamp()
    assert all_left(long, noon_s) == "all done in 12:30, at 12:12 (10:00 to 15:00)"
    assert "at 2026-11-25 00:02 (" in all_left(long, noon_s + 42_600), "tomorrow"
    assert remaining(long) == "12:30" and remaining(NO_ETA) == "\u2013"
