"""Races on simulated losses: how often a verdict is wrong, how soon one comes, and where none may be had."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tsnb
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning import race_table
from tsnb.sweeps.pruning.difference import Difference
from tsnb.sweeps.pruning.racing import Racing, Verdict

EPOCH = 100


def row(batch: int, loss: float, *, rows: int = 10) -> LoggedRow:
    """Return what a trial logs after its batch of that number, from 0."""
    epoch, place = divmod(batch, EPOCH)
    return LoggedRow(batch, epoch, place + 1, (batch + 1) * rows, 0.0, {"loss": loss}, epoch)


def noise(rng: random.Random, kept: float, *, heavy: bool = False) -> Iterator[float]:
    """Yield numbers around 0 of which each keeps a share of the one before."""
    value = 0.0
    while True:
        new = rng.choice((-1, 1)) * rng.paretovariate(2.5) if heavy else rng.gauss(0, 1)
        value = kept * value + new
        yield value


def race_of(losses: Mapping[str, Iterator[float]], batches: int, racing: Racing | None = None) -> Racing:
    """Let trials with other parameters and one seed log for so many batches."""
    racing = racing or Racing("loss", "min", 0.01)
    for name in losses:
        racing.enter(name, {"lr": name}, seed=0)
    for batch in range(batches):
        for name, loss in losses.items():
            # the first batch's loss is that of the weights that all begin with
            racing.watch(name, row(batch, 2.3 if batch == 0 else next(loss)))
    return racing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "heavy", "fading"),
    [(0.0, False, False), (0.0, True, False), (0.5, False, True), (0.9, False, False), (0.97, True, False)],
)
def test_of_two_that_are_level_one_is_said_to_be_ahead_as_seldom_as_wanted(
    kept: float, heavy: bool, fading: bool
) -> None:
    """Four hundred races of each kind, looked at after every block: 2,000 in all, wrong in 5 % of them at most."""
    rng = random.Random(7)
    wrong = 0
    for _ in range(400):
        difference = Difference(error=0.05)
        numbers = noise(rng, kept, heavy=heavy)
        for batch in range(600):
            difference.add(next(numbers) / (1 + batch / 20 if fading else 1))
            if difference.ahead:
                wrong += 1
                break
    assert wrong / 400 <= 0.05


def test_who_is_better_batch_by_batch_is_ahead_soon_though_batches_differ_much_more() -> None:
    """Between separate runs the difference would drown: batches differ by 1, the two trials by 0.1."""
    rng = random.Random(3)
    hard = [rng.gauss(1.0, 1.0) for _ in range(400)]
    losses = {
        "slow": (loss + 0.1 + rng.gauss(0, 0.05) for loss in hard),
        "fast": (loss + rng.gauss(0, 0.05) for loss in hard),
    }
    [verdict] = race_of(losses, 200).verdicts()
    assert str(verdict) == "fast is ahead of slow now, 99%, after 200 batches"


def test_ahead_means_now() -> None:
    """A rate that begins well and is overtaken: first one is ahead, then it is open, then the other is."""
    rng = random.Random(5)
    racing = Racing("loss", "min", 0.01)
    for name in ("a", "b"):
        racing.enter(name, {"lr": name}, seed=0)
    said = []
    for batch in range(3000):
        better = "a" if batch < 300 else "b"
        for name in ("a", "b"):
            loss = 2.3 if batch == 0 else (0.0 if name == better else 1.0) + rng.gauss(0, 0.3)
            racing.watch(name, row(batch, loss))
        [verdict] = racing.verdicts()
        said.append(verdict.ahead if verdict.decided else "")
    changes = [word for at, word in enumerate(said) if at == 0 or word != said[at - 1]]
    assert [word for word in changes if word] == ["a", "b"]
    assert changes == ["", "a", "", "b"]


def test_two_alike_are_never_apart() -> None:
    """The same code twice, with one seed: every loss is the same to the last bit, or nearly."""
    rng = random.Random(1)
    for spread in (0.0, 1e-9):
        same = [rng.gauss(1, 1) for _ in range(800)]
        losses = {name: iter([x + rng.gauss(0, spread) for x in same]) for name in "ab"}
        [verdict] = race_of(losses, 700).verdicts()
        assert not verdict.decided


def test_high_is_good_where_it_is() -> None:
    rng = random.Random(3)
    losses = {
        "poor": (rng.gauss(0.5, 0.1) for _ in range(500)),
        "good": (rng.gauss(0.8, 0.1) for _ in range(500)),
    }
    [verdict] = race_of(losses, 300, Racing("loss", "max", 0.01)).verdicts()
    assert verdict.decided
    assert verdict.ahead == "good"


def test_one_whose_loss_is_no_number_any_more_is_behind() -> None:
    rng = random.Random(3)
    diverged = (rng.gauss(1, 0.1) if batch < 20 else math.nan for batch in range(500))
    losses = {"diverged": diverged, "calm": (rng.gauss(1, 0.1) for _ in range(500))}
    [verdict] = race_of(losses, 400).verdicts()
    assert verdict.decided
    assert verdict.behind == "diverged"


def test_a_loser_is_cut_once_and_the_one_ahead_goes_on() -> None:
    rng = random.Random(3)
    racing = Racing("loss", "min", 0.01, lambda name: ({"lr": name}, 0))
    racing.start(["a", "b", "c"])
    means = {"a": 0.0, "b": 1.0, "c": 2.0}
    cuts = []
    for batch in range(300):
        for name, mean in means.items():
            loss = 2.3 if batch == 0 else mean + rng.gauss(0, 0.2)
            cuts += racing.take(name, row(batch, loss))
    assert sorted(cut.name for cut in cuts) == ["b", "c"]
    assert racing.reached
    assert all("is ahead of" in cut.why for cut in cuts)
    assert cuts[0].step < 300


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"seed": None}, {"seed": None}, "Train all of them with the same seed"),
        ({"seed": 1}, {"seed": 2}, "Train both with the same seed, or with 3 seeds each"),
        ({"stream": "train"}, {"stream": "other"}, "two streams, 'train' and 'other'"),
        (
            {"loss": 2.30},
            {"loss": 2.35},
            "different weights .*2.3 and 2.35 at the first batch.* Train each with 3 seeds",
        ),
        ({"rows": 10}, {"rows": 20}, "share no batch"),
    ],
)
def test_where_trials_are_not_paired_nothing_is_concluded(
    first: dict[str, object], second: dict[str, object], reason: str
) -> None:
    """However clear the difference is: the reason is said, and what to do."""
    racing = Racing("loss", "min", 0.01)
    for name, given in (("a", first), ("b", second)):
        own = {"seed": 0, "stream": "train", "loss": 2.3, "rows": 10} | given
        racing.enter(name, {"lr": name}, own["seed"], str(own["stream"]))
    for batch in range(300):
        for at, (name, given) in enumerate((("a", first), ("b", second))):
            loss = float(str(given.get("loss", 2.3))) if batch == 0 else at * 5.0 + 0.1 * (batch % 7)
            rows = int(str(given.get("rows", 10)))
            racing.watch(name, row(batch, loss, rows=rows))
    [verdict] = racing.verdicts()
    assert not verdict.decided
    assert re.search(reason, verdict.reason), verdict.reason


@pytest.mark.slow
def test_seeds_are_the_blocks_where_each_begins_with_other_weights() -> None:
    """Two of a kind say nothing; with many the better architecture is ahead, and each of the others is cut."""
    rng = random.Random(11)

    def several(seeds: int, gap: float) -> Racing:
        racing = Racing("loss", "min", 0.01)
        level = {}
        for net, extra in (("wide", 0.0), ("deep", gap)):
            for seed in range(seeds):
                racing.enter(f"{net}-{seed}", {"net": net, "seed": seed}, None)
                level[f"{net}-{seed}"] = extra + rng.gauss(0, 0.05)
        for batch in range(600):
            for name, mean in level.items():
                racing.watch(name, row(batch, mean + rng.gauss(0, 0.1)))
        return racing

    [few] = several(2, 5.0).verdicts()
    assert not few.decided
    assert "2 seeds in common, and with several seeds tsnb needs 3 of each" in few.reason
    [many] = several(8, 1.0).verdicts()
    assert str(many).startswith(
        "wide-0 (with 7 further seeds) is ahead of deep-0 (with 7 further seeds) now, 99%, after"
    )
    level = [several(4, 0.0).verdicts()[0].decided for _ in range(40)]
    assert sum(level) <= 1


@dataclass(eq=False)
class Trained:
    """What a race reads of a trial, and the one thing that it does to one."""

    name: str
    params: Mapping[str, Any]
    rows: list[LoggedRow]
    state: str = "running"
    number: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=lambda: {"stream": "train"})

    @property
    def metrics(self) -> SimpleNamespace:
        return SimpleNamespace(rows=self.rows)

    def stop(self) -> None:
        self.state = "stopped"


def test_by_hand_and_in_a_sweep_the_same_trials_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed of a configuration that is behind, each once, though two configurations are ahead of it."""
    rng = random.Random(11)
    pruning = Racing("loss", "min", 0.01, lambda name: (trials[name].params, None))
    trials = {
        f"{net}-{seed}": Trained(f"{net}-{seed}", {"net": net, "seed": seed}, [])
        for net in ("wide", "deep", "flat")
        for seed in range(6)
    }
    level = {"wide": 0.0, "deep": 4.0, "flat": 8.0}
    pruning.start(trials)
    cuts: list[str] = []
    for batch in range(600):
        for name, trial in trials.items():
            logged = row(batch, level[trial.params["net"]] + rng.gauss(0, 0.1))
            trial.rows.append(logged)
            cuts += [cut.name for cut in pruning.take(name, logged)]
    monkeypatch.setattr(race_table, "board", trials)
    stopped = tsnb.search.race("loss").end_losers()
    behind = [name for name in trials if not name.startswith("wide")]
    assert sorted(cuts) == sorted(stopped) == sorted(behind)
    assert [name for name, trial in trials.items() if trial.state == "stopped"] == behind


