"""What a consumer may choose, and what it is told: skip, join now, notices, a place kept or lost."""

from __future__ import annotations

import signal
import time

import pytest

import tsnb
from tests.promises import took
from tests.system.conftest import Run
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system

SERVE = """
    loader = DataLoader(Numbers(int(sys.argv[1]), slow_s=0.0005), batch_size=16, num_workers=1)
    stall_timeout_s = float((sys.argv + [30])[2])
    with tsnb.serve(loader, name="s", window=4, late_join=0.0, stall_timeout_s=stall_timeout_s, seed=1) as p:
        say("serving")
        p.wait()
"""


@pytest.mark.slow
def test_one_that_skips_holds_nobody_and_is_told_what_it_missed(run: Run) -> None:
    """`on_lag="skip"`: the fast one is not slowed down; taken and skipped make the epoch."""
    run(SERVE, "6400").expect("serving")
    slow = run(
        """
        import logging
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="log %(name)s %(message)s")
        consumer = tsnb.attach("slow", on_lag="skip")
        taken = [int(labels[0]) // 16 for _, labels in together(consumer, 2) if time.sleep(0.02) is None]
        say("taken", len(taken), consumer.stats().skipped, taken == sorted(set(taken)), consumer.stats().held)
        time.sleep(1)
        """
    )
    fast = run(
        """
        loop = together(tsnb.attach("fast"), 2)
        say("order", [i for _, labels in loop for i in labels.tolist()] == list(range(6400)))
        """
    )
    assert fast.expect("order") == "True"
    logged = slow.expect("log tsnb")
    taken, skipped, ordered, held = slow.expect("taken").split()
    assert logged == f"'slow' skipped {skipped} of 400 batches of pass 1"
    assert int(taken) + int(skipped) == 400
    assert 0 < int(taken) < 400
    assert (ordered, held) == ("True", "0")
    (reading,) = (c for c in status("s").consumers if c.name == "slow")
    assert reading.skipped == int(skipped)


@pytest.mark.slow
def test_a_trial_that_begins_with_a_later_epoch_says_which_and_why(run: Run) -> None:
    """One that died has taken a part of the first epoch; in its output, once, and of the first loop only."""
    run(SERVE, "6400").expect("serving")
    crashed = run(
        """
        for count, batch in enumerate(tsnb.attach("crashed")):
            if count == 68: say("on its way"), time.sleep(60)
        """
    )
    crashed.expect("on its way")
    crashed.kill()
    late = run(
        """
        from tsnb.stream.this_process import this_process
        this_process.name = "late"  # as in a trial's kernel
        for epoch in range(2):
            for batch in tsnb.attach(): pass
        say("done")
        """
    )
    assert late.expect("note:") == ("'late' begins with pass 2 of 's': earlier passes went to other trials.")
    assert late.expect("done") == ""
    assert len(late.lines) == 2, late.lines


def test_join_now_is_refused_with_the_numbers(run: Run) -> None:
    """The next epoch is no substitute for who said so."""
    run(SERVE, "640000").expect("serving")
    first = run(
        """
        for count, batch in enumerate(tsnb.attach("first")):
            if count == 30: say("on its way")
            time.sleep(0.002)
        """
    )
    first.expect("on its way")
    late = run(
        """
        try: next(iter(tsnb.attach("late", join="now")))
        except tsnb.errors.JoinRefused as error: say("refused", error)
        try: tsnb.attach("late", join="later")
        except ValueError as error: say("refused", error)
        """
    )
    told = late.expect("refused")
    assert "of 40000 of pass 1" in told
    assert "its first 4 batches are kept" in told
    assert 'join="epoch"' in told
    assert "Pass 'epoch' or 'now'" in late.expect("refused")


