"""A stream with a cache: the same bit for bit, prepared once less for each sample that is kept, and proven first."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

import tsnb
from tests.producer.sources import Noisy, NoisyTogether, Numbers, Stand, Stream, same
from tsnb.caching.keeper import Keeper
from tsnb.caching.memory import WRITTEN, SampleMemory
from tsnb.errors import ArenaFull
from tsnb.options import StreamOptions

pytestmark = pytest.mark.system

SAMPLES = 50
MIB = 1 << 20


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


def work(units: int) -> None:
    """Cost something that no clock of a busy machine mistakes for nothing: wait, as for a disk."""
    time.sleep(5e-4 * units)


class Pictures(Dataset[Any]):
    """Samples that are costly, of sizes and costs that differ; counts how often each is prepared."""

    def __init__(self, transform: Callable[..., Any] | None = None, target_transform: Any = None) -> None:
        self.transform = transform
        self.target_transform = target_transform
        self.prepared = torch.zeros(SAMPLES, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return SAMPLES

    def raw(self, index: int) -> torch.Tensor:
        self.prepared[index] += 1
        work(1 + index % 4)
        return torch.full((3, 8, 8), float(index))

    def __getitem__(self, index: int) -> Any:
        image, label = self.raw(index), index
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label


def jitter(image: torch.Tensor) -> torch.Tensor:
    """Draw from each of the three generators, and change what came in."""
    image.add_(torch.rand(()))
    if random.random() < 0.5:
        image = image.flip(-1)
    return image * float(np.random.rand())  # noqa: NPY002


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 8, **{"shuffle": True, "num_workers": 2, **options})


class Kept:
    """A stream's epochs with a cache, and what it says."""

    def __init__(self, dataset: Any, limit: int = MIB, seed: int | None = 3, **options: Any) -> None:
        self.keeper = Keeper(limit)
        self.stand = Stand(loader(dataset, **options), seed=seed, keeper=self.keeper)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.stand.__exit__()
        self.keeper.close()

    def epochs(self, first: int, last: int) -> list[Any]:
        return [self.stand.epoch(number) for number in range(first, last)]


def plain(dataset: Any, epochs: int, seed: int | None = 3, **options: Any) -> list[Any]:
    with Stand(loader(dataset, **options), seed=seed) as stand:
        return [stand.epoch(number) for number in range(epochs)]


def equal(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b) and all(same(list(x), list(y)) for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )


# -- the same stream ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("transform", "method"), [(None, "fork"), (jitter, "fork"), (jitter, "spawn")])
def test_the_stream_is_the_same_with_a_cache_and_misses_are_what_was_not_kept(
    transform: Any, method: str
) -> None:
    """Bit for bit under any number of workers; from the third epoch on exactly N - kept samples are prepared."""
    options: dict[str, Any] = {"multiprocessing_context": method, "persistent_workers": method == "spawn"}
    wanted = plain(Pictures(transform), 5)
    for workers in (1, 3) if method == "fork" else (1,):
        pictures = Pictures(transform)
        with Kept(pictures, 40_000, num_workers=workers, **options) as kept:
            found = kept.epochs(0, 2)
            twice = pictures.prepared.clone()
            counts = kept.keeper.counts()
            found += kept.epochs(2, 5)
            assert equal(found, wanted)
            assert counts.state == "serving"
            assert 10 < counts.kept < SAMPLES
            assert counts.kept_bytes <= counts.limit_bytes == 40_000
            if method == "fork":  # a spawned worker counts for itself
                assert twice.min() >= 2
                again = (pictures.prepared - twice).tolist()
                assert sorted(again) == [0] * counts.kept + [3] * (SAMPLES - counts.kept)
            after = kept.keeper.counts()
            assert after.hits == 3 * counts.kept
            assert after.misses - counts.misses == 3 * (SAMPLES - counts.kept)
            assert after.saved_s > 0
            assert ("before `transform`" in after.why) == (transform is not None)


def test_persistent_workers_no_seed_single_samples_and_a_subset() -> None:
    """Ways of a DataLoader; without a seed the order is another, and each sample is what it is."""
    with Kept(Pictures(), seed=None, persistent_workers=True) as kept:
        for epoch in kept.epochs(0, 4):
            images, labels = (torch.cat(column) for column in zip(*epoch, strict=True))
            assert labels.sort().values.tolist() == list(range(SAMPLES))
            assert torch.equal(images[:, 0, 0, 0], labels.float())
        assert kept.keeper.counts().hits == 2 * SAMPLES
    part = Subset(Pictures(jitter), range(10, 30))
    wanted = plain(part, 4)
    with Kept(part) as kept:
        assert equal(kept.epochs(0, 4), wanted)
        assert (kept.keeper.counts().kept, kept.keeper.counts().hits) == (20, 40)


def as_words(image: torch.Tensor) -> dict[str, Any]:
    return {"image": image + torch.rand(()), "mean": image.mean()}


