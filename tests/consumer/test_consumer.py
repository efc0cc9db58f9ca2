"""A consumer, message by message: its loops, how each of them may end, and what the stream is told of that."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.consumer.played import LONG_S, End, Played, played, until
from tsnb.errors import (
    ConsumerReplaced,
    ConsumerTimedOut,
    GroupBroken,
    JoinRefused,
    LoaderFailed,
    NameInUse,
    ProducerGone,
    StopRequested,
    TsnbError,
)
from tsnb.extensions.metrics import Metrics
from tsnb.stream.consumer.attachment import Attachment, rest_siblings
from tsnb.stream.consumer.options import Options
from tsnb.stream.protocol import messages as ms
from tsnb.stream.this_process import this_process
from tsnb.text.foreign import unpack


@pytest.fixture
def producer() -> Iterator[Played]:
    with played() as made:
        yield made


def attached(producer: Played, **options: Any) -> tuple[Attachment, End]:
    consumer = Attachment(producer.entry, "c", Options(**options))
    end = producer.end()
    assert end.await_(ms.Extended).name == "cores"
    return consumer, end


def rows(batch: dict[str, Any]) -> list[int]:
    found: list[int] = batch["row"].tolist()
    return found


def kinds(messages: list[ms.Message]) -> list[str]:
    return [type(message).__name__ for message in messages]


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Call it in another thread; return that, and what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run, name="trainer", daemon=True)
    thread.start()
    return thread, raised


def until_idle(consumer: Attachment) -> None:
    """Return when a loop over it waits for a batch."""
    until(lambda: consumer.idle)


def test_an_epoch_from_its_ask_to_its_end(producer: Played) -> None:
    """It asks when the loop begins, says each batch that it takes, and leaves at the end; the next one is asked for."""
    consumer, end = attached(producer)
    assert (len(consumer), consumer.face.batch_size, consumer.epoch) == (3, 4, -1)
    loop = iter(consumer)
    ask = end.begin(epoch=7)
    assert ask == ms.Ask(1, 0, 0, exact=False, held=()) and consumer.iterating
    end.give(0, 1, 2, epoch=7)
    assert rows(next(loop)) == [0, 1, 2, 3] and consumer.epoch == 7
    assert kinds(end.heard()) == ["Take", "Release"]
    end.tell(ms.EpochEnded(7, 3))
    assert [rows(batch) for batch in loop] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert kinds(end.heard()).count("Leave") == 1 and not consumer.iterating
    stats = consumer.stats()
    assert (stats.batches, stats.samples, stats.epochs, stats.held, stats.copied) == (3, 12, 1, 0, 0)
    iter(consumer)
    assert end.begin(epoch=8).epoch == 8
    assert repr(consumer) == "<tsnb consumer 'c' of 's': pass 8>"
    consumer.close()
    assert kinds(end.heard())[-1] == "Bye" and end.closed and repr(consumer).endswith("detached>")


def test_a_new_loop_takes_the_old_ones_place(producer: Played) -> None:
    """The old one says so, however often it is asked; nothing is lost of what had come for it."""
    consumer, end = attached(producer)
    old = iter(consumer)
    end.begin()
    end.give(0, 1)
    assert rows(next(old)) == [0, 1, 2, 3]
    new = iter(consumer)
    for _ in range(2):
        with pytest.raises(ConsumerReplaced, match="a newer loop took its place"):
            next(old)
    ask = end.begin(epoch=1)
    end.give(0, epoch=1)
    assert ask.number == 2 and rows(next(new)) == [0, 1, 2, 3]
    assert ms.Release(2) in end.heard(), "a batch of the epoch that was left goes back unread"
    consumer.close()


@pytest.mark.parametrize("way", ["break", "error", "del"])
def test_leaving_a_loop_leaves_its_epoch_at_once(producer: Played, way: str) -> None:
    """By any way; what had been sent meanwhile is given back, and the next loop begins with a whole epoch."""
    consumer, end = attached(producer)

    def leave() -> None:
        for _ in consumer:
            if way == "error":
                raise ZeroDivisionError
            break

    if way == "del":
        loop = iter(consumer)
        end.begin()
        end.give(0, 1)
        next(loop)
        del loop
    else:
        thread, raised = in_thread(leave)
        ask = end.await_(ms.Ask)
        end.tell(ms.EpochStarted(ask.number, 0, 0))
        end.give(0)
        thread.join(LONG_S)
        assert len(raised) == (way == "error")
        raised.clear()  # its traceback keeps the batch
    said = end.heard()
    assert "Leave" in kinds(said) and ms.Release(1) in said and not consumer.iterating
    if way == "del":
        assert ms.Release(2) in said
    iter(consumer)
    assert end.begin().epoch == 1, "any epoch from the next one on"
    consumer.close()


def test_the_loaders_error_ends_the_epoch_and_not_the_consumer(producer: Played) -> None:
    """The message is the loader's, with its traceback."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    end.tell(ms.EpochEnded(0, 1, True, "sample 22 is rotten", "Traceback of the loader"))
    next(loop)
    with pytest.raises(LoaderFailed, match="sample 22 is rotten\n\nTraceback of the loader"):
        next(loop)
    assert kinds(end.heard())[-1] == "Leave" and not consumer.closed
    again = iter(consumer)
    end.begin(epoch=1)
    end.tell(ms.EpochEnded(1, 0))
    assert list(again) == []
    consumer.close()