@pytest.mark.slow
def test_a_loop_left_standing_in_mid_epoch_holds_a_latecomer_for_the_patience_and_both_are_told(
    run: Run,
) -> None:
    """As trainers do that look at two batches first and validate much later: two loops over one stream."""
    run(SERVE, "640000", "4").expect("serving")
    first = run(
        """
        consumer = tsnb.attach("first")
        check = iter(consumer)
        for _ in range(20): next(check)
        say("checked")
        sys.stdin.readline()  # trains on another stream meanwhile; the loop is still there
        try:
            while True: next(check)
        except tsnb.errors.ConsumerTimedOut as error: say("parked", error)
        next(iter(consumer))
        say("got", consumer.epoch)
        """,
        stdin=True,
    )
    first.expect("checked")
    late = run(
        """
        import warnings
        began = time.monotonic()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loop = iter(tsnb.attach("late"))
            for _ in range(20): next(loop)
        say("began after", time.monotonic() - began)
        say("told", told[-1].category.__name__, told[-1].message)
        sys.stdin.readline()
        """,
        stdin=True,
    )
    took(float(late.expect("began after")), 12)
    told = late.expect("told")
    assert told.startswith(
        "RuntimeWarning 'late' waits for the next pass of 's', because pass 1 is already"
    ), told
    assert "of 40000. Trials in that pass: first. These trials have requested no batch for" in told
    assert "late_join=" in told
    first.answer("validate")
    assert "stalled for" in first.expect("parked")
    assert first.expect("got")


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    ["images.mul_(2)", "images += 1", "images[0] = 3", "images.view(-1)[0] = 1"],
)
def test_a_write_into_a_shared_batch_is_told_once_with_the_place_and_the_fix(run: Run, write: str) -> None:
    """The warning names the leaf; a private consumer and one that only reads are told nothing."""
    run(SERVE, "640").expect("serving")
    trial = run(
        f"""
        import warnings
        for way in ({{}}, {{"private": True}}):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for images, labels in tsnb.attach("w" + str(len(way)), **way):
                    {write}
            say("told", len(caught), *[(w.category.__name__, w.filename, str(w.message)) for w in caught])
        with warnings.catch_warnings(record=True) as caught:
            for images, labels in tsnb.attach("reader"):
                model = (images.requires_grad_() * 2).sum().backward()
            say("told", len(caught))
        """
    )
    told = trial.expect("told")
    assert told.startswith("1 ('SharedBatchWarning', '<string>'")
    assert "batch[0] was modified in place" in told
    assert "private=True" in told
    assert trial.expect("told") == "0"
    assert trial.expect("told") == "0"


def test_hoarding_is_told_once_with_the_variable_that_hoards(run: Run) -> None:
    """The others go on; what is beyond the hold is copied."""
    run(SERVE, "640").expect("serving")
    trial = run(
        """
        import warnings
        consumer, everything = tsnb.attach("hoarder"), []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for images, labels in consumer: everything.append((images, labels))
        say("told", len(caught), str(caught[0].message))
        say("right", all(bool((images[:, 0].long() == labels).all()) for images, labels in everything))
        say("copied", consumer.stats().copied, consumer.stats().held)
        """
    )
    told = trial.expect("told")
    assert told.startswith("1 'hoarder' keeps more than the 4 batches")
    assert "The variable 'everything' (a list, at <string>:" in told
    assert trial.expect("right") == "True"
    assert trial.expect("copied") == "36 4"


@pytest.mark.slow
def test_a_parked_one_goes_on_where_it_was_if_its_batches_are_still_there(run: Run) -> None:
    """Alone it holds nobody; beside one that went no further than what is kept, it has lost nothing."""
    run(SERVE, "160", "1").expect("serving")
    waiting = run(
        """
        loop = together(tsnb.attach("waiting"), 2)
        for batch in loop: pass
        say("done")
        time.sleep(100)
        """
    )
    stopped = run(
        """
        order = []
        for images, labels in together(tsnb.attach("stopped"), 2):
            order += labels.tolist()
            if len(order) == 96: say("here")
            time.sleep(0.001 if len(order) != 96 else 0.3)
        say("whole", order == list(range(160)))
        """
    )
    stopped.expect("here")
    stopped.send(signal.SIGSTOP)
    time.sleep(4.0)
    stopped.send(signal.SIGCONT)
    waiting.expect("done")
    assert stopped.expect("whole") == "True"


def test_leaving_a_loop_by_any_way_holds_nobody(run: Run) -> None:
    """`break`, an exception, a deleted iterator, a half-used zip: the others do not wait for it."""
    run(SERVE, "640000").expect("serving")
    leaver = run(
        """
        consumer = tsnb.attach("leaver")
        def ways():
            for batch in consumer: break
            yield "break"
            try:
                for batch in consumer: raise KeyError
            except KeyError: pass
            yield "raise"
            loop = iter(consumer); next(loop); del loop
            yield "del"
            list(zip(range(2), consumer))
            yield "zip"
        for way in ways():
            say("left", way)
            sys.stdin.readline()
        """,
        stdin=True,
    )
    for way in ("break", "raise", "del", "zip"):
        assert leaver.expect("left") == way
        deadline = time.monotonic() + 60
        while status("s").consumers[0].state != "between epochs":
            assert time.monotonic() < deadline, (way, status("s").consumers)
        leaver.answer("go")


def test_consumers_in_turn_in_one_thread_do_not_wait_for_each_other() -> None:
    """An epoch for one, an epoch for the other, as two models in one loop: nobody's stall timeout is waited for."""
    loader = [[i] for i in range(200)]
    with tsnb.serve(loader, name="s", window=4, late_join=0.0, stall_timeout_s=1e6):
        one, other = tsnb.attach("one"), tsnb.attach("other")
        for _ in range(2):
            for consumer in (one, other):
                assert [row for (row,) in consumer] == list(range(200))
        with one, other:  # side by side, none of them is between epochs
            assert [a == b for a, b in zip(one, other, strict=True)] == [True] * 200
