"""Losses that trials report: each is of the sample that its row is, averaged over a trial's epochs and over trials."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.growing.growths import growth_in
from tests.waiting import wait_until
from tsnb.errors import BatchNotShareable, LoaderFailed, TsnbError
from tsnb.extensions.growth import GrowingBatches, growth_of
from tsnb.growing.inclusion import EVEN, balanced, hard, probabilities
from tsnb.growing.losses import SampleLosses
from tsnb.growing.selection import Trigger
from tsnb.stream.consumer.losses import MOST, checked, in_payloads

HANG_S = 60.0


def numbers(tmp_path: Path, samples: int) -> Any:
    """A data set that grows, whose samples are their own numbers."""
    return tsnb.data.grow(lambda: [str(i) for i in range(samples)], int, index=tmp_path / "index")


def losses_of(producer: tsnb.streams.Producer, trial: str = "") -> Any:
    growth = growth_in(producer)
    assert growth is not None
    return growth.losses.mean(growth.found, trial)


# -- the average ------------------------------------------------------------------------------------------------------


def test_a_sample_s_loss_is_a_moving_average_and_the_mean_over_trials() -> None:
    """The first report counts whole; who has not reported a sample does not count for it; others are not there."""
    samples = 4
    losses = SampleLosses(lambda: samples)
    losses.note("a", np.array([0, 2]), np.array([1.0, 2.0], np.float32))
    losses.note("a", np.array([2, 9]), np.array([4.0, 9.0], np.float32))
    losses.note("b", np.array([2, 3]), np.array([7.0, 8.0], np.float32))
    np.testing.assert_allclose(losses.mean(4), [1, np.nan, 5, 8])
    np.testing.assert_allclose(losses.mean(4, "b"), [np.nan, np.nan, 7, 8])
    samples = 40
    losses.note("a", np.array([39]), np.array([3.0], np.float32))
    assert losses.mean(40)[[0, 2, 39]].tolist() == [1, 5, 3] and np.isnan(losses.mean(41)[40])
    losses.keep(["c"])
    assert list(losses.trials) == ["a", "b"], "there is nothing better yet"
    losses.keep(["b", "c"])
    assert list(losses.trials) == ["b"]


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([1.0, 2.0], "one loss per sample"),
        (torch.tensor(1.0), "one loss per sample"),
        (torch.ones(3, 1), "one loss per sample"),
        ([1.0, float("nan"), 2.0], "row 1 is nan"),
        (np.array([1.0, 2.0, -np.inf]), "row 2 is -inf"),
        ([1.0, 2.0, 1e31], "row 2 is 1e"),
        (None, "a tensor, an array or a list"),
        (["a", "b", "c"], "a tensor, an array or a list"),
        ({"loss": 1}, "a tensor, an array or a list"),
    ],
)
def test_losses_that_cannot_be_meant_are_refused(losses: Any, says: str) -> None:
    """With what to report instead."""
    with pytest.raises((ValueError, TypeError), match=says):
        checked(losses, 3)


def test_losses_are_taken_from_what_has_them() -> None:
    """Tensors with a graph, of any type; arrays; lists; many go in several messages."""
    for reported in (
        torch.tensor([1.0, 2.0], requires_grad=True) * 1,
        torch.tensor([1, 2], dtype=torch.bfloat16),
        np.array([1, 2]),
        [1.0, torch.tensor(2.0)],
    ):
        assert checked(reported, 2).tolist() == [1, 2]
    many = np.arange(2 * MOST + 1)
    told = list(in_payloads(many.astype("<u4").tobytes(), many.astype(np.float32)))
    assert np.concatenate([np.frombuffer(m.samples, "<u4") for m in told]).tolist() == many.tolist()
    assert np.concatenate([np.frombuffer(m.losses, "<f4") for m in told]).tolist() == many.tolist()
    assert len(told) == 3


# -- over a stream ----------------------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("own", [{}, {"batch_size": 7}, {"batch_size": 3, "drop_last": True}])
def test_each_reported_loss_is_kept_of_the_sample_that_the_row_is(
    tmp_path: Path, workers: int, own: dict[str, Any]
) -> None:
    """The loader's batches or others, shuffled, in this process or in workers, from the middle of an epoch, too."""
    loader = DataLoader(numbers(tmp_path, 50), 8, shuffle=True, num_workers=workers)
    with tsnb.serve(loader, name="g", seed=1) as producer, tsnb.attach("a", "g", **own) as consumer:
        seen: list[int] = []
        for step, batch in enumerate(consumer):
            tsnb.data.log_losses(batch * 2.0)
            seen += batch.tolist()
            if step == 2:
                break
        state = consumer.state_dict()
        consumer.load_state_dict(state)
        for batch in consumer:
            consumer.report(batch * 2.0)
            seen += batch.tolist()
        assert len(seen) == len(set(seen)) == (48 if own.get("drop_last") else 50)
        wait_until(lambda: np.isfinite(losses_of(producer)).sum() == len(seen))
        assert (losses_of(producer)[seen] == 2.0 * np.array(seen)).all()


