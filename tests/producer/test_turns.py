"""Turns: more consumers than are to compute at once, side by side in one pass; and the window that is kept for them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

import tsnb
from tests.producer.simulation import Simulation, asked, joined, tells, took, waits
from tsnb.config import MAX_CONSUMERS
from tsnb.extensions.readings import reading, reading_in_letters
from tsnb.machine.memory import Free
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.producer.limits import no_room_for_turns
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import decode, encode
from tsnb.stream.protocol.extension import READINGS
from tsnb.telemetry.readings import ConsumerReading, StreamReading

MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_turns_with_whatever_happens_lose_nothing_and_all_can_go_on(seed: int) -> None:
    """Kills, pauses, clones, restarts, breaks: `Turns.check` after every step, each batch checked as it is given."""
    simulation = Simulation(
        13_000 + seed,
        rotates=True,
        pauses=seed % 2 == 0,
        clones=seed % 3 == 0,
        restarts=seed % 4 == 0,
        modes=seed % 5 == 0,
        failures=seed % 3 == 1,
        rounds=seed % 7 == 0,
    )
    simulation.run(400)
    simulation.settle()


@pytest.mark.parametrize("seed", range(4))
def test_each_has_one_turn_in_a_window_and_the_loader_gives_each_batch_once(seed: int) -> None:
    """In the first window as in all others, however many there are: nobody gets two turns before another has one."""
    simulation = Simulation(13_500 + seed, rotates=True, kills=False)
    simulation.batches, simulation.window, simulation.turn = 20, 2, (6, 2)
    simulation.start(0)
    consumers = [simulation.join(skips=False, turns=True) for _ in range(5)]
    for consumer in consumers:
        consumer.ask()
    simulation.poll()
    turns: list[tuple[int, int]] = []  # the window, and whose
    had: set[int] = set()
    for _ in range(2000):
        simulation.now += 0.01
        simulation.load()
        simulation.rng.choice(consumers).run_steadily()
        simulation.poll()
        having = {k for k, m in simulation.dispatch.members.items() if m.turn is not None and m.turn.on}
        for key in sorted(having - had):
            member = simulation.dispatch.members[key]
            turns.append((member.epoch * 4 + (member.position + len(member.granted)) // 6, key))
        had = having
        if all(c.complete >= {0, 1} for c in consumers):
            break
    else:
        raise AssertionError("somebody waits for good")
    first = [turn for turn in turns if turn[0] < 7]
    assert len(set(first)) == len(first) == 7 * 5, "a turn was cut in two, or is missing"
    assert [window for window, _ in first] == sorted(window for window, _ in first)
    assert simulation.dispatch.epochs.end <= 3 * 20, "a batch was loaded twice"
    assert all(c.epochs[0] == c.epochs[1] == list(range(20)) for c in consumers)


def rotating(*, window: int = 2, batches: int = 4, at_once: int = 1, consumers: int = 3) -> Dispatch:
    """Return a stream that consumers 1, 2, ... take by turns; they have asked, and a window of batches is there."""
    dispatch = Dispatch(window, window, 30.0)
    for key in range(1, consumers + 1):
        dispatch.step(joined(key, f"c{key}", turn=(batches, at_once)), 0.0)
        dispatch.step(asked(key), 0.0)
    load(dispatch, batches)
    return dispatch


def load(dispatch: Dispatch, batches: int) -> None:
    for _ in range(batches):
        assert dispatch.wanted is not None, "the loader should go on"
        dispatch.step(ev.BatchLoaded(0, ev.Placed(dispatch.epochs.end, b"", 4, 0, 0)), 0.0)
        dispatch.check()


def granted(out: list[ev.Instruction]) -> list[tuple[int, int]]:
    return [(made.member, made.seq) for made in out if isinstance(made, ev.Granted)]


def step(dispatch: Dispatch, event: ev.Event, now: float) -> list[ev.Instruction]:
    out = dispatch.step(event, now)
    dispatch.check()
    return out


def take_turn(dispatch: Dispatch, key: int, batches: int, now: float) -> list[ev.Instruction]:
    """Take a whole turn; return what follows when the consumer wants more."""
    for _ in range(batches):
        step(dispatch, took(key), now)
    return step(dispatch, waits(key), now)


def test_the_window_is_kept_until_the_last_has_had_it() -> None:
    """Wider than the stream's own meanwhile, and the loader goes on with the next as the last one takes it."""
    dispatch = rotating(window=2, batches=4)
    assert dispatch.wanted is None and dispatch.epochs.kept == 4
    assert granted(take_turn(dispatch, 1, 4, 1.0)) == [(2, 0), (2, 1)]
    assert granted(take_turn(dispatch, 2, 4, 2.0)) == [(3, 0), (3, 1)]
    assert dispatch.wanted is None
    step(dispatch, took(3), 3.0)
    load(dispatch, 1)
    for _ in range(3):
        step(dispatch, took(3), 3.0)
    load(dispatch, 3)
    assert granted(step(dispatch, waits(3), 3.0)) == [(1, 4), (1, 5)], "who has waited longest"
    for key in (1, 2, 3):
        step(dispatch, ev.Left(key), 4.0)
    assert dispatch.drift.window == 2


