"""What others' ends do to a trial's pace, and so to how long it takes: several trials played on one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests.panel.streams import three_models
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.forecast.etas import Etas, _ends
from tsnb.telemetry.readings import BesideReading, ConsumerReading, HostReading, ProcessReading, StreamReading

LONG = 100
"""Batches of an epoch."""


@dataclass
class Played:
    """One trial on the stream."""

    step_s: float
    epochs: int
    cpu_s: float = 0.0
    taken: float = 0.0
    computing_s: float = 0.0
    held_s: float = 0.0
    ended_s: float = 0.0
    says: bool = True
    """Whether it says how many epochs it takes."""


@dataclass
class Stream:
    """All on one stream, whose pace is told by whatever takes longest; a reading four times a second."""

    trials: dict[str, Played]
    loader_s: float = 0.001
    loader_cpu_s: float = 0.001
    cores: float = 2.0
    notebook: float = 0.0
    """Cores that the producer's process keeps busy with other things than loading."""
    pacing: str = "together"
    beside: BesideReading | None = None
    """Another stream; its end is counted from the beginning."""
    now_s: float = 0.0
    ended_s: dict[str, float] = field(default_factory=dict)

    def batch_s(self) -> float:
        here = list(self.here().values())
        cpu_s = self.loader_cpu_s + sum(each.cpu_s for each in here)
        cores = self.cores - (self.beside.cores if self.beside else 0.0)
        return max(self.loader_s, cpu_s / cores, *(each.step_s for each in here))

    def told(self) -> tuple[BesideReading, ...]:
        """Return what readings say of the other stream."""
        if self.beside is None:
            return ()
        end_s = self.beside.end_s
        return (replace(self.beside, end_s=end_s if end_s is None else 1e9 + end_s),)

    def here(self) -> dict[str, Played]:
        return {name: each for name, each in self.trials.items() if name not in self.ended_s}

    def readings(self, every_s: float = 0.25) -> Iterator[tuple[float, StreamReading]]:
        """Give readings, each with the seconds since the beginning."""
        blank, now_s, published, loading_s, ticks = three_models().reading(), 0.0, 0.0, 0.0, 0
        while here := self.here():
            self.now_s = now_s
            if self.beside and self.beside.end_s is not None and now_s >= self.beside.end_s:
                self.beside = None
            batch_s = self.batch_s()
            took_s = min(every_s, *((each.epochs * LONG - each.taken) * batch_s for each in here.values()))
            now_s, ticks = now_s + took_s, ticks + 1
            published += took_s / batch_s
            loading_s += took_s * (self.loader_s / batch_s)
            for name, each in here.items():
                each.taken += took_s / batch_s
                # a thread that has no core computes, as its own clock says
                share = 1.0 if each.cpu_s == each.step_s else each.step_s / batch_s
                each.computing_s += took_s * share
                each.held_s += took_s * (1 - share)
                if each.taken >= each.epochs * LONG - 1e-6:
                    self.ended_s[name] = now_s
            consumers = tuple(
                ConsumerReading(
                    name, 10 + k, "streaming", 0, int(each.taken) % LONG, 0, 0, int(each.taken), 0,
                    each.computing_s, 0.0, each.held_s, epochs=1 + int(each.taken) // LONG,
                    planned=each.epochs if each.says else 0,
                )
                for k, (name, each) in enumerate(self.trials.items())
                if name in self.here()
            )  # fmt: skip
            host = None
            if ticks % 8 == 0:
                busy = {name: each.cpu_s / batch_s for name, each in here.items()}
                loader = self.loader_cpu_s / batch_s
                others = self.notebook + (self.beside.cores if self.beside else 0.0)
                kept_waiting = {
                    name: 1 - cpu if here[name].cpu_s == here[name].step_s else 0.0
                    for name, cpu in busy.items()
                }
                host = HostReading(
                    int(self.cores), sum(busy.values()) + loader + others, 0, 1,
                    ProcessReading(loader + self.notebook, 0, 1, workers=loader),
                    {name: ProcessReading(cpu, 0, 1, kept_waiting=kept_waiting[name]) for name, cpu in busy.items()},
                )  # fmt: skip
            yield now_s, replace(
                blank, time_s=1e9 + now_s, epoch_batches=LONG, batches=int(published), loading_s=loading_s,
                workers=1, pacing=self.pacing, consumers=consumers, host=host, beside=self.told(),
            )  # fmt: skip


def asked(stream: Stream, name: str, share: float) -> tuple[float, Eta]:
    """Return what is really left of a trial when so much of its time has passed, and what is said then."""
    etas, said = Etas(), []
    for now_s, reading in stream.readings():
        etas.feed(reading)
        said.append((now_s, etas.of(name)))
    end_s = stream.ended_s[name]
    at_s, eta = next((at_s, eta) for at_s, eta in said if at_s >= share * end_s and eta is not NO_ETA)
    return end_s - at_s, eta


def test_who_was_held_back_is_soon_done_once_the_others_have_ended() -> None:
    """A fast trial goes at a slow one's pace: after that one's end its batches take a tenth."""
    stream = Stream({"slow": Played(0.1, 2), "fast": Played(0.01, 8)})
    left_s, eta = asked(stream, "fast", 0.25)
    assert left_s == pytest.approx(19.5, abs=1), "at today's pace it would be 73 s"
    assert eta.left_s == pytest.approx(left_s, rel=0.1)
    assert eta.low_s <= left_s <= eta.high_s


