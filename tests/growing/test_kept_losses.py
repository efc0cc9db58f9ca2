"""Losses outlive the producer that they were reported to: in a file beside the log, whatever becomes of it."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import tsnb
from tests.growing.growths import growth_in
from tests.waiting import wait_until
from tsnb.extensions.growth import BACK_S, Growth, growth_of
from tsnb.growing.inclusion import probabilities
from tsnb.growing.losses import KeptLosses, SampleLosses
from tsnb.growing.selection import interval


def of(**trials: list[float]) -> dict[str, Any]:
    return {name: np.array(losses, np.float32) for name, losses in trials.items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k], equal_nan=True) for k in one)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_is_read_again_with_other_numbers_trials_and_samples(tmp_path: Path) -> None:
    """In place where only the numbers differ, else as a whole; one file, which is this user's alone."""
    path, nan = tmp_path / "s.losses", float("nan")
    kept = KeptLosses(path, "i")
    assert kept.read() == {}
    places = []
    for losses in (
        of(a=[1.0, nan]),
        of(a=[2.0, 3.0]),
        of(a=[2.0, 3.0], b=[nan, 4.0]),
        of(a=[2.0, 3.0, 5.0], b=[nan]),
        of(b=[6.0]),
        {},
    ):
        kept.save(losses)
        places.append(path.stat().st_ino)
        assert same(KeptLosses(path, "i").read(), losses)
        assert names(tmp_path) == ["s.losses"] and path.stat().st_mode & 0o777 == 0o600
    assert places[0] == places[1] != places[2]
    assert KeptLosses(path, "other").read() == {}, "of another data set"


@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd"])
def test_a_write_in_place_that_ends_at_a_page_leaves_each_loss_old_or_new(tmp_path: Path, name: str) -> None:
    """A killed writer's last pages are missing: no loss may lie over the end of one, whatever trials are called."""
    path = tmp_path / "s.losses"
    kept = KeptLosses(path, "i")
    old, new = (np.full(3000, value, np.float32) for value in (1.2345678, -8.7654321e20))
    kept.save({name: old})
    before = path.read_bytes()
    kept.save({name: new})
    after = path.read_bytes()
    pages = range(4096, len(after), 4096)
    assert len(before) == len(after) and len(pages) >= 2
    for end in pages:
        path.write_bytes(after[:end] + before[end:])
        found = KeptLosses(path, "i").read()[name]
        assert set(found.tolist()) == {float(old[0]), float(new[0])}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-1],
        lambda text: text[:-4],
        lambda text: text + b"1234",
        lambda text: b"x" + text[1:],
        lambda text: text[:8] + b"\xff\xff\xff\x7f" + text[12:],
        lambda text: text[:12] + b"[" * (len(text) - 12),
        lambda text: text[:-4] + np.float32(np.inf).tobytes(),
        lambda text: text.replace(b'["a", 2]', b'["a",-2]'),
        lambda text: text.replace(b'["a", 2]', b'[2, "a"]'),
    ],
)
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path, damage: Any) -> None:
    """Cut off, changed, of another length: nobody's training ends for it."""
    path = tmp_path / "s.losses"
    KeptLosses(path, "i").save(of(a=[1.0, 2.0]))
    path.write_bytes(damage(path.read_bytes()))
    kept = KeptLosses(path, "i")
    assert kept.read() == {}
    kept.save(of(a=[3.0, 4.0]))
    assert same(KeptLosses(path, "i").read(), of(a=[3.0, 4.0]))