def test_waiting_for_a_turn_counts_as_held_and_is_not_standing_still() -> None:
    """However long: nobody is parked, nobody sets the pace."""
    dispatch = rotating()
    for now in range(1, 200):
        step(dispatch, took(1), float(now)) if now % 60 == 0 else None
        assert not tells(step(dispatch, ev.Tick(), float(now)), ms.Parked)
        assert not any(m.times.queued_since_s is not None for m in dispatch.drift.pace_setters())
    member = dispatch.members[3]
    computing, waiting, held, *_ = member.read(199.0, dispatch.drift.blocked_s(199.0))
    assert (computing, waiting, held) == (0.0, 0.0, 199.0)


def test_one_that_stands_still_in_its_turn_loses_the_turn_and_not_its_place() -> None:
    """After the stall timeout, while others wait; it goes on where it was, when it is its turn again."""
    dispatch = rotating()
    step(dispatch, took(1), 1.0)
    assert not granted(step(dispatch, ev.Tick(), 30.0))
    assert granted(step(dispatch, ev.Tick(), 31.5)) == [(2, 0), (2, 1)]
    for _ in range(2):
        step(dispatch, took(1), 32.0)
    assert not granted(step(dispatch, waits(1), 33.0)), "it waits for its turn, as the others do"
    assert granted(take_turn(dispatch, 2, 4, 34.0)) == [(3, 0), (3, 1)]
    assert granted(take_turn(dispatch, 3, 4, 35.0)) == [(1, 3)], "to the end of its window"


@pytest.mark.parametrize("how", ["left", "killed", "paused"])
def test_one_that_goes_or_is_paused_gives_up_its_turn_at_once(how: str) -> None:
    """The next one begins in the same step."""
    dispatch = rotating()
    step(dispatch, took(1), 1.0)
    event: ev.Event = ev.Left(1)
    if how == "left":
        event = ev.Heard(1, ms.Leave())
        step(dispatch, event, 1.0)  # it is between epochs now, and expected back for the next
        event = ev.Heard(1, ms.Rest())
    elif how == "paused":
        event = ev.Paused((1,), True)
    assert granted(step(dispatch, event, 2.0)) == [(2, 0), (2, 1)]


def test_one_far_behind_has_its_turn_before_those_that_have_to_wait_for_it() -> None:
    """A clone of one in the last window, say: the loader stands still for it, and a turn that can get no more ends."""
    dispatch = rotating(batches=4, consumers=2)
    take_turn(dispatch, 1, 4, 1.0)
    step(dispatch, took(2), 1.0)
    load(dispatch, 1)
    step(dispatch, joined(3, "c3", turn=(4, 1)), 2.0)
    step(dispatch, asked(3, epoch=0, seq=1, exact=True), 2.0)  # a clone of c2, where that is
    for _ in range(3):
        step(dispatch, took(2), 3.0)
    assert granted(step(dispatch, waits(2), 3.0)) == [(3, 1), (3, 2)]
    for _ in range(3):
        step(dispatch, took(3), 4.0)
    out = step(dispatch, waits(3), 4.0)
    assert granted(out) == [(1, 4)]


def test_a_turn_that_does_not_fit_is_refused_with_the_bytes_and_the_way_out() -> None:
    """What the stream's own window keeps has been looked at before; of the rest, the arena and the memory decide."""
    plenty, little = Free(100 * 1024 * MIB, "this machine"), Free(300 * MIB, "this machine")
    assert not no_room_for_turns(100, 8, 256, 4 * MIB, plenty)
    assert not no_room_for_turns(100, 100, 100, 40 * MIB, little)
    assert not no_room_for_turns(100, 8, 256, 4 * MIB, None)
    told = no_room_for_turns(100, 8, 27, 38 * MIB, plenty)
    assert "rotate=100 keeps 100 batches of 38.0 MiB" in told and "3.7 GiB in total" in told
    assert told.endswith("there is room for 27. Pass rotate=27 or less, or serve with window=100")
    told = no_room_for_turns(100, 8, 256, 4 * MIB, little)
    assert told.endswith("room for 75, and 300.0 MiB are free (this machine). Pass rotate=75 or less")