@pytest.mark.system
def test_trials_and_ranks_are_averaged_and_a_trial_s_epochs_move_its_average(tmp_path: Path) -> None:
    """Each trial counts the same; the ranks of a group are one trial, each reporting its own rows."""
    loader = DataLoader(numbers(tmp_path, 24), 8, shuffle=True)

    def train(consumer: tsnb.Consumer, *factors: float) -> None:
        for factor in factors:
            for batch in consumer:
                tsnb.data.log_losses(batch * factor)

    with tsnb.serve(loader, name="g", seed=1, late_join=1.0) as producer:
        trials = [
            (tsnb.attach("a", "g"), (2.0, 4.0)),
            (tsnb.attach("r", "g", rank=0, world_size=2), (5.0, 5.0)),
            (tsnb.attach("r", "g", rank=1, world_size=2), (5.0, 5.0)),
        ]
        threads = [threading.Thread(target=train, args=(c, *factors)) for c, factors in trials]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        for consumer, _ in trials:
            consumer.close()
        wait_until(lambda: not producer.status().consumers)
        growth = growth_in(producer)
        assert growth is not None
        assert sorted(growth.losses.trials) == ["a", "r"]
        assert losses_of(producer, "a").tolist() == [3.0 * i for i in range(24)]
        assert losses_of(producer, "r").tolist() == [5.0 * i for i in range(24)]
        assert losses_of(producer).tolist() == [4.0 * i for i in range(24)]


@pytest.mark.system
def test_losses_are_refused_where_they_are_of_no_batch(tmp_path: Path) -> None:
    """Before a loop, after it, twice, too few, of two loops at once; nothing wrong is kept, and the loop goes on."""
    loader = DataLoader(numbers(tmp_path, 16), 8, shuffle=True)
    with pytest.raises(TsnbError, match="no loop over a stream"):
        tsnb.data.log_losses([1.0])
    with (
        tsnb.serve(loader, name="g", late_join=1.0, window=4) as producer,
        tsnb.attach("a", "g") as consumer,
        tsnb.attach("b", "g") as other,
    ):
        with pytest.raises(TsnbError, match="no loop over"):
            consumer.report([1.0])
        batches = 0
        for batch in consumer:
            for wrong in (batch[:3] * 1.0, batch * float("nan")):
                with pytest.raises(ValueError, match="loss"):
                    tsnb.data.log_losses(wrong)
            tsnb.data.log_losses(batch * 1.0)
            with pytest.raises(TsnbError, match="already reported"):
                consumer.report(batch * 1.0)
            for _ in other:
                with pytest.raises(TsnbError, match=r"consumer\.report"):
                    tsnb.data.log_losses(batch * 1.0)
                break
            with pytest.raises(TsnbError, match="already reported"):
                consumer.report(batch * 1.0)
            batches += 1
        assert batches == 2
        with pytest.raises(TsnbError, match="no loop over"):
            consumer.report([1.0])
        wait_until(lambda: losses_of(producer).tolist() == list(range(16)))