def test_a_parked_one_that_cannot_come_back_is_told_where_the_stream_is(producer: Played) -> None:
    """It asks for its own place first; the next loop takes the next epoch."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    next(loop)
    end.heard()
    end.tell(ms.Parked(0, 1, 30.0), ms.NotJoined(2, 1, 2, 1))
    with pytest.raises(ConsumerTimedOut, match="'c' timed out: it stalled for 30 s in pass 1"):
        next(loop)
    said = end.heard()
    assert [(m.epoch, m.seq, m.exact) for m in said if isinstance(m, ms.Ask)] == [(0, 1, True)]
    assert kinds(said)[-1] == "Leave" and not consumer.closed
    consumer.close()


def test_a_broken_group_detaches_its_ranks(producer: Played) -> None:
    """Their name is free for the group that comes after them."""
    consumer, end = attached(producer, world_size=2)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    next(loop)
    end.tell(ms.RankGone(1, 0, 1))
    end.give(1)
    with pytest.raises(GroupBroken, match=r"Rank 1 of group 'c'"):
        next(loop)
    assert consumer.closed and kinds(end.heard())[-2:] == ["Bye", "Release"], "the batch it was not to take"


def test_the_end_of_the_producer_ends_the_consumer(producer: Played) -> None:
    """With how to go on; the batch that is held stays as it is, and a new loop says how to attach."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    held = next(loop)
    end.channel.close()
    with pytest.raises(ProducerGone, match=r"died\. Batches you hold stay valid"):
        next(loop)
    assert consumer.closed and rows(held) == [0, 1, 2, 3]
    with pytest.raises(ConsumerReplaced, match=r'Attach again: tsnb.attach\("c", stream="s"\)'):
        iter(consumer)
    with pytest.raises(ProducerGone, match="died"):
        next(loop)


def test_it_goes_on_with_a_successor_at_its_own_place(producer: Played) -> None:
    """Within the loop: what it holds stays valid, and the place is asked for exactly."""
    consumer, end = attached(producer, reconnect_s=LONG_S)
    loop = iter(consumer)
    end.begin(epoch=2)
    end.give(0, epoch=2)
    held = next(loop)
    producer.leave()
    end.channel.close()
    with played() as successor:
        taken: list[list[int]] = []
        thread, raised = in_thread(lambda: taken.append(rows(next(loop))))
        new = successor.end()
        ask = new.await_(ms.Ask)
        assert new.hello.back and (ask.epoch, ask.seq, ask.exact) == (2, 1, True)
        new.tell(ms.EpochStarted(ask.number, 2, 1))
        new.give(1, epoch=2)
        thread.join(LONG_S)
        assert not raised and taken == [[4, 5, 6, 7]] and rows(held) == [0, 1, 2, 3]
        assert consumer.stats().reconnects == 1
        consumer.close()
        assert kinds(new.heard())[-1] == "Bye"


