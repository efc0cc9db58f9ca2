"""`attach`: which consumer it gives, and when it is a new one."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import tsnb
from tests.consumer.played import LONG_S, End, Played, played
from tsnb.errors import NameInUse, ProducerNotFound
from tsnb.stream.consumer import attaching
from tsnb.stream.consumer.attaching import consumers, detach_all, rest_all
from tsnb.stream.consumer.consumer import Consumer
from tsnb.stream.protocol import messages as ms
from tsnb.stream.this_process import this_process


@pytest.fixture
def producer() -> Iterator[Played]:
    """A stream; afterwards this process has no consumer."""
    with played() as made:
        yield made
        detach_all()


def kinds(end: End) -> list[str]:
    return [type(message).__name__ for message in end.heard()]


def attached(producer: Played, name: str = "c", **options: Any) -> tuple[Consumer, End]:
    return tsnb.attach(name, **options), producer.end()


def test_the_same_name_gives_the_same_consumer(producer: Played) -> None:
    """Inside a loop over epochs, say; options that it may change are those of the last call."""
    one, end = attached(producer, batch_size=2)
    assert tsnb.attach("c", "s", batch_size=3) is one and one.batch_size == 3
    assert consumers() == [one._inner] and "Bye" not in kinds(end)


def test_options_that_the_stream_was_told_make_another_consumer(producer: Played) -> None:
    """The one before says goodbye first, so its name is free."""
    one, end = attached(producer)
    other, new = attached(producer, on_lag="skip")
    assert other is not one and one.closed and kinds(end)[-1] == "Bye"
    assert new.hello.on_lag == "skip" and consumers() == [other._inner]


def test_a_consumer_of_a_producer_that_has_gone_is_replaced(producer: Played) -> None:
    """By one of the new producer of the name; others whose producer has gone are let go of on the way."""
    one, end = attached(producer)
    two, other_end = attached(producer, "d")
    producer.leave()
    end.channel.close()
    other_end.channel.close()
    with played() as successor:
        new, _ = attached(successor)
        assert new is not one and one.closed and two.closed and consumers() == [new._inner]
        detach_all()


def test_between_two_producers_the_one_that_waits_is_given(producer: Played) -> None:
    """Its next loop goes on with the successor; without that stall timeout nobody is found."""
    one, end = attached(producer, reconnect_s=LONG_S)
    producer.leave()
    end.channel.close()
    assert tsnb.attach("c", reconnect_s=LONG_S) is one and tsnb.attach("c", "s", reconnect_s=LONG_S) is one
    with pytest.raises(ProducerNotFound, match="No stream is running"):
        tsnb.attach("d")
    assert tsnb.attach("c") is one
    with pytest.raises(ProducerNotFound):
        tsnb.attach("c", "another")


def test_a_holder_of_the_name_that_is_just_dying_is_waited_for(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment: a process that was killed keeps its sockets so long."""
    monkeypatch.setattr(attaching, "DYING_S", LONG_S)
    dying = ms.Refused("name-in-use", "a consumer named 'c' is attached already: pid 7")
    producer.answers = [dying, dying]
    one, _ = attached(producer)
    assert not one.closed and producer.answers == []


def test_a_name_that_stays_in_use_is_refused_with_advice_for_ranks(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that were started as such and attach as one name each."""
    monkeypatch.setattr(attaching, "DYING_S", 0.0)
    refusal = ms.Refused("name-in-use", "a consumer named 'c' is attached already: pid 7")
    producer.answers = [refusal] * 4
    with pytest.raises(NameInUse, match=r"pid 7\.$"):
        tsnb.attach("c")
    producer.answers = [refusal] * 4
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NameInUse, match="is one of 2 ranks"):
        tsnb.attach("c")
    producer.answers = []


def test_a_loop_of_another_thread_keeps_its_consumer(producer: Played) -> None:
    """Attaching by its name is refused, whatever the options; once that thread has ended it is free."""
    one, end = attached(producer)
    loop: list[Any] = []
    go_on = threading.Event()

    def train() -> None:
        loop.append(iter(one))
        go_on.wait(LONG_S)

    thread = threading.Thread(target=train)
    thread.start()
    end.await_(ms.Ask)
    ways: list[dict[str, Any]] = [{}, {"on_lag": "skip"}]
    for options in ways:
        with pytest.raises(NameInUse, match="in another thread of this process"):
            tsnb.attach("c", **options)
    go_on.set()
    thread.join()
    assert tsnb.attach("c") is one


def test_a_trial_attaches_by_its_own_name_to_its_own_stream(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the batch size of its options; what the code says goes before them."""
    with played("another"):
        monkeypatch.setattr(this_process, "name", "cnn")
        monkeypatch.setattr(this_process, "stream", "s")
        monkeypatch.setattr(this_process, "batch_size", 2)
        one = tsnb.attach()
        assert (one.name, one.stream, one.batch_size) == ("cnn", "s", 2)
        assert tsnb.attach(batch_size=3).batch_size == 3
        other = tsnb.attach("own", "another")
        assert (other.name, other.stream) == ("own", "another")
        detach_all()


def test_without_a_name_it_is_made_of_the_scripts(producer: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the process: two runs of one script must not meet."""
    monkeypatch.setattr(sys, "argv", ["/home/me/train (2).py"])
    one = tsnb.attach()
    assert one.name == f"train-2-{os.getpid()}"


def test_a_group_needs_a_name_and_a_rank_that_seems_forgotten_is_warned_of(
    producer: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are made up would not be the same in all ranks."""
    with pytest.raises(ValueError, match="The 2 ranks of a group find each other by name"):
        tsnb.attach(world_size=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="takes all batches of the stream by itself"):
        tsnb.attach()


def test_at_a_cells_end_all_rest_and_at_a_trials_end_all_detach(producer: Played) -> None:
    """A failed cell leaves the loops that took batches in it."""
    one, end = attached(producer)
    two, other = attached(producer, "d")
    loop = iter(one)
    end.begin()
    end.give(0)
    next(loop)
    end.heard(), other.heard()
    rest_all(failed=True)
    assert kinds(end) == ["Leave", "Rest"] and kinds(other) == ["Rest"]
    detach_all()
    assert one.closed and two.closed and consumers() == []
    assert kinds(end)[-1] == kinds(other)[-1] == "Bye"


def test_a_forked_child_begins_without_its_parents_consumers(producer: Played) -> None:
    """It attaches by a name of its own; the parent's stay."""
    one, _ = attached(producer)
    child = os.fork()
    if child == 0:
        os._exit(len(consumers()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert consumers() == [one._inner]


def test_a_word_that_is_a_streams_name_is_told_to_be_taken_as_the_trials(producer: Played) -> None:
    """Once for each consumer; the names of both may be given, and then nothing is said."""
    with pytest.warns(UserWarning, match=r"names the trial 's' and reads stream 's'\. .* pass stream='s'\.$"):
        tsnb.attach("s")
    with played("other"):
        with pytest.warns(
            UserWarning, match=r"names the trial 'other' and reads stream 's'\. .* stream='other'"
        ):
            attaching._look_for_stream_named("other", None, "s")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tsnb.attach("s")  # the same consumer
            tsnb.attach("other", "s")
            tsnb.attach(stream="s")