@pytest.mark.system
def test_losses_of_a_last_batch_may_come_after_another_loop(tmp_path: Path) -> None:
    """A loop that was given all of its epoch is in its last batch until it ends, whatever else its thread takes."""
    loader = DataLoader(numbers(tmp_path, 16), 8, shuffle=True)
    with (
        tsnb.serve(loader, name="g", late_join=1.0, window=4) as producer,
        tsnb.attach("a", "g") as consumer,
        tsnb.attach("b", "g") as other,
    ):
        for _ in range(2):
            loop = iter(consumer)
            for _ in range(2):
                batch = next(loop)
                for _ in other:
                    with pytest.raises(TsnbError, match=r"consumer\.report"):
                        tsnb.data.log_losses(batch * 1.0)
                    break
                tsnb.data.log_losses(batch * 1.0)
            del loop  # as trainers do that know the length: they never ask past the last batch
            with pytest.raises(TsnbError, match="no loop over"):
                consumer.report([1.0])
        wait_until(lambda: losses_of(producer).tolist() == list(range(16)))


@pytest.mark.system
def test_losses_of_a_stream_that_does_not_grow_are_refused() -> None:
    """It has no rounds: with the way out, also where batches tell which samples they hold."""
    with (
        tsnb.serve(DataLoader(TensorDataset(torch.arange(8)), 4), name="g"),
        tsnb.attach("a", "g", subset=[1, 2]) as consumer,
    ):
        for _ in consumer:
            with pytest.raises(TsnbError, match=r"does not grow.*tsnb\.data\.grow"):
                consumer.report([1.0, 1.0])


@pytest.mark.system
def test_batches_whose_rows_are_not_samples_say_so(tmp_path: Path) -> None:
    """Two rows of each sample, say: which is whose is not known, so they are not cut either."""
    loader = DataLoader(numbers(tmp_path, 16), 8, collate_fn=lambda found: torch.tensor([*found, *found]))
    with tsnb.serve(loader, name="g"):
        with (
            tsnb.attach("b", "g", batch_size=4) as cutting,
            pytest.raises(BatchNotShareable, match="one row per"),
        ):
            next(iter(cutting))
        with tsnb.attach("a", "g") as consumer:
            for batch in consumer:
                with pytest.raises(ValueError, match=r"a batch of 8 samples\. Report one loss per sample"):
                    consumer.report(batch * 1.0)


# -- rounds that have rather those with a high loss -------------------------------------------------------------------

LOSSES = st.lists(st.floats(-1, 1e6) | st.just(float("nan")), min_size=1, max_size=60)


@given(LOSSES, st.floats(0.01, 1), st.integers(0, 1 << 60))
def test_a_round_has_as_many_samples_as_wanted_each_once_and_the_same_again(
    losses: list[float], share: float, seed: int
) -> None:
    """Whatever the losses: the probabilities add up, none is above 1 or 0, and weights undo them."""
    known = np.array(losses)
    wanted = max(1, round(share * len(losses)))
    likely = probabilities(known, wanted)
    assert likely.min() > 0 and likely.max() <= 1 and abs(likely.sum() - wanted) < 1e-6
    samples, weights = hard(known, wanted, seed, 3)
    assert len(samples) == wanted and (np.diff(samples) > 0).all()
    np.testing.assert_allclose(weights, wanted / (len(losses) * likely[samples]), rtol=1e-5)
    assert weights.max() <= 1 / EVEN + 1e-3
    assert hard(known, wanted, seed, 3).samples.tolist() == samples.tolist()