def test_the_consumers_of_one_sweep_take_no_turns_with_those_of_another() -> None:
    """Each sweep has its own; a consumer without turns takes its batches as ever."""
    dispatch = rotating(window=2, batches=4, consumers=2)
    other = ms.Hello("consumer", "z", "", rotation="other", rotate=2, at_once=1)
    for event in (ev.Heard(8, other), asked(8), joined(9, "plain"), asked(9)):
        out = step(dispatch, event, 1.0)
    assert [turn and turn.on for turn in (dispatch.members[key].turn for key in (1, 2, 8, 9))] == [
        True,
        False,
        True,
        None,
    ]
    assert granted(out) == [(9, 0), (9, 1)]


def test_all_can_join_the_epoch_until_one_has_begun_with_it() -> None:
    """A sweep's trials wait for each other after they have asked, and the loader fills a window meanwhile."""
    dispatch = rotating(window=2, batches=6, consumers=1)
    dispatch.step(joined(2, "c2", turn=(6, 1)), 5.0)
    out = step(dispatch, asked(2), 5.0)
    assert [told.epoch for _, told in tells(out, ms.EpochStarted)] == [0]
    take_turn(dispatch, 1, 6, 6.0)
    dispatch.step(joined(3, "c3", turn=(6, 1)), 6.0)
    assert tells(step(dispatch, asked(3), 6.0), ms.EpochStarted), "the other one is to begin with it yet"


@pytest.mark.parametrize(("letters", "numbers"), [(4, 2), (40, 16)])
def test_a_reading_of_as_many_consumers_as_a_stream_takes_fits_into_a_packet(
    letters: int, numbers: int
) -> None:
    """Whatever they log and set: then some numbers are left out, of all alike, and never a consumer."""
    logged = {f"{number:0{letters}}": 1 / 3 for number in range(numbers)}
    live = dict.fromkeys(logged, "x" * letters)
    each = ConsumerReading("n" * 64, 10**6, "awaits turn", 9, 9, 9, 9, 9, 9, 1 / 3, 1 / 3, 1 / 3, logged)
    those = tuple(replace(each, name=f"{key:064}", live=live) for key in range(MAX_CONSUMERS))
    made = StreamReading(
        1.0, "s", 1, "serving", 1, 1, 1, 8, 0, 1, 0.1, 0.1, 1, 1, 1, 1, 1, 1, 1, consumers=those
    )
    message = decode(encode(ms.Extended(READINGS, reading_in_letters(made).encode())))
    assert isinstance(message, ms.Extended)
    told = StreamReading.from_json(message.payload.decode())
    assert [c.name for c in told.consumers] == [c.name for c in those]
    assert (told == made) is (numbers == 2)


def test_a_trial_that_is_alone_does_not_set_the_pace() -> None:
    """No other trial waits for it, however full the window is."""
    with (
        tsnb.serve([torch.zeros(1)] * 40, name="alone", window=2) as producer,
        tsnb.attach("only", "alone") as only,
    ):
        batches, states = iter(only), set()
        for _ in range(8):
            next(batches)
            time.sleep(0.05)
            with producer.core.lock:
                found = reading(producer.core)
            states |= {(found.state, one.state) for one in found.consumers}
    assert ("blocked", "streaming") in states
    assert "sets the pace" not in {state for _, state in states}


def test_a_reading_looks_once_for_those_that_set_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes over all consumers: one for each of them cost 30 ms with 128, under the producer's lock."""
    looks: list[int] = []
    look = Drift.pace_setters

    def counted(drift: Drift) -> Any:
        looks.append(1)
        return look(drift)

    monkeypatch.setattr(Drift, "pace_setters", counted)
    found = []
    with (
        tsnb.serve([torch.zeros(1)] * 4, name="looked-at", late_join=1.0) as producer,
        contextlib.ExitStack() as there,
    ):
        for n in range(5):
            next(iter(there.enter_context(tsnb.attach(f"c{n}", "looked-at"))))
            with producer.core.lock:
                looks.clear()
                assert len(reading(producer.core).consumers) == n + 1
                found.append(len(looks))
    assert len({*found}) == 1
