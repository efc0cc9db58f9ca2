"""Promise 10: an epoch goes on where it was: after a restart, from a saved place, after an interrupt."""

from __future__ import annotations

import json
import random
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

import tsnb
from tests.system.conftest import Run
from tests.system.scripts import Script
from tsnb.hosting.stopping import stop
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system

SERVE = """
    seed = None if sys.argv[1] == "-" else int(sys.argv[1])
    reconnect_s, first_epoch = float(sys.argv[2]), int(sys.argv[3])
    loader = DataLoader(Numbers(3000, slow_s=0.001), batch_size=16, shuffle=True, num_workers=2)
    with tsnb.serve(loader, name="s", seed=seed, reconnect_s=reconnect_s, first_epoch=first_epoch) as p:
        say("serving")
        p.wait()
"""
TRAIN = """
    import hashlib
    name, others, batch_size, pause, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), 2
    consumer, lines = tsnb.attach(name, "s", batch_size=batch_size or None), []
    for epoch in range(epochs):
        order, held = [], []
        for images, labels in together(consumer, others) if epoch == 0 else consumer:
            assert torch.equal(images[:, 0].long(), labels), "values changed on the way"
            held = [*held[-2:], (images, images.sum().item())]
            assert all(x.sum().item() == total for x, total in held), "a batch that is held has changed"
            order += labels.tolist()
            if len(order) == 480: say("halfway", epoch)
            time.sleep(pause)
        digest = hashlib.md5(repr(order).encode()).hexdigest()
        lines.append((consumer.epoch, sorted(order) == list(range(3000)), digest))
    for line in lines: say("epoch", *line)
    say("reconnects", consumer.stats().reconnects)
"""


def epochs(script: Script) -> list[str]:
    """Return what a training script said of its two epochs."""
    return [script.expect("epoch") for _ in range(2)]


@pytest.mark.slow
def test_a_killed_producer_that_is_started_again_costs_nobody_a_sample(run: Run) -> None:
    """SIGKILL in mid-epoch, twice: each goes on at its own place, in the same order, with what it holds intact."""
    producer = run(SERVE, "7", "30", "0")
    producer.expect("serving")
    trials = [
        run(TRAIN, "a", "3", "0", "0.002"),
        run(TRAIN, "b", "3", "24", "0"),
        run(TRAIN, "c", "3", "0", "0.01"),
    ]
    for epoch in range(2):
        trials[0].expect(f"halfway {epoch}")
        producer.send(signal.SIGKILL)
        producer.end()  # its name is free then
        producer = run(SERVE, "7", "30", str(epoch))
        producer.expect("serving")
    said = [epochs(trial) for trial in trials]
    assert said[0] == said[1] == said[2]
    assert [line.split()[:2] for line in said[0]] == [["0", "True"], ["1", "True"]]
    for trial in trials:
        assert trial.expect("reconnects") == "2"
        assert trial.end() == 0


PHOTOS = """
    import random
    class Photos(Dataset):
        def __init__(self): self.transform = lambda image: image + torch.rand(()) + random.random()
        def __len__(self): return 64
        def __getitem__(self, index):
            time.sleep(0.002)                                # worth keeping
            return self.transform(torch.full((8, 8), float(index))), index
    workers, cache, first_epoch = int(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
    loader = DataLoader(Photos(), 8, shuffle=True, num_workers=workers)
    with tsnb.serve(loader, name="s", seed=7, cache=cache, reconnect_s=60, first_epoch=first_epoch, window=16) as p:
        say("serving")
        p.wait()
"""


def copied(batches: Iterable[Any]) -> list[tuple[torch.Tensor, list[int]]]:
    """Return copies of what a loop gives."""
    return [(images.clone(), labels.tolist()) for images, labels in batches]