def test_a_sample_comes_as_often_as_its_loss_says_and_the_weighted_mean_is_that_of_all() -> None:
    """Over 4,000 rounds of 20 of 60: each share within 5 standard errors, and so is the mean of weighted losses."""
    losses = np.linspace(0, 3, 60) ** 3
    losses[7] = np.nan
    likely, rounds = probabilities(losses, 20), 4000
    assert likely[-1] == 1 and likely[59] > 5 * likely[0] and 0.2 < likely[7] < 0.4
    counts, means = np.zeros(60), []
    for number in range(rounds):
        samples, weights = hard(losses, 20, 5, number)
        counts[samples] += 1
        means.append(float((weights * np.nan_to_num(losses)[samples]).mean()))
    error = np.sqrt(likely * (1 - likely) / rounds)
    assert (np.abs(counts / rounds - likely) <= 5 * error + 1e-9).all()
    truth = np.nan_to_num(losses).mean()
    assert abs(np.mean(means) - truth) < 5 * np.std(means) / np.sqrt(rounds)
    assert (
        abs(
            np.mean([np.nan_to_num(losses)[hard(losses, 20, 5, i).samples].mean() for i in range(99)]) - truth
        )
        > 1
    )


def test_losses_that_tell_nothing_draw_evenly() -> None:
    """None reported, or all the same, or none above 0: a plain draw, with weights of 1."""
    for losses in (np.full(30, np.nan), np.full(30, 2.0), np.full(30, -1.0), np.zeros(30)):
        assert set(hard(losses, 10, 1).weights.tolist()) == {1.0}


def test_a_killed_producer_s_successor_gives_the_round_that_was_drawn(tmp_path: Path) -> None:
    """The same samples and weights; and a file that has gone is named."""

    def producer() -> Any:
        loader = DataLoader(numbers(tmp_path, 40), 4, shuffle=True)
        growth = growth_of(loader, "s", 5)
        assert growth is not None
        return growth

    growth = producer()
    growth.set_rounds(tsnb.data.interval(1), "hard:0.25")
    growth.losses.note("a", np.arange(40), np.arange(40, dtype=np.float32))
    assert not growth.round_due({}, ["a"])
    growth._since = growth._since._replace(time_s=-1e9)
    assert growth.round_due({}, ["a"])
    epoch = growth.first_epoch

    def order() -> tuple[list[list[int]], list[bytes]]:
        batches = GrowingBatches(growth)
        batches.set_epoch(epoch)
        found = list(batches)
        return found, [growth.weights_of(batch) for batch in found]

    first = order()
    given_samples = [i for batch in first[0] for i in batch]
    assert len(set(given_samples)) == len(given_samples) == 10 and np.mean(given_samples) > 20
    likely = probabilities(np.arange(40.0), 10)
    told = np.concatenate([np.frombuffer(text, "<f4") for text in first[1]])
    np.testing.assert_allclose(told, 10 / (40 * likely[given_samples]), rtol=1e-5)
    growth.log.close()  # which the system does when it is killed
    growth = producer()
    assert growth.in_words == "hard:0.25, after 1 s"
    assert order() == first and growth.first_epoch == epoch + 1
    growth.set_rounds(Trigger(), "new")
    epoch += 1
    assert set(order()[1]) == {b""}, "an epoch of all has no weights"
    epoch -= 1
    (kept,) = (tmp_path / "index").glob("*.round")
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(TsnbError, match=r"is damaged"):
        order()
    kept.unlink()
    with pytest.raises(TsnbError, match=r"no longer stored"):
        order()
    growth.log.close()


