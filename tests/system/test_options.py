"""What `attach` and `serve` can be asked for, with one script each."""

from __future__ import annotations

import re

import pytest

from tests.system.conftest import Run

pytestmark = pytest.mark.system


def test_len_drop_last_and_batch_size_agree_with_what_comes(run: Run) -> None:
    """`len(consumer)` is the number of batches that a loop gets, for every combination."""
    script = run(
        """
        with tsnb.serve(DataLoader(Numbers(100), batch_size=16), name="s"):
            for size in (None, 1, 7, 16, 32, 100, 1000):
                for drop_last in (False, True):
                    consumer = tsnb.attach("c", batch_size=size, drop_last=drop_last)
                    rows = [len(labels) for _, labels in consumer]
                    assert len(rows) == len(consumer), (size, drop_last, rows, len(consumer))
                    assert sum(rows) == 100 or drop_last, (size, rows)
                    assert not drop_last or set(rows) <= {size or 16}, (size, rows)
        with tsnb.serve(DataLoader(Numbers(100), batch_size=16, drop_last=True), name="s"):
            assert sum(len(labels) for _, labels in tsnb.attach("c", batch_size=10)) == 96
            assert len(tsnb.attach("c", batch_size=10)) == 10
        with tsnb.serve(lambda epoch: iter([torch.zeros(2)]), name="s"):
            try: len(tsnb.attach("c"))
            except TypeError as error: say("no len", error)
        """
    )
    assert "Iterate over it" in script.expect("no len")


def test_private_batches_may_be_changed_and_transforms_are_a_consumers_own(run: Run) -> None:
    """Neither reaches the neighbour, who reads the same slots."""
    script = run(
        """
        with tsnb.serve(DataLoader(Numbers(640), batch_size=64), name="s", late_join=1.0):
            plain = iter(tsnb.attach("plain"))
            vandal = iter(tsnb.attach("vandal", private=True))
            half = iter(tsnb.attach("half", transform=lambda batch: batch[0] / 2, device="cpu"))
            for step in range(10):
                mine = next(vandal)
                mine[0].fill_(-1)
                images, labels = next(plain)
                assert torch.equal(images[:, 0].long(), labels)
                assert torch.equal(next(half), images / 2)
            say("copied", tsnb.attach("vandal", private=True).stats().copied)
        """
    )
    assert script.expect("copied") == "10"


def test_a_guarded_stream_guards_everybody_who_attaches(run: Run) -> None:
    """One element, changed behind torch's back, is told with the batch's number though the loop asked for nothing."""
    script = run(
        """
        import warnings
        for guarded in (False, True):
            with tsnb.serve(DataLoader(Numbers(640), batch_size=64), name="s", late_join=1.0, guard=guarded):
                for name, own in (("plain", {}), ("asked", {"guard": True})):
                    with warnings.catch_warnings(record=True) as said:
                        warnings.simplefilter("always")
                        with tsnb.attach(name, **own) as consumer:
                            for step, (images, labels) in enumerate(consumer):
                                if step == 3: images.data[17, 5] -= 1
                    say(guarded, name, [str(w.message).split(" while ")[0] for w in said])
        """
    )
    noticed = "['Batch 3 of the epoch was modified in place']"
    for stream, name, expected in (
        (False, "plain", "[]"),
        (False, "asked", noticed),
        (True, "plain", noticed),
        (True, "asked", noticed),
    ):
        assert script.expect(f"{stream} {name}") == expected


def test_a_consumer_of_the_same_thread_that_has_finished_holds_nobody(run: Run) -> None:
    """One script trains two models one after the other: the first's stall timeout is not waited for."""
    script = run(
        """
        with tsnb.serve(DataLoader(Numbers(640), batch_size=16), name="s", window=2):
            for name in ("one", "two", "three"):
                for epoch in range(2):
                    assert sum(len(labels) for _, labels in tsnb.attach(name)) == 640
            say("done")
        """
    )
    script.expect("done")


def test_two_streams_in_one_loop(run: Run) -> None:
    """Training and validation, each with a producer of its own, three epochs."""
    script = run(
        """
        with tsnb.serve(DataLoader(Numbers(320), batch_size=32), name="train"), \\
             tsnb.serve(DataLoader(Numbers(64), batch_size=32), name="val"):
            for epoch in range(3):
                train = sum(len(labels) for _, labels in tsnb.attach("net", stream="train"))
                val = sum(len(labels) for _, labels in tsnb.attach("net", stream="val"))
                assert (train, val) == (320, 64)
            say("done")
        """
    )
    script.expect("done")


@pytest.mark.slow
def test_readings_account_for_the_time_of_each_consumer(run: Run) -> None:
    """Promise 11: the slow one computes, the fast one is held back, and the sentence says so."""
    script = run(
        """
        import threading
        from tsnb.telemetry.observer import Observer
        from tsnb.telemetry.shown.diagnosis import diagnose
        def train(name, pause):
            for epoch in range(3):
                for batch in tsnb.attach(name, stream="s"): time.sleep(pause)
        with tsnb.serve(DataLoader(Numbers(1600), batch_size=16), name="s", window=4, late_join=1.0):
            for name, pause in (("slow", 0.02), ("fast", 0.0)):
                threading.Thread(target=train, args=(name, pause), daemon=True).start()
            observer = Observer("s")
            readings = []
            while len(readings) < 20: readings.append(observer.read())
            found = diagnose(readings[8], readings[-1])
            say("found", found.kind, found.pace, found.text)
            observer.close()
        """
    )
    found = re.match(
        r"window-bound slow slow sets the pace\. fast waits for slower trials (\d+) % of its time; ",
        script.expect("found"),
    )
    assert found and int(found[1]) > 50, "most of its time, however loaded the machine is"