class Nested(Pictures):
    def __getitem__(self, index: int) -> Any:
        assert self.transform is not None
        assert isinstance(self.transform, type(jitter)), "what looks at its transform finds its own"
        return [Pair(self.transform(self.raw(index)), index), self.transform(self.raw(index))]


@pytest.mark.slow
def test_where_a_transform_is_called_twice_or_gives_a_tree() -> None:
    """What it returned is found in the sample wherever it is; the order of draws stays."""

    def flat(epochs: list[Any]) -> list[Any]:
        return [[(b[0].image, b[0].label, b[1]) for b in epoch] for epoch in epochs]

    wanted = flat(plain(Nested(jitter), 4))
    with Kept(Nested(jitter)) as kept:
        assert equal(flat(kept.epochs(0, 4)), wanted)
        assert kept.keeper.counts().hits == 2 * SAMPLES
    with Kept(Pictures(as_words)) as kept:
        found = kept.epochs(0, 4)
        assert kept.keeper.counts().hits == 2 * SAMPLES
    for mine, theirs in zip(found[3], plain(Pictures(as_words), 4)[3], strict=True):
        assert torch.equal(mine[0]["image"], theirs[0]["image"])
        assert torch.equal(mine[0]["mean"], theirs[0]["mean"])


def test_a_data_set_says_itself_where_it_is_cut() -> None:
    """`tsnb.data.cache(dataset, then=augment)`: the same samples with the option and without it."""

    def augment(sample: Any) -> Any:
        image, label = sample
        return jitter(image), label

    def both(pictures: Pictures) -> Any:
        return tsnb.data.cache(pictures, then=augment)

    wanted = plain(both(Pictures()), 4)
    pictures = Pictures()
    with Kept(both(pictures)) as kept:
        assert equal(kept.epochs(0, 4), wanted)
        assert kept.keeper.counts().hits == 2 * SAMPLES
        assert kept.keeper.counts().why == ""
    assert pictures.prepared.max() <= 2 + 1  # and a few to probe
    with pytest.raises(TypeError, match="got Stream"):
        tsnb.data.cache(Stream())
    with pytest.raises(TypeError, match="got int"):
        tsnb.data.cache(pictures, then=3)  # type: ignore[arg-type]


# -- proof before trust -------------------------------------------------------------------------------------


class OwnGenerator(Pictures):
    """Draws from a generator of its own, for one sample in `seldom`."""

    seldom = 1

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self, "mine"):
            self.mine = np.random.default_rng()
        image = self.raw(index)
        if index % self.seldom == 0:
            image += self.mine.random()
        return image, index


class Seldom(OwnGenerator):
    seldom = 25


class Afterwards(Pictures):
    """Does something to what `transform` returned, in place."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image.mul_(2), label


class Another(Pictures):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image + 1, label


class DrawsOutside(Pictures):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, label + int(torch.randint(9, ()))


class Generates(Pictures):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, label, Forgetful(label)


class Forgetful:
    """Comes back from a pickle as something else."""

    def __init__(self, label: int) -> None:
        self.label = label

    def __reduce__(self) -> Any:
        return Forgetful, (self.label + 1,)


def first_two(rows: list[Any]) -> Any:
    return torch.utils.data.default_collate([row[:2] for row in rows])


def same_label(label: int) -> int:
    return label if torch.rand(()) < 2 else 0


class Twice(Pictures):
    """The label that was made, and another that happens to be the same object."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, label, label


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (OwnGenerator(), "differs when it is prepared a second time"),
        (Seldom(), "differs when it is prepared a second time"),
        (Afterwards(jitter), "differs when `transform` is called on it alone"),
        (Another(jitter), "the result of `transform` is not part of the sample"),
        (DrawsOutside(jitter), "draws random numbers outside of `transform`"),
        (Generates(), "differs when it is rebuilt"),
        (Twice(None, same_label), "occurs twice in the sample"),
        (Noisy(), "draws random numbers"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Dataset) else "",
)
def test_what_is_not_fixed_is_not_kept_and_says_why(dataset: Any, why: str) -> None:
    """One sample in 25 that draws from a generator of its own is found in two epochs; nothing was taken till then."""
    options: dict[str, Any] = {"collate_fn": first_two} if isinstance(dataset, (Generates, Twice)) else {}
    with Kept(dataset, **options) as kept:
        found = kept.epochs(0, 4)
        counts = kept.keeper.counts()
    assert counts.state == "off"
    assert why in counts.why
    assert "tsnb.data.cache(dataset, then=augment)" in counts.why
    assert counts.hits == counts.kept == 0
    if not isinstance(dataset, OwnGenerator):
        flat = (lambda epochs: [[(b,) for b in e] for e in epochs]) if isinstance(dataset, Noisy) else list
        assert equal(flat(found), flat(plain(dataset, 4, **options)))