@pytest.mark.system
@pytest.mark.parametrize("own", [{}, {"batch_size": 3}])
def test_a_round_of_hard_samples_has_those_of_high_loss_and_their_weights(
    tmp_path: Path, own: dict[str, Any]
) -> None:
    """A whole epoch first, which has no weights; then a quarter; by the losses of one trial where that is said."""
    loader = DataLoader(numbers(tmp_path, 80), 8, shuffle=True, num_workers=1)
    with tsnb.serve(loader, name="g", seed=1) as producer, tsnb.attach("a", "g", **own) as consumer:
        growth = growth_in(producer)
        assert growth is not None
        with pytest.raises(TsnbError, match="no loop over"):
            consumer.weights  # noqa: B018  # raises
        for batch in consumer:
            assert consumer.weights.tolist() == [1.0] * len(batch)
            consumer.report(torch.where(batch < 8, 100.0, 1.0))
        wait_until(lambda: bool(np.isfinite(losses_of(producer)).all()))
        likely = probabilities(losses_of(producer), 20)
        growth.losses.note("gone", np.arange(80), np.full(80, 1e6, np.float32))  # of a trial that has left
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "hard:0.25")
        assert producer.status().rounds == "hard:0.25, after 0.01 s"
        for _ in range(2):
            seen: list[int] = []
            for batch in consumer:
                expected = 20 / (80 * likely[batch.numpy()])
                np.testing.assert_allclose(consumer.weights.numpy(), expected, rtol=1e-5)
                seen += batch.tolist()
            assert len(set(seen)) == len(seen) == 20 and set(range(8)) <= set(seen)
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "hard:0.25:b")
        growth.losses.note("b", np.arange(80), np.where(np.arange(80) >= 72, 100.0, 1.0).astype(np.float32))
        for _ in range(2):
            seen = [i for batch in consumer for i in batch.tolist()]
        assert set(range(72, 80)) <= set(seen)


@pytest.mark.system
def test_a_trial_that_goes_on_in_the_middle_of_a_round_has_the_rest_of_it_with_its_weights(
    tmp_path: Path,
) -> None:
    """By a state, from a stream that was served again: each sample of the round once, each with its own weight."""
    loader = DataLoader(numbers(tmp_path, 60), 8, shuffle=True)
    taken: dict[int, float] = {}
    with tsnb.serve(loader, name="g", seed=1) as producer, tsnb.attach("a", "g", batch_size=5) as consumer:
        for batch in consumer:
            consumer.report(batch * 1.0)
        wait_until(lambda: bool(np.isfinite(losses_of(producer)).all()))
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "hard:0.5")
        for step, batch in enumerate(consumer):
            taken.update(zip(batch.tolist(), consumer.weights.tolist(), strict=True))
            if step == 2:
                break
        state = consumer.state_dict()
    with tsnb.serve(loader, name="g", seed=1), tsnb.attach("a", "g", batch_size=5) as consumer:
        consumer.load_state_dict(state)
        for batch in consumer:
            assert not taken.keys() & set(batch.tolist())
            taken.update(zip(batch.tolist(), consumer.weights.tolist(), strict=True))
    assert len(taken) == 30
    likely = probabilities(np.arange(60.0), 30)
    np.testing.assert_allclose([taken[i] for i in taken], [30 / (60 * likely[i]) for i in taken], rtol=1e-5)


# -- rounds that balance classes --------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60), st.none() | st.integers(1, 80), st.integers(0, 99)
)
def test_a_balanced_round_has_as_many_of_each_class_as_it_can(
    labels: list[int], wanted: int | None, seed: int
) -> None:
    """As many as the smallest has; or as many in all as wanted, spread as evenly as the classes allow."""
    classes = np.array(labels)
    samples, weights = balanced(classes, wanted, seed)
    counts = {c: labels.count(c) for c in set(labels)}
    taken = {c: int((classes[samples] == c).sum()) for c in counts}
    assert (np.diff(samples) > 0).all()
    if wanted is None:
        assert set(taken.values()) == {min(counts.values())}
    else:
        assert sum(taken.values()) == min(wanted, len(labels))
        short = [c for c in counts if taken[c] < counts[c]]
        assert all(taken[c] >= max(taken.values()) - 1 for c in short)
    for c, count in counts.items():
        mine = weights[classes[samples] == c]
        np.testing.assert_allclose(mine, len(samples) * count / (len(labels) * max(1, taken[c])), rtol=1e-5)