def test_a_producer_killed_at_any_write_leaves_the_losses_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and nothing lies beside the file once the next producer has begun."""
    path = tmp_path / "s.losses"
    KeptLosses(path, "i").save(of(a=[1.0, 2.0]))
    for step in ("open_private", "replace"):
        with monkeypatch.context() as patched:

            def killed(*_: Any, **__: Any) -> Any:
                raise KeyboardInterrupt

            if step == "replace":
                patched.setattr(Path, "replace", killed)
            else:
                patched.setattr("tsnb.growing.losses.open_private", killed)
            with pytest.raises(KeyboardInterrupt):
                KeptLosses(path, "i").save(of(a=[3.0, 4.0], b=[5.0]))
        after = KeptLosses(path, "i")
        assert same(after.read(), of(a=[1.0, 2.0])) and names(tmp_path) == ["s.losses"]


def test_a_full_disk_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Losses go on in memory; what was kept before stays, whole."""
    path = tmp_path / "s.losses"
    kept = KeptLosses(path, "i")
    kept.save(of(a=[1.0]))
    with monkeypatch.context() as full, caplog.at_level(logging.WARNING, "tsnb"):

        def refuse(*_: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr("tsnb.growing.losses.open_private", refuse)
        kept.save(of(a=[2.0]))
        kept.save(of(a=[3.0]))
    assert caplog.text.count("cannot be stored") == 1 and "No space left" in caplog.text
    assert same(KeptLosses(path, "i").read(), of(a=[1.0])) and names(tmp_path) == ["s.losses"]
    assert kept.failed
    kept.save(of(a=[4.0]))
    assert same(KeptLosses(path, "i").read(), of(a=[4.0])) and not kept.failed


def test_a_file_that_another_user_could_have_put_there_is_not_read(tmp_path: Path) -> None:
    """A link leads nowhere; what it points at is neither read nor written."""
    path, target = tmp_path / "s.losses", tmp_path / "elsewhere"
    KeptLosses(target, "i").save(of(a=[1.0]))
    before = target.read_bytes()
    path.symlink_to(target)
    kept = KeptLosses(path, "i")
    assert kept.read() == {}
    kept.save(of(a=[9.0]))
    assert target.read_bytes() == before and same(KeptLosses(path, "i").read(), of(a=[9.0]))


def test_it_is_written_no_more_than_its_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second; where a write takes long, after twenty times as long."""
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    kept = KeptLosses(tmp_path / "s.losses", "i")
    assert kept.due
    kept.save(of(a=[1.0]))
    now_s += 0.9
    assert not kept.due
    now_s += 0.2
    assert kept.due
    write = kept._write

    def slow(losses: Any) -> None:
        nonlocal now_s
        now_s += 0.5
        write(losses)

    monkeypatch.setattr(kept, "_write", slow)
    kept.save(of(a=[2.0]))
    now_s += 9.9
    assert not kept.due
    now_s += 0.2
    assert kept.due


def test_only_what_has_changed_is_given_to_be_kept() -> None:
    """Reports, and trials that are forgotten; a copy, so that later ones do not change it."""
    losses = SampleLosses(lambda: 2, of(a=[1.0, 2.0, 3.0]))
    assert losses.changes() is None and losses.mean(2).tolist() == [1, 2]
    assert losses.changes(anyway=True) is not None, "what could not be written is tried again"
    losses.note("b", np.array([1]), np.array([4.0], np.float32))
    changed = losses.changes()
    assert changed is not None and changed.keys() == {"a", "b"} and losses.changes() is None
    losses.note("b", np.array([1]), np.array([8.0], np.float32))
    assert changed["b"][1] == 4
    losses.changes()
    losses.keep(["a", "b"])
    assert losses.changes() is None
    losses.keep(["a"])
    assert (changed := losses.changes()) is not None and changed.keys() == {"a"}


@pytest.mark.system
def test_a_killed_producer_s_successor_draws_with_the_losses_that_were_reported(tmp_path: Path) -> None:
    """A round that nobody had chosen before is drawn by them, though nothing was reported to it."""

    def loader() -> Any:
        grown = tsnb.data.grow(lambda: [str(i) for i in range(40)], int, index=tmp_path / "index")
        return DataLoader(grown, 4, shuffle=True)

    with tsnb.serve(loader(), name="g", seed=5) as producer:
        growth = growth_in(producer)
        assert growth is not None
        with tsnb.attach("a", "g") as consumer:
            for batch in consumer:
                consumer.report(batch * 1.0)
        wait_until(lambda: bool(np.isfinite(growth.losses.mean(40)).all()))
        copy = tmp_path / "copy.losses"

        def is_kept() -> bool:
            if growth.log.losses.exists():
                shutil.copy(growth.log.losses, copy)
            return same(KeptLosses(copy, growth._dataset.identity).read(), growth.losses._of)

        wait_until(is_kept)
    shutil.copy(copy, growth.log.losses)  # not what it wrote as it ended
    after = growth_of(loader(), "g", 5)
    assert after is not None
    after.set_rounds(tsnb.data.interval(1), "hard:0.25")
    epoch = after.first_epoch
    order = after.begin(epoch)
    assert after.losses.mean(40).tolist() == list(range(40))
    taken = [int(i) for k in range(order.batches) for i in order.batch(k)]
    weights = np.frombuffer(after.weights_of(taken), "<f4")
    likely = probabilities(np.arange(40.0), 10)
    np.testing.assert_allclose(weights, 10 / (40 * likely[taken]), rtol=1e-5)
    after.log.close()


def test_a_round_drawn_before_a_trial_is_back_forgets_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor's first round may begin when one of two trials has attached again; later, who has left has left."""
    now_s = 0.0
    monkeypatch.setattr("tsnb.extensions.growth.time.monotonic", lambda: now_s)

    def producer() -> Growth:
        grown = tsnb.data.grow(lambda: [str(i) for i in range(40)], int, index=tmp_path / "index")
        growth = growth_of(DataLoader(grown, 4, shuffle=True), "g", 5)
        assert growth is not None
        return growth

    def round_with(growth: Growth, attached: list[str]) -> None:
        assert growth.round_due({}, attached)
        growth.begin(growth.first_epoch)

    growth = producer()
    growth.set_rounds(interval(1), "hard:0.3")
    for name in "ab":
        growth.losses.note(name, np.arange(40), np.ones(40, np.float32))
    growth.close()
    growth = producer()
    now_s += 2
    round_with(growth, ["a"])
    assert set(growth.losses.trials) == {"a", "b"}
    now_s += BACK_S
    round_with(growth, ["a"])
    assert set(growth.losses.trials) == {"a"}
    growth.close()