def test_of_two_that_ended_or_one_that_did_nobody_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that has ended stays ahead in the table, and stops nobody."""
    rng = random.Random(3)
    trials = {
        name: Trained(name, {"lr": name, "seed": 0}, [row(0, 2.3)], state)
        for name, state in (("good", "done"), ("poor", "running"))
    }
    for batch in range(1, 300):
        for name, trial in trials.items():
            trial.rows.append(row(batch, (name == "poor") + rng.gauss(0, 0.1)))
    monkeypatch.setattr(race_table, "board", trials)
    race = tsnb.search.race("loss")
    assert race.end_losers() == []
    race = tsnb.search.race("loss", trials=["good", "poor"])
    [verdict] = race.look()
    assert verdict.decided
    assert (verdict.ahead_trials, verdict.behind_trials) == (("good",), ("poor",))
    assert race.end_losers() == []
    assert trials["poor"].state == "running"


@pytest.mark.parametrize("at_first", ["", "train"])
def test_a_stream_that_is_told_after_the_first_rows_is_no_other_stream(
    monkeypatch: pytest.MonkeyPatch, at_first: str
) -> None:
    """A look may come before the report that names it, or before a trial has attached to a second one, too."""
    rng = random.Random(3)
    trials = {name: Trained(name, {"lr": name, "seed": 0}, [row(0, 2.3)]) for name in ("good", "poor")}
    trials["good"].report, trials["poor"].report = {"stream": at_first}, {"stream": "train, val"}
    monkeypatch.setattr(race_table, "board", trials)
    race = tsnb.search.race("loss")
    [verdict] = race.look()
    assert not verdict.reason
    trials["good"].report = {"stream": "train, val"}
    for batch in range(1, 300):
        for name, trial in trials.items():
            trial.rows.append(row(batch, (name == "poor") + rng.gauss(0, 0.1)))
    [verdict] = race.look()
    assert verdict.decided
    trials["good"].report = {"stream": "other"}
    race.look()
    assert "two streams" in race.look()[0].reason


def test_what_is_kept_does_not_grow_with_the_race() -> None:
    """A value is forgotten once everybody has come to its batch, and windows that have been judged go."""
    rng = random.Random(2)
    losses = {name: noise(rng, 0.5) for name in "abc"}
    racing = race_of(losses, 5000)
    assert sum(len(runner.pending) for runner in racing._runners.values()) == 0
    assert all(len(pair._windows) <= 3 for pair in racing._pairs.values())


def test_bad_numbers_are_told() -> None:
    with pytest.raises(ValueError, match=r"error=1 is invalid. Pass the chance of a wrong verdict"):
        tsnb.search.race("loss", error=1)
    with pytest.raises(ValueError, match="direction"):
        tsnb.search.race("churn")
    with pytest.raises(ValueError, match=r"Add seed=0"):
        tsnb.search.race("loss").begin({"a": {"lr": 1}}, None)


def curves(
    rng: random.Random, level: Callable[[int], float], wander: float, own: float, shared: Sequence[float]
) -> Iterator[float]:
    """Yield a loss that falls as `level` says: batches are hard for all alike, and it wanders slowly by itself."""
    drift, kept = 0.0, 0.995
    for batch, hard in enumerate(shared):
        drift = kept * drift + rng.gauss(0, wander * math.sqrt(1 - kept * kept))
        yield level(batch) * hard * math.exp(drift + rng.gauss(0, own))


def hardness(rng: random.Random, batches: int) -> list[float]:
    """Return how hard each batch is."""
    return [math.exp(rng.gauss(0, 0.3)) for _ in range(batches)]


def test_who_learns_much_faster_is_ahead_while_both_losses_fall() -> None:
    """The difference rises and falls again, always with one sign: that trend is what is asked for, and no noise."""
    rng = random.Random(4)
    for _ in range(20):
        shared = hardness(rng, 1000)
        losses = {
            "slow": curves(rng, lambda batch: 0.4 + 1.9 * math.exp(-batch / 900), 0.0, 0.1, shared),
            "fast": curves(rng, lambda batch: 0.1 + 2.2 * math.exp(-batch / 60), 0.0, 0.1, shared),
        }
        [verdict] = race_of(losses, 400).verdicts()
        assert verdict.decided
        assert verdict.ahead == "fast"


@pytest.mark.slow
def test_equal_trials_that_fall_and_wander_apart_slowly_are_told_apart_as_seldom_as_wanted() -> None:
    """Each by 3 % of its loss over hundreds of batches, as the same network with other dropout does: 100 races."""
    rng = random.Random(8)
    wrong = 0
    for _ in range(100):
        shared = hardness(rng, 1000)
        losses = {
            name: curves(rng, lambda batch: 0.1 + 2.2 * math.exp(-batch / 150), 0.03, 0.2, shared)
            for name in ("a", "b")
        }
        racing = Racing("loss", "min", 0.05)
        for name in losses:
            racing.enter(name, {"lr": name}, seed=0)
        racing.learn("a", {"weights": "1"})
        racing.learn("b", {"weights": "1"})
        for batch in range(900):
            changed = [racing.watch(name, row(batch, next(loss))) for name, loss in losses.items()]
            if any(changed) and racing.verdicts()[0].decided:
                wrong += 1
                break
    assert wrong / 100 <= 0.05


def test_a_number_on_both_sides_of_0_is_compared_by_the_strict_question_alone() -> None:
    """A share of what is near 0 says nothing: rewards of two equal trials that wander around it."""
    rng = random.Random(8)
    wrong = 0
    for _ in range(100):
        difference = Difference(error=0.05)
        one, other = noise(rng, 0.995), noise(rng, 0.995)
        for _ in range(800):
            a, b = next(one), next(other)
            difference.add(a - b, (abs(a) + abs(b)) / 2 if a * b > 0 else 0.0)
            if difference.ahead:
                wrong += 1
                break
    assert wrong / 100 <= 0.05


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return pictures and what they show."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)


def trained(
    lr: float, order: int, init: int, own: int, *, drop: float = 0.0, zero: bool = False, batches: int = 400
) -> list[float]:
    """Train a small network on digits; return its losses, batch by batch."""
    torch.set_num_threads(1)  # two that spin for each other on a busy machine take minutes
    inputs, labels = digits()
    torch.manual_seed(init)
    head = torch.nn.Linear(32, 10)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(drop), head)
    if zero:
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    drawn = torch.Generator().manual_seed(order)
    torch.manual_seed(own)
    losses = []
    for _ in range(batches):
        batch = torch.randint(len(inputs), (16,), generator=drawn)
        loss = torch.nn.functional.cross_entropy(net(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def verdict_of(one: Sequence[float], other: Sequence[float], weights: tuple[str, str]) -> Verdict:
    """Return the state of two trials of one seed after their losses."""
    racing = Racing("loss", "min", 0.01)
    for name, own in zip("ab", weights, strict=True):
        racing.enter(name, {"lr": name}, seed=0)
        racing.learn(name, {"stream": "train", "weights": own})
    for batch, pair in enumerate(zip(one, other, strict=True)):
        for name, loss in zip("ab", pair, strict=True):
            racing.watch(name, row(batch, loss))
    [verdict] = racing.verdicts()
    return verdict


@pytest.mark.slow
def test_small_networks_with_rates_ten_times_apart_are_told_apart_and_equal_ones_are_not() -> None:
    """Real ones: 2 seeds with rates 0.1 and 0.01, and the same rate twice, with dropout of their own."""
    for seed in range(2):
        same = ("1", "1")
        fast, slow = trained(0.1, seed, seed, seed), trained(0.01, seed, seed, seed)
        verdict = verdict_of(slow, fast, same)
        assert verdict.decided
        assert verdict.ahead == "b"
        dropped = [trained(0.1, seed, seed, 100 + seed + 50 * own, drop=0.5) for own in (0, 1)]
        assert dropped[0][0] != dropped[1][0], "the first losses differ, as dropout does"
        verdict = verdict_of(dropped[0], dropped[1], same)
        assert not verdict.reason
        assert not verdict.decided


def test_a_head_of_zeros_gives_one_first_loss_and_other_weights_all_the_same() -> None:
    """Nothing is concluded of two networks of which only the first loss is the same."""
    one, other = (trained(0.1, 0, init, 0, zero=True, batches=60) for init in (1, 2))
    assert one[0] == pytest.approx(other[0])
    verdict = verdict_of(one, other, ("1", "2"))
    assert not verdict.decided
    assert "they start with different weights" in verdict.reason


def test_what_cannot_be_compared_is_said_soon_and_once() -> None:
    """After 32 batches, for each kind of reason; after 1024 that nobody is ahead."""
    rng = random.Random(1)
    racing = Racing("loss", "min", 0.01, lambda name: ({"lr": name}, 0))
    racing.start(["a", "b", "c", "d"])
    for name in "abcd":
        racing.learn(name, {"stream": "train", "weights": "2" if name in "cd" else "1"})
    said: list[tuple[int, str]] = []
    for batch in range(1100):
        for name in "abcd":
            racing.take(name, row(batch, rng.gauss(1, 0.1)))
        said += [(batch + 1, line) for line in racing.remarks()]
    assert [batch for batch, _ in said] == [32, 1024]
    assert said[0][1].startswith("a and c cannot be compared: they start with different weights")
    assert "are close: after 1024 batches" in said[1][1]