def test_each_sample_of_a_class_comes_as_often() -> None:
    """Over 2,000 rounds, within 5 standard errors of its share; and the weighted mean is that of all samples."""
    labels, values = np.array([0] * 30 + [1] * 6), np.arange(36.0)
    drawn = [balanced(labels, None, 3, number) for number in range(2000)]
    counts = np.bincount(np.concatenate([d.samples for d in drawn]), minlength=36) / 2000
    assert (counts[30:] == 1).all() and (np.abs(counts[:30] - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 2000)).all()
    means = [float((d.weights * values[d.samples]).mean()) for d in drawn]
    assert abs(np.mean(means) - values.mean()) < 5 * np.std(means) / np.sqrt(2000)


@pytest.mark.system
def test_a_balanced_round_of_a_stream_has_its_classes_new_ones_too(tmp_path: Path) -> None:
    """By the function that tells a sample's class, which is asked once a sample; with the weights of the classes."""
    listed, asked = [f"cat {i}" for i in range(30)] + [f"dog {i}" for i in range(6)], list[str]()

    def label(text: str) -> str:
        asked.append(text)
        return text.split(maxsplit=1)[0]

    grown = tsnb.data.grow(lambda: listed, str, index=tmp_path, label=label)
    loader = DataLoader(grown, 4, shuffle=True, num_workers=1)
    with tsnb.serve(loader, name="g", seed=1) as producer, tsnb.attach("a", "g") as consumer:
        list(consumer)
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "balanced")
        assert producer.status().rounds == "balanced, after 0.01 s"
        taken = [text for batch in consumer for text in batch]
        assert sorted(text.split()[0] for text in taken) == ["cat"] * 6 + ["dog"] * 6
        listed += [f"fox {i}" for i in range(4)]
        wait_until(lambda: producer.status().found == 40)
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "balanced:14")
        for _ in range(2):
            rows = [
                (t, w) for batch in consumer for t, w in zip(batch, consumer.weights.tolist(), strict=True)
            ]
        weights = {text.split()[0]: weight for text, weight in rows}
        counts = {name: sum(text.startswith(name) for text, _ in rows) for name in weights}
        assert sorted(counts.values()) == [4, 5, 5] and counts["fox"] == 4
        for name, count in (("cat", 30), ("dog", 6), ("fox", 4)):
            assert abs(weights[name] - 14 * count / (40 * counts[name])) < 1e-5
    assert sorted(asked) == sorted(listed), "asked once a sample"


@pytest.mark.system
def test_classes_that_are_not_told_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """No function; one that raises; one that is not a function; and a stream that is served again without it."""
    with pytest.raises(TypeError, match="label="):
        tsnb.data.grow(list, str, index=tmp_path, label="name")  # type: ignore[arg-type]
    loader = DataLoader(numbers(tmp_path, 20), 4)
    with tsnb.serve(loader, name="g") as producer:
        with pytest.raises(TsnbError, match=r"needs the class of each sample.*label="):
            tsnb.data.rounds("g", tsnb.data.interval(1), "balanced")
        assert producer.status().rounds == ""

    def wrong(text: str) -> int:
        return 1 // int(text)

    grown = tsnb.data.grow(lambda: [str(i) for i in range(20)], int, index=tmp_path / "index", label=wrong)
    with tsnb.serve(DataLoader(grown, 4), name="g", seed=3), tsnb.attach("a", "g") as consumer:
        list(consumer)
        tsnb.data.rounds("g", tsnb.data.interval(0.01), "balanced:9")
        with pytest.raises(
            LoaderFailed, match=r"label= of tsnb\.data\.grow raised ZeroDivisionError for sample 0"
        ):
            list(consumer)
    with tsnb.serve(loader, name="g", seed=3), tsnb.attach("a", "g") as consumer:
        with pytest.raises(LoaderFailed, match=r"needs the class of each sample"):
            list(consumer)
        tsnb.data.rounds("g", None)
        assert len(torch.cat(list(consumer))) == 20