class Hears(Numbers):
    def set_epoch(self, epoch: int) -> None: ...


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (DataLoader(Stream(), 4, num_workers=1), "samples of a Stream can only be iterated"),
        (DataLoader(Numbers(), 4), "serve with workers=1"),
        (
            DataLoader(Hears(), 4, num_workers=1),
            r"Hears has a set_epoch.*tsnb.data.cache\(dataset, then=augment\)",
        ),
        (DataLoader(NoisyTogether(), 4, num_workers=1), "prepares samples together"),
        ([torch.zeros(3)], "torch's own DataLoader, whose samples have numbers, and this is a list"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once_with_the_way_out(served: Any, why: str) -> None:
    """Before a process is started; nothing is left."""
    with pytest.raises(ValueError, match=why):
        tsnb.serve(served, name="refused", cache="1MiB")
    assert not [one for one in tsnb.streams.list() if one.name == "refused"]


def test_sizes_that_do_not_do() -> None:
    """Too small for the notes of all samples, more than there is, no size."""
    for limit, why in (("12KiB", "the bookkeeping for 50 samples alone takes"), ("900TiB", "are free")):
        with pytest.raises(ArenaFull, match=why):
            tsnb.serve(loader(Numbers()), name="refused", cache=limit)
    for bad in ("much", 0, -1, True):
        with pytest.raises(ValueError, match='Pass a size with its unit, such as "512MiB" or "2GiB"'):
            StreamOptions(cache=bad)
    assert StreamOptions(cache="2GiB").cache == 2 << 30
    assert StreamOptions(cache="2GiB", engine="ray").cache == 2 << 30, "of each machine"


@pytest.mark.parametrize("beside", [0, 1, mmap.PAGESIZE - 1])
def test_a_cache_that_is_full_is_never_larger_than_its_limit(beside: int) -> None:
    """A limit within a page: that page, once begun, is in use as a whole."""
    limit_bytes = 1 << 16 | beside
    memory = SampleMemory.create()
    try:
        memory.fit(4, limit_bytes, b"x" * 16)
        memory._bytes[:] = memory._bytes.copy()  # notes and samples have all of it
        assert memory.room_bytes < memory.touched_bytes() <= limit_bytes
    finally:
        memory.close()


def test_a_data_set_in_memory_gains_nothing_and_nothing_is_kept() -> None:
    """To take a sample from a cache costs more than to index a tensor."""
    with Kept(Numbers(SAMPLES)) as kept:
        kept.epochs(0, 3)
        counts = kept.keeper.counts()
    assert counts.kept < 5, "busy moments of the machine, twice at the same sample"
    if not counts.kept:
        assert counts.state == "off"
        assert "no sample is slower to prepare than to read from a cache" in counts.why


# -- memory that is given back, processes that are killed ------------------------------------------------------


def test_memory_given_back_in_any_phase_changes_no_batch() -> None:
    """While samples are being written and while they are taken; it is free at once, its samples are prepared again."""
    wanted = plain(Pictures(jitter), 6)
    pictures = Pictures(jitter)
    with Kept(pictures) as kept:
        memory = kept.keeper._memory
        found = kept.epochs(0, 1)
        given = kept.stand.give(1)
        epoch = [next(given), next(given)]
        assert memory.give_back(memory.used_bytes // 2) > 0
        found.append(epoch + list(given))
        half = kept.keeper.counts()
        assert half.state == "serving"
        assert 10 < half.kept < 40
        found += kept.epochs(2, 3)
        touched = memory.touched_bytes()
        given = kept.stand.give(3)
        epoch = [next(given)]
        assert memory.give_back(1 << 40) > 0
        assert memory.touched_bytes() < touched
        found.append(epoch + list(given))
        found += kept.epochs(4, 6)
        assert kept.keeper.counts().kept == 0
        assert kept.keeper.counts().hits < 2 * half.kept
    assert equal(found, wanted)


@pytest.mark.slow
def test_a_worker_killed_while_it_writes_leaves_a_sample_kept_or_not() -> None:
    """The epoch fails, as without a cache; the next ones give what they should, torn samples nobody takes."""
    wanted = plain(Pictures(jitter), 5)
    with Kept(Pictures(jitter), num_workers=1) as kept:
        kept.epochs(0, 1)
        given = kept.stand.give(1)
        next(given)
        iterator = kept.stand.source.workers._loading[-1]()
        iterator._workers[0].kill()
        with pytest.raises(RuntimeError, match=r"killed|exited unexpectedly"):
            list(given)
        del iterator
        kept.stand.slots.reclaim()
        assert kept.keeper.counts().state == "proving"
        memory = kept.keeper._memory
        written = np.flatnonzero(memory.states == WRITTEN)
        assert 0 < len(written) < SAMPLES
        assert equal(kept.epochs(1, 5), wanted[1:])
        assert kept.keeper.counts().kept == SAMPLES


def test_a_worker_s_dataset_is_the_user_s_own() -> None:
    """`get_worker_info().dataset`, which `worker_init_fn` may change: samples are those of the changed one."""

    def init(_worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        assert type(info.dataset) is Pictures
        info.dataset.transform = jitter

    wanted = plain(Pictures(jitter), 4)
    with Kept(Pictures(), worker_init_fn=init) as kept:
        assert equal(kept.epochs(0, 4), wanted)
        assert kept.keeper.counts().hits == 2 * SAMPLES