@pytest.mark.slow
def test_a_cache_workers_and_a_restart_change_no_byte_of_a_stream_or_of_a_part_of_it(run: Run) -> None:
    """Drawn augmentation too: the same whole stream and the same fold of it, once plain and once with all of them."""
    found = []
    for workers, cache in (("1", ""), ("3", "8MiB")):
        producer = run(PHOTOS, workers, cache, "0")
        producer.expect("serving")
        whole, part = tsnb.attach("whole"), tsnb.attach("part", fold=(1, 4), batch_size=5)
        taken: list[list[tuple[torch.Tensor, list[int]]]] = [[], []]
        for epoch in range(4):
            loops = [iter(whole), iter(part)]
            if epoch == 3 and cache:
                for k, loop in enumerate(loops):
                    taken[k] += copied(islice(loop, 2))
                reading = status("s").cache
                assert reading is not None
                assert reading.state == "serving" and reading.hits > 0, reading
                producer.send(signal.SIGKILL)
                producer.end()
                producer = run(PHOTOS, "2", cache, "3")
                producer.expect("serving")
            for k, loop in enumerate(loops):
                taken[k] += copied(loop)
        found.append(taken)
        assert [consumer.stats().reconnects for consumer in (whole, part)] == [int(bool(cache))] * 2
        whole.close()
        part.close()
        producer.send(signal.SIGTERM)
        producer.end()
    for plain, other in zip(*found, strict=True):
        assert [labels for _, labels in plain] == [labels for _, labels in other]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(plain, other, strict=True))
    assert [sum(len(labels) for _, labels in mine) for mine in found[0]] == [4 * 64, 4 * 48]


@pytest.mark.slow
def test_a_restart_on_purpose_is_waited_for_though_nobody_had_said_so_before(run: Run) -> None:
    """The goodbye says that a successor comes."""
    run(SERVE, "7", "0", "0").expect("serving")
    trial = run(TRAIN, "a", "1", "0", "0.001")
    trial.expect("halfway 0")
    stop("s", reconnect_s=30.0)
    run(SERVE, "7", "0", "0").expect("serving")
    assert [line.split()[:2] for line in epochs(trial)] == [["0", "True"], ["1", "True"]]
    assert trial.expect("reconnects") == "1"


@pytest.mark.slow
def test_an_order_that_cannot_be_given_again_is_said_and_the_next_epoch_goes_on(run: Run) -> None:
    """Shuffled without a seed: the rest of the epoch would be samples that were given already."""
    producer = run(SERVE, "-", "30", "0")
    producer.expect("serving")
    trial = run(
        """
        consumer = tsnb.attach("a")
        try:
            for batch in consumer: say("batch")
        except tsnb.errors.ProducerGone as error: say("gone", error)
        for epoch in range(2):
            order = [i for _, labels in consumer for i in labels.tolist()]
            say("whole", sorted(order) == list(range(3000)))
        """
    )
    trial.expect("batch")
    producer.send(signal.SIGKILL)
    producer.end()
    run(SERVE, "-", "30", "0").expect("serving")
    assert "no seed, or another order" in trial.expect("gone")
    assert trial.expect("whole") == "True"
    assert trial.expect("whole") == "True"


@pytest.mark.parametrize(
    "batch_size",
    [pytest.param("0", marks=pytest.mark.slow), pytest.param("24", marks=pytest.mark.slow), "10"],
)
def test_a_saved_place_is_gone_on_from_in_another_process_and_another_producer(
    run: Run, batch_size: str
) -> None:
    """Also in the middle of a loader batch; the two halves make one epoch, whose order is that of a whole one."""
    script = """
        import json
        consumer = tsnb.attach("a", batch_size=int(sys.argv[1]) or None)
        if len(sys.argv) > 2: consumer.load_state_dict(json.loads(sys.argv[2]))
        order = []
        for count, (_, labels) in enumerate(consumer):
            order += labels.tolist()
            if len(sys.argv) == 2 and count == 30:
                say("state", json.dumps(consumer.state_dict()))
                break
        say("order", json.dumps(order))
        say("after", json.dumps(consumer.state_dict()))
    """
    orders = []
    state: list[str] = []
    for _ in range(2):
        producer = run(SERVE, "7", "0", "0")
        producer.expect("serving")
        trial = run(script, batch_size, *state)
        if not state:
            state = [trial.expect("state")]
        orders.append(json.loads(trial.expect("order")))
        after = json.loads(trial.expect("after"))
        assert trial.end() == 0
        producer.send(signal.SIGINT)
        producer.end()
    assert sorted(orders[0] + orders[1]) == list(range(3000))
    assert (after["epoch"], after["batch"], after["offset"]) == (1, 0, 0)
    producer = run(SERVE, "7", "0", "0")
    producer.expect("serving")
    whole = run('say("order", [i for _, labels in tsnb.attach("w") for i in labels.tolist()])')
    assert json.loads(whole.expect("order")) == orders[0] + orders[1]


