"""Forks of a process that trains an offloaded model: a clone has weights of its own, and any other child has none."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.spilling.test_spilled import net, spilled, train
from tsnb.errors import TsnbError
from tsnb.spilling import pages

DISK = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """OpenMP's threads are not there in a forked process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def in_child(
    compute: Callable[[], Any], forks: int = 1, meanwhile: Callable[[], None] | None = None
) -> tuple[int, Any]:
    """Return how a forked process ended, and what it has computed."""
    told, word = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        try:
            if forks == 2 and (child := os.fork()):
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            os.read(word[0], 1)
            os.write(told[1], pickle.dumps(compute()))
        finally:
            os._exit(0)
    os.close(told[1])
    if meanwhile is not None:
        meanwhile()
    os.write(word[1], b"!")
    with os.fdopen(told[0], "rb") as file:
        text = file.read()
    os.close(word[0])
    os.close(word[1])
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), pickle.loads(text) if text else None


def weights(model: torch.nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def made() -> tuple[Any, torch.optim.Optimizer, Any]:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, spilled(model, optimizer)


def test_with_copies_parent_and_child_both_compute_what_one_of_them_computes() -> None:
    """Bit for bit, though the parent has long trained on when the child begins; forked twice, as a clone is."""
    model = net()
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, optimizer, range(8))
    wanted = losses[3:], weights(model)

    model, optimizer, held = made()
    train(model, optimizer, range(3))
    ours: list[float] = []

    def go_on() -> tuple[list[float], list[bytes]]:
        return train(model, optimizer, range(3, 8)), weights(model)

    with pages.copied():
        how, theirs = in_child(
            go_on, forks=2, meanwhile=lambda: ours.extend(train(model, optimizer, range(3, 8)))
        )
    assert (how, theirs) == (0, wanted)
    assert (ours, weights(model)) == wanted
    held.close()


def test_a_childs_file_is_another_and_the_parents_goes_with_the_parent() -> None:
    """No descriptor of the child refers to the parent's file, so its room on the disk is free when the parent ends."""
    _model, _, held = made()
    parents = os.fstat(held._pages._file.fileno()).st_ino

    def files() -> set[int]:
        found = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.add(os.fstat(int(number)).st_ino)
        return found

    with pages.copied():
        how, theirs = in_child(files)
    assert how == 0
    assert parents not in theirs
    assert parents in files()
    before = len(os.listdir("/proc/self/fd"))
    with pages.copied():
        pass
    assert len(os.listdir("/proc/self/fd")) == before
    held.close()


def test_a_plain_child_trains_nothing_and_says_why() -> None:
    """A DataLoader's worker, say: whatever runs the model there is an error with the way out."""
    model, optimizer, held = made()
    train(model, optimizer, range(2))
    before = weights(model)

    def tries() -> list[str]:
        told = []
        for step in (lambda: train(model, optimizer, range(2, 3)), held.close):
            try:
                step()
                told.append("went on")
            except TsnbError as error:
                told.append(str(error))
        return told

    how, told = in_child(tries)
    assert how == 0
    assert all("forked" in text and "state_dict()" in text for text in told), told
    assert weights(model) == before
    train(model, optimizer, range(2, 4))  # this process goes on
    held.close()


@pytest.mark.parametrize("closed", [False, True])
def test_what_reads_or_writes_a_weight_in_a_plain_child_ends_it(closed: bool) -> None:
    """Also a tensor that outlived `close()`: it never becomes the parent's weight."""
    model, _, held = made()
    weight = model.first.weight.data
    if closed:
        held.close()
    before = weight.numpy().tobytes()

    def touch() -> None:
        faulthandler.disable()
        weight.fill_(7.0)

    how, _ = in_child(touch)
    assert how == -signal.SIGSEGV
    assert weight.numpy().tobytes() == before
    if closed:
        with pytest.raises(TsnbError, match="Delete the references to them"), pages.copied():
            pass
    else:
        held.close()


def test_a_disk_without_room_for_a_second_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is forked, with the directory; this process goes on."""
    model, optimizer, held = made()
    reserve, asked = os.posix_fallocate, []

    def full(fd: int, start: int, size: int) -> None:
        asked.append(size)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "posix_fallocate", full)
        told = r"second file of .* MiB, for which .* has no room \(No space left"
        with pytest.raises(TsnbError, match=told), pages.copied():
            raise AssertionError("there is no room")
    assert asked and os.posix_fallocate is reserve
    train(model, optimizer, range(2))
    held.close()