def test_a_clone_whose_producer_goes_before_it_answers_goes_on_with_the_successor(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any other wait for an epoch does: at the place that it has from its parent."""
    monkeypatch.setattr("tsnb.stream.consumer.talking.line.ANSWER_S", LONG_S)
    consumer, end = attached(producer, reconnect_s=LONG_S)
    loop = iter(consumer)
    end.begin(epoch=2)
    end.give(0, epoch=2)
    assert rows(next(loop)) == [0, 1, 2, 3]
    thread, raised = in_thread(lambda: consumer.branch("twin"))
    twin = producer.end()
    assert twin.hello.name == "twin" and twin.await_(ms.Ask).seq == 1
    producer.leave()
    twin.channel.close()
    with played() as successor:
        new = successor.end()
        ask = new.await_(ms.Ask)
        assert new.hello.name == "twin" and (ask.epoch, ask.seq, ask.exact) == (2, 1, True)
        new.tell(ms.EpochStarted(ask.number, 2, 1))
        thread.join(LONG_S)
        assert not raised and not thread.is_alive()
        new.give(1, epoch=2)
        assert rows(next(loop)) == [4, 5, 6, 7]
        consumer.close()


def test_a_successor_that_never_comes_ends_the_consumer(producer: Played) -> None:
    """It has waited for as long as it was to; then the error is the usual one."""
    consumer, end = attached(producer, reconnect_s=0.2)
    loop = iter(consumer)
    end.begin()
    end.channel.close()
    with pytest.raises(ProducerGone, match=r"died.*start it again"):
        next(loop)
    assert consumer.closed and consumer.stats().waited_s >= 0.2


def test_a_successor_with_another_order_ends_the_epoch_and_not_the_consumer(producer: Played) -> None:
    """The rest of it would be samples that were given already; the next loop takes a whole one."""
    consumer, end = attached(producer, reconnect_s=LONG_S)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    next(loop)
    producer.leave()
    end.channel.close()
    with played(order="seed=2") as successor:
        thread, raised = in_thread(lambda: next(loop))
        new = successor.end()
        thread.join(LONG_S)
        assert isinstance(raised[0], ProducerGone) and "no seed, or another order" in str(raised[0])
        assert not consumer.closed
        again = iter(consumer)
        assert not new.begin(epoch=1).exact
        new.tell(ms.EpochEnded(1, 0))
        assert list(again) == []
        consumer.close()


def test_asked_to_stop_between_two_loops_it_says_so_in_the_next_one(producer: Played) -> None:
    """Once: the loop after that goes on."""
    consumer, end = attached(producer)
    end.tell(ms.Steered("stop"))
    consumer.close_if_gone()
    loop = iter(consumer)
    with pytest.raises(StopRequested, match="to stop"):
        next(loop)
    again = iter(consumer)
    end.begin()
    end.give(0)
    assert rows(next(again)) == [0, 1, 2, 3]
    consumer.close()


def test_at_a_cells_end_nobody_waits_for_it(producer: Played) -> None:
    """A loop that goes on in the next cell is left alone, unless its own cell failed."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.give(0, 1, 2)
    next(loop)
    end.heard()
    consumer.rest()
    assert kinds(end.heard()) == ["Rest"] and consumer.iterating
    consumer.rest(failed=True)
    assert kinds(end.heard()) == ["Rest"], "it took nothing in that cell"
    next(loop)
    end.heard()
    consumer.rest(failed=True)
    assert kinds(end.heard()) == ["Leave", "Release", "Rest"] and not consumer.iterating
    with pytest.raises(ConsumerReplaced):
        next(loop)
    consumer.close()


def test_another_consumer_of_the_thread_rests_while_one_loops(producer: Played) -> None:
    """It could not run its loop meanwhile; one in the middle of a loop, or of another thread, is left alone."""
    consumer, end = attached(producer)
    rest_siblings("s", "other")
    assert kinds(end.heard()) == ["Rest"]
    rest_siblings("s", "c")
    rest_siblings("another stream", "other")
    in_thread(lambda: rest_siblings("s", "other"))[0].join()
    loop = iter(consumer)
    rest_siblings("s", "other")
    assert kinds(end.heard()) == ["Ask"]
    del loop
    consumer.close()


def test_closing_keeps_what_is_held_and_says_goodbye_once(producer: Played) -> None:
    """The line stays open until the last batch goes."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.give(0, 1)
    held = next(loop)
    for _ in range(2):
        consumer.close()
    assert kinds(end.heard()).count("Bye") == 1 and not end.closed
    with pytest.raises(ConsumerReplaced, match="its consumer was detached"):
        next(loop)
    assert rows(held) == [0, 1, 2, 3]
    del held
    assert end.heard() == [ms.Release(1)] and end.closed


def test_closing_in_another_thread_ends_a_loop_that_waits(producer: Played) -> None:
    """It is woken, and says that it was detached."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    thread, raised = in_thread(lambda: next(loop))
    until_idle(consumer)
    consumer.close()
    thread.join(LONG_S)
    assert [type(error) for error in raised] == [ConsumerReplaced]
    assert "Bye" in kinds(end.heard()) and end.closed


def test_closing_in_another_thread_ends_the_wait_for_a_successor(producer: Played) -> None:
    """However long that was to be."""
    consumer, end = attached(producer, reconnect_s=10 * LONG_S)
    loop = iter(consumer)
    end.begin()
    producer.leave()
    thread, raised = in_thread(lambda: next(loop))
    until_idle(consumer)
    end.channel.close()
    until(lambda: not consumer.idle)
    consumer.close()
    thread.join(LONG_S)
    assert [type(error) for error in raised] == [ConsumerReplaced]


def test_a_second_thread_is_refused_while_a_loop_waits_and_the_loop_goes_on(producer: Played) -> None:
    """Whatever it does with the consumer: a new loop, the same loop, a saved place."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    taken: list[int] = []
    thread, raised = in_thread(lambda: taken.extend(row for batch in loop for row in rows(batch)))
    until_idle(consumer)
    state = consumer.state_dict()
    for way in (
        lambda: iter(consumer),
        lambda: next(loop),
        lambda: consumer.load_state_dict(state),
        lambda: consumer.go_back(loop._loop),
    ):
        with pytest.raises(NameInUse, match=r"in another thread of this process \(trainer\)"):
            way()
    end.give(0, 1, 2)
    end.tell(ms.EpochEnded(0, 3))
    thread.join(LONG_S)
    assert not raised and taken == list(range(12))
    assert kinds(end.heard()).count("Leave") == 1
    assert next(loop, None) is None, "now it is free for this thread"
    consumer.close()


def test_a_forked_child_that_uses_it_is_told_to_attach(producer: Played) -> None:
    """Whatever it does with it, and though a successor would be waited for; the parent's loop goes on."""
    consumer, end = attached(producer, reconnect_s=LONG_S)
    loop = iter(consumer)
    end.begin()
    end.give(0)
    next(loop)
    child = os.fork()
    if child == 0:
        told = 0
        ways: list[Callable[[], object]] = [lambda: next(loop), lambda: next(iter(consumer))]
        for way in ways:
            try:
                way()
            except ConsumerReplaced as error:
                told += f"pid {os.getppid()}" in str(error) and "tsnb.attach(" in str(error)
        consumer.close()
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    end.give(1)
    assert rows(next(loop)) == [4, 5, 6, 7]
    assert "Bye" not in kinds(end.heard())
    consumer.close()


@pytest.mark.parametrize(
    ("order", "saved", "says"),
    [
        ("", "seed=1", "cannot repeat an epoch: its loader has no reproducible order"),
        ("seed=2", "seed=1", "has another order than when this state was saved"),
        ("seed=1", "", "has another order than when this state was saved"),
    ],
)
def test_a_place_in_an_epoch_that_cannot_be_given_again_is_refused(order: str, saved: str, says: str) -> None:
    """With the reason; the start of an epoch is always good."""
    with played(order=order) as producer:
        consumer, end = attached(producer)
        state = {**consumer.state_dict(), "order": saved, "epoch": 4}
        with pytest.raises(JoinRefused, match=rf"Pass 5 cannot continue at batch 2: stream 's' {says}"):
            consumer.load_state_dict({**state, "batch": 2})
        consumer.load_state_dict(state)
        iter(consumer)
        assert end.begin().epoch == 4
        with pytest.raises(ValueError, match=r"not a state that Consumer\.state_dict"):
            consumer.load_state_dict({"epoch": 1})
        consumer.close()


def test_a_saved_place_is_asked_for_exactly(producer: Played) -> None:
    """Loaded in the middle of a loop it ends that one."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin(epoch=5)
    end.give(0, 1, epoch=5)
    next(loop)
    state = consumer.state_dict()
    assert (state["epoch"], state["batch"], state["offset"]) == (5, 1, 0)
    next(loop)
    consumer.load_state_dict(state)
    assert "Leave" in kinds(end.heard()) and not consumer.iterating
    again = iter(consumer)
    ask = end.begin(epoch=5, seq=1)
    assert (ask.epoch, ask.seq, ask.exact) == (5, 1, True)
    end.give(1, epoch=5)
    assert rows(next(again)) == [4, 5, 6, 7]
    consumer.close()


def numbers_in(messages: list[ms.Message]) -> list[dict[str, float]]:
    told = [m for m in messages if isinstance(m, ms.Extended) and m.name == "metrics"]
    return [unpack(Metrics, m.payload).numbers for m in told]


def test_what_was_logged_is_told_once_and_at_the_end_at_once(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers wait for the next batch; those of the last moment go with the goodbye."""
    from tsnb.telemetry import metrics

    consumer, end = attached(producer)
    metrics.log(loss=0.5)
    consumer.tell_metrics()
    first = numbers_in(end.heard())
    consumer.tell_metrics()
    assert first == [{"loss": 0.5}] and end.heard() == []
    metrics.log(loss=0.25)
    consumer.close()
    said = end.heard()
    assert numbers_in(said) == [{"loss": 0.25}]
    assert kinds(said)[-1] == "Bye"


@pytest.mark.parametrize("wait", ["for its epoch", "for a batch", "while it is paused"])
def test_what_was_logged_just_before_a_wait_is_told_while_it_waits(producer: Played, wait: str) -> None:
    """A trial logs its validation and waits for its neighbours: every screen shows the number, not the one before."""
    from tsnb.telemetry import metrics

    consumer, end = attached(producer)
    loop = iter(consumer)
    if wait != "for its epoch":
        end.begin()
    if wait == "while it is paused":
        end.tell(ms.Steered("pause"))
    metrics.log(loss=0.5)
    consumer.tell_metrics()
    metrics.log(loss=0.25)  # so soon after the number before that it is not told at once
    thread, raised = in_thread(lambda: next(loop))
    until(lambda: {"loss": 0.25} in numbers_in(end.heard()))
    assert thread.is_alive()
    consumer.close()
    thread.join(LONG_S)
    assert [type(error) for error in raised] == [ConsumerReplaced]


def test_an_interrupt_of_a_wait_costs_nothing(producer: Played) -> None:
    """The loop goes on with the batch that it waited for, without asking again."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until_idle(consumer)
        signal.pthread_kill(main, signal.SIGINT)

    thread, _ = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(loop)
    thread.join()
    end.heard()
    end.give(0)
    assert rows(next(loop)) == [0, 1, 2, 3]
    assert "Ask" not in kinds(end.heard())
    consumer.close()


def test_an_error_that_ended_a_loop_is_told_again_without_its_frames(producer: Played) -> None:
    """A traceback that was kept would keep the batches in it."""
    consumer, end = attached(producer)
    loop = iter(consumer)
    end.begin()
    end.tell(ms.EpochEnded(0, 1, True, "broken", "Traceback"))
    errors: list[TsnbError] = []
    for _ in range(2):
        with pytest.raises(LoaderFailed, match="broken") as caught:
            next(loop)
        errors.append(caught.value)
    assert errors[0] is not errors[1] and errors[1].__context__ is None
    consumer.close()


def test_how_many_epochs_are_planned_is_told_when_it_changes(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next step or report, once; a number that has changed meanwhile (a loop was lengthened) once more."""
    monkeypatch.setattr(this_process, "epochs", 3)
    consumer, end = attached(producer)
    consumer.tell_metrics()
    assert end.await_(ms.Progress) == ms.Progress(3)
    consumer.tell_metrics()
    this_process.epochs = 5
    consumer.tell_metrics()
    assert end.await_(ms.Progress) == ms.Progress(5), "3 was not told twice"
    consumer.close()