def test_a_state_that_does_not_fit_is_refused_with_the_reason(run: Run) -> None:
    """Another seed, no state at all, and an epoch that others are past."""
    run(SERVE, "7", "0", "0").expect("serving")
    trial = run(
        """
        consumer = tsnb.attach("a")
        loop = iter(consumer)
        for _ in range(5): next(loop)
        state = consumer.state_dict()
        for wrong in ({}, {**state, "order": "another"}):
            try: consumer.load_state_dict(wrong)
            except (ValueError, tsnb.errors.JoinRefused) as error: say("refused", error)
        consumer.load_state_dict(state)
        say("next", state["batch"], next(iter(consumer))[1].tolist() == next(iter(consumer))[1].tolist())
        """
    )
    assert "not a state that Consumer.state_dict()" in trial.expect("refused")
    assert "another order than when this state was saved" in trial.expect("refused")
    assert trial.expect("next").startswith("5")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dense_interrupts_lose_nothing_and_pin_nothing(run: Run) -> None:
    """Ctrl-C at hundreds of random moments, in the same loop: the next step goes on with the same batch."""
    run(SERVE, "7", "0", "0").expect("serving")
    trial = run(
        """
        import random, signal
        class Hit(BaseException): pass
        armed = False
        def hit(*_):
            if armed: raise Hit
        signal.signal(signal.SIGALRM, hit)
        consumer = tsnb.attach("a", "s", batch_size=int(sys.argv[1]) or None)
        hits = 0
        for epoch in range(2):
            loop, order = iter(consumer), []
            while True:
                signal.setitimer(signal.ITIMER_REAL, 10 ** random.uniform(-5, -1))  # a busy machine needs the long ones
                try:
                    try:
                        armed, batch = True, None
                        for batch in loop: break  # no call after it: Python looks for signals at calls
                    finally:
                        armed = False
                except Hit:
                    hits += 1
                    continue
                if batch is None: break
                order += batch[1].tolist()
            say("whole", len(order), sorted(order) == list(range(3000)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        del batch, loop
        next(iter(consumer))
        say("hits", hits, consumer.stats().held)
        time.sleep(100)
        """,
        "24",
    )
    for _ in range(2):
        assert trial.expect("whole", 240) == "3000 True"
    hits, held = map(int, trial.expect("hits").split())
    assert hits > 20
    assert held <= 1
    time.sleep(0.5)
    assert status("s").slots_used <= 8 + 2 + 1, "a slot was pinned for good"


class Numbers(Dataset[int]):
    """Eight numbers, by index."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class _Drawn(Sampler[int]):
    """Shuffles by numbers that nobody can seed."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(8), 8))


class _Stream(IterableDataset[int]):
    """Eight numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (DataLoader(_Stream(), batch_size=2), "num_workers=1 or more"),
        (DataLoader(Numbers(), batch_size=2, sampler=_Drawn()), "its _Drawn cannot be seeded"),
    ],
)
def test_a_seed_that_does_not_make_epochs_repeatable_is_told_when_served_and_when_it_matters(
    loader: Any, reason: str
) -> None:
    """Not "serve with a seed" to somebody who did: what it is about the loader, and the way out."""
    with pytest.warns(RuntimeWarning, match=f"does not make the epochs of 's' repeatable: .*{reason}"):
        producer = tsnb.serve(loader, name="s", seed=1)
    with producer, tsnb.attach("c") as consumer:
        next(iter(consumer))
        state = {**consumer.state_dict(), "batch": 1}
        with pytest.raises(tsnb.errors.JoinRefused, match=reason):
            consumer.load_state_dict(state)


def test_a_state_of_an_epochs_start_says_so_when_the_stream_gives_another_epoch() -> None:
    """It has gone on since: a whole epoch is given, of other batches. The same epoch is given without a word."""
    loader = DataLoader(Numbers(), batch_size=2, shuffle=True)
    with tsnb.serve(loader, name="s", seed=1, window=1, late_join=0.0), tsnb.attach("c") as consumer:
        list(consumer)
        state = consumer.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            consumer.load_state_dict(state)
            assert len(list(consumer)) == 4 and consumer.epoch == 1
        consumer.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="start of pass 2, but 's' is now at pass 3"):
            assert len(list(consumer)) == 4