def test_where_the_loader_is_the_limit_nothing_changes() -> None:
    """Those that end leave the pace as it is."""
    stream = Stream({"short": Played(0.01, 2), "long": Played(0.02, 6)}, loader_s=0.1, loader_cpu_s=0.05)
    left_s, eta = asked(stream, "long", 0.25)
    assert eta.left_s == pytest.approx(left_s, rel=0.05)


def test_where_the_cores_are_the_limit_they_come_free() -> None:
    """Three trials want three cores of two: with each that ends the others are faster."""
    stream = Stream(
        {"a": Played(0.05, 1, 0.05), "b": Played(0.05, 2, 0.05), "c": Played(0.05, 6, 0.05)},
        loader_s=0.01,
        loader_cpu_s=0.01,
    )
    left_s, eta = asked(stream, "c", 0.25)
    assert eta.left_s == pytest.approx(left_s, rel=0.1)


def crowded(end_s: float | None) -> Stream:
    """A trial of 40 s when it has two cores, beside another stream that keeps one of them busy."""
    beside = BesideReading("other", 1.0, end_s)
    return Stream({"one": Played(0.05, 8, 0.05)}, 0.05, 0.05, beside=beside)


def test_when_another_stream_ends_its_cores_come_free() -> None:
    """Trial and loader share one core until then, and have one each from then on."""
    stream = crowded(40.0)
    left_s, eta = asked(stream, "one", 0.25)
    assert stream.ended_s["one"] == pytest.approx(60, abs=1), (
        "40 s at half the pace, and then the other half in 20 s"
    )
    assert eta.left_s == pytest.approx(left_s, rel=0.1), "at today's pace it would be 65 s"
    assert eta.low_s <= left_s <= eta.high_s


def test_of_what_comes_free_those_that_go_on_have_a_part() -> None:
    """Three streams on three cores: with the first that ends the others have one and a half each, and then all."""
    first, second, third = (
        BesideReading(name, 1.0, end_s) for name, end_s in (("a", 110.0), ("b", 130.0), ("c", None))
    )
    assert _ends([second, first], 100.0) == [(10.0, 0.5), (30.0, 1.5)]
    assert _ends([third, second], 100.0) == [(30.0, 0.5)], "one whose end is not known stays"
    assert _ends([], 100.0) == []


def test_another_stream_whose_end_nobody_knows_stays() -> None:
    """Nothing is promised of cores that may never come free."""
    left_s, eta = asked(crowded(None), "one", 0.25)
    assert eta.left_s == pytest.approx(left_s, rel=0.1)
    assert left_s == pytest.approx(60, abs=1)


def test_once_another_stream_has_ended_the_pace_from_before_counts_no_more() -> None:
    """At once, by as much as its cores change; and soon by what is seen."""
    for share in (0.68, 0.7, 0.8):  # it ended at 67 %
        left_s, eta = asked(crowded(40.0), "one", share)
        assert eta.left_s == pytest.approx(left_s, rel=0.1)


def test_what_the_notebook_does_beside_it_is_not_the_loader_s_time() -> None:
    """A panel and its figures take their part of each second, be the batches few or many."""
    stream = Stream({"slow": Played(0.1, 2), "fast": Played(0.01, 8)}, notebook=0.9)
    left_s, eta = asked(stream, "fast", 0.25)
    assert eta.left_s == pytest.approx(left_s, rel=0.1)


def test_nobody_is_foretold_to_end_who_does_not_say_when() -> None:
    """A slow trial without a number of epochs may stay: the fast one goes at its pace until it has gone."""
    stream = Stream({"slow": Played(0.1, 2, says=False), "fast": Played(0.01, 8)})
    _, eta = asked(stream, "fast", 0.25)
    assert eta.left_s == pytest.approx(73, rel=0.1)


def test_where_trials_are_not_kept_together_no_end_changes_a_pace() -> None:
    """In another pacing each goes at its own."""
    stream = Stream({"slow": Played(0.1, 2), "fast": Played(0.01, 8)}, pacing="free")
    _, eta = asked(stream, "fast", 0.25)
    assert eta.left_s == pytest.approx(73, rel=0.1)


def test_who_looks_late_knows_at_once_what_others_ends_will_change() -> None:
    """The counters say what a trial computes on a batch, so a single look at the stream is nearly as good as many."""
    stream = Stream({"slow": Played(0.1, 2), "fast": Played(0.01, 8)})
    late = Etas()
    for now_s, reading in stream.readings():
        if now_s >= 8:
            late.feed(reading)
        if now_s >= 9:
            break
    assert late.of("fast").left_s == pytest.approx(26 - now_s, rel=0.1)


def test_a_trial_that_comes_to_where_nobody_is_has_changed_nothing() -> None:
    """A stream is served again, and its trial is joining for some readings: the loader alone is no pace."""
    etas = Etas()
    for _, reading in Stream({"first": Played(0.01, 2)}).readings():
        etas.feed(reading)
    end_s = reading.time_s
    again = Stream({"cnn": Played(0.05, 4)})
    for now_s, reading in again.readings():
        joining = tuple(replace(c, state="joining" if now_s <= 1.0 else c.state) for c in reading.consumers)
        etas.feed(replace(reading, time_s=end_s + now_s, consumers=joining))
        eta = etas.of("cnn")
        if eta.known:
            assert eta.left_s == pytest.approx(4 * LONG * 0.05 - now_s, rel=0.1, abs=0.2)
    assert "cnn" in again.ended_s
