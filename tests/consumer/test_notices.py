"""What a trial notices of changes in place: at that line, at the next step, or not, as docs/batch-contents.md says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tsnb.errors import SharedBatchWarning
from tsnb.stream.consumer import notices
from tsnb.stream.consumer.batches.rebatching import Rebatcher, cut
from tsnb.stream.consumer.batches.unpacking import Delivered, Unpacker
from tsnb.stream.consumer.notices import Notices
from tsnb.stream.loader.packing import SlotWriter
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout
from tsnb.stream.this_process import this_process


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create()
    made.fit(2, 1 << 16)
    yield made
    made.close()


def delivered(arena: Arena, *, private: bool = False, hold: int = 4) -> Delivered:
    """Return a batch of 64 images, their labels and a numpy array."""
    batch = {
        "image": torch.ones(64, 8, 8),
        "label": torch.arange(64),
        "np": np.ones((64, 3)),
        "odd": np.ones(64, "u1"),
    }
    placed = SlotWriter(arena, 0).write(batch)
    unpacker = Unpacker(arena, hold, ScratchPool(), lambda lease: None)
    told = ms.Batch(0, 0, 0, 0, placed.rows, 7, placed.values_offset, placed.values_bytes)
    return unpacker.read(told, Layout.decode(placed.layout), private=private)


def said(notices: Notices) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notices.look_for_writes()
    assert all(w.category is SharedBatchWarning for w in caught)
    return [str(w.message) for w in caught]


WRITES: list[tuple[str, Callable[[Any], Any]]] = [
    ("batch['image']", lambda b: b["image"].div_(2)),
    ("batch['label']", lambda b: b["label"].__iadd__(1)),
    ("batch['image']", lambda b: np.divide(b["image"].numpy(), 2, out=b["image"].numpy())),
    ("batch['label']", lambda b: b["label"].data.fill_(7)),
    ("batch['label']", lambda b: torch.utils.dlpack.from_dlpack(b["label"].__dlpack__()).add_(1)),
    ("batch['image']", lambda b: b["image"].numpy()[-1].fill(0)),
]


@pytest.mark.parametrize(("place", "write"), WRITES)
@pytest.mark.parametrize("rows", [64, 16], ids=["whole", "cut"])
def test_a_tensor_that_is_changed_is_told_once(
    arena: Arena, place: str, write: Callable[[Any], Any], rows: int
) -> None:
    """Past torch too, if the change is a wide one; a private copy may be changed."""
    notices = Notices("a")
    given = cut(delivered(arena), 64 - rows, 64)
    notices.given(given)
    batch = given.tree()
    assert said(notices) == []
    write(batch)
    (text,) = said(notices)
    assert place in text and "private=True" in text
    assert said(notices) == []
    own = delivered(arena, private=True)
    notices = Notices("a")
    notices.given(own)
    batch = own.tree()
    write(batch)
    assert said(notices) == []


def test_numpy_stops_a_write_at_its_line(arena: Arena) -> None:
    """In a batch as it came, cut, and put together of two; with private=True it may be changed."""
    for own in (False, True):
        rebatcher = Rebatcher(48, ScratchPool())
        whole, joint = delivered(arena, private=own), list(rebatcher.feed(delivered(arena, private=own)))
        joint += rebatcher.feed(delivered(arena, private=own))
        for batch in (whole.tree(), cut(whole, 3, 9).tree(), joint[0].tree(), joint[1].tree()):
            if own:
                batch["np"] /= 2
                assert batch["np"][0, 0] in (0.5, 0.25)
            else:
                with pytest.raises(ValueError, match="read-only"):
                    batch["np"] /= 2


def test_a_crowded_consumers_copies_are_read_only_too(arena: Arena) -> None:
    """Else the same line would work or not by how many batches are held."""
    batch = delivered(arena, hold=0).tree()
    with pytest.raises(ValueError, match="read-only"):
        batch["np"][0] = 1


def test_a_single_element_is_noticed_with_a_guard_alone(arena: Arena) -> None:
    """It names the batch and the place, of a batch that the loop still holds too, and of one that it let go."""
    notices = Notices("a")
    given = delivered(arena)
    given.seq = 17
    notices.given(given)
    batch = given.tree()
    batch["image"].numpy()[3, 3, 3] = 7
    assert said(notices) == []
    notices.given(given, guard=True)
    batch["image"].numpy()[3, 3, 3] = 8
    (text,) = said(notices)
    assert "Batch 17 of the epoch" in text and "batch['image']" in text and "batch['label']" not in text
    assert said(notices) == []
    batch["label"].data[5] = 3
    (text,) = said(notices)
    assert "batch['label']" in text
    del batch, given
    assert said(notices) == []
    given = delivered(arena)
    notices.given(given, guard=True)
    given.tree()["odd"].flags.writeable = True
    given.leaves[0].numpy()[5, 5, 5] = 9
    del given
    assert "batch['image']" in said(notices)[0]
    assert said(notices) == []


def test_looking_keeps_no_slot(arena: Arena) -> None:
    """What the loop lets go of is free at once; with a guard after one more step."""
    notices = Notices("a")
    ended: list[int] = []
    unpacker = Unpacker(arena, 4, ScratchPool(), ended.append)
    placed = SlotWriter(arena, 0).write([torch.ones(8), np.ones(8)])
    for lease, guard in ((1, False), (2, True)):
        told = ms.Batch(0, 0, 0, 0, placed.rows, lease, placed.values_offset, placed.values_bytes)
        given = unpacker.read(told, Layout.decode(placed.layout), private=False)
        notices.given(given, guard=guard)
        del given
        assert (lease in ended) is not guard
        assert said(notices) == []
        assert lease in ended


@pytest.mark.parametrize(("in_turn", "still_s", "told"), [(False, 1, 1), (True, 1, 0), (True, 40, 1)])
def test_a_trial_of_a_sweep_waits_for_the_next_pass_without_a_word_unless_somebody_stands_still(
    in_turn: bool, still_s: float, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep's own queue has started it: its user can do nothing about it."""
    monkeypatch.setattr(this_process, "in_turn", in_turn)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Notices("late").held_up(ms.HeldUp(1, 0, 20, "first", still_s, 60.0), "s", 100)
    assert len(found) == told


@pytest.mark.parametrize(("in_turn", "epoch", "noted"), [(False, 0, 0), (False, 4, 1), (True, 4, 0)])
def test_a_trial_that_comes_late_says_so_but_not_in_a_sweep(
    in_turn: bool,
    epoch: int,
    noted: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once, with the epoch's number; one of a sweep begins when it has its turn, and misses nothing."""
    monkeypatch.setattr(this_process, "name", "late")
    monkeypatch.setattr(this_process, "in_turn", in_turn)
    monkeypatch.setattr(notices, "_begun", set())
    said = Notices("late")
    for _ in range(2):
        said.begins(epoch, "s", anywhere=True)
    assert (
        capsys.readouterr().out.count(
            f"note: 'late' begins with pass {epoch + 1} of 's': earlier passes went to other trials"
        )
        == noted
    )
