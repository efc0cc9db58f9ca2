"""What a trial keeps of its training, and how it goes on from there: in this process, with a real stream."""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.errors import TsnbError
from tsnb.experiments.in_kernel import kept_state, states
from tsnb.experiments.in_kernel.kept_state import KeptTrial, SetAside, StateKeeper
from tsnb.experiments.live_values import LiveValues
from tsnb.records.kept import EPOCHS, KeptFiles
from tsnb.stream.this_process import this_process

ROWS, BATCHES = 24, 6


class Numbers:
    """What a trial's record does: rows, and where they are cut."""

    def __init__(self) -> None:
        self.rows: list[float] = []
        self.samples = 0
        self.told = 0, False  # its own rows, and whether the state is its parent's

    def progress(self) -> dict[str, Any]:
        place = (None, None, self.samples)
        return {"rows": len(self.rows), "samples": self.samples, "place": place, "report": {}, "live": {}}

    def own_rows(self) -> int:
        return len(self.rows)

    def go_back(self, progress: Mapping[str, Any], own_rows: int, from_parent: bool) -> None:
        del self.rows[progress["rows"] :]
        self.samples = progress["samples"]
        self.told = own_rows, from_parent


class Died(BaseException):
    """In place of a SIGKILL."""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(this_process, "between", None)
    monkeypatch.setattr(this_process, "attached", None)
    monkeypatch.setattr(this_process, "epochs", 0)
    yield
    for consumer in kept_state._by_name().values():
        consumer.close()


@pytest.fixture
def files(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path / ".tsnb", "cnn-1", "k")


def begin(monkeypatch: pytest.MonkeyPatch, files: KeptFiles, numbers: Numbers, **more: Any) -> StateKeeper:
    """Be a trial's process anew: none of the one before is left."""
    for consumer in kept_state._by_name().values():
        consumer.close()
    monkeypatch.setattr(this_process, "between", None)
    monkeypatch.setattr(this_process, "attached", None)
    keeper = StateKeeper()
    given: dict[str, Any] = {"resume": False, "exact": True, "until": None, "least_rows": 0, **more}
    told = KeptTrial(
        given.pop("name", "cnn"),
        files,
        progress=numbers.progress,
        own_rows=numbers.own_rows,
        go_back=numbers.go_back,
        **given,
    )
    keeper.open(told)
    monkeypatch.setattr(kept_state, "_keeper", keeper)
    return keeper


def train(
    numbers: Numbers, epochs: int, *, dies_at: int = -1, counted: bool = True, every_s: float = 0.0
) -> Any:
    """Train a net with dropout, on a stream that is given again by its seed."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    where = tsnb.checkpoint(net=net, optimizer=optimizer, every_s=every_s)
    if counted:
        loop: Any = tsnb.epochs(epochs)
    else:
        loop = range(where.epoch if where else 0, epochs)
    torch.rand(5 if where else 2)  # the code before the loop draws something else each time
    for _ in loop:
        for (rows,) in tsnb.attach("cnn", stream="rows"):
            if len(numbers.rows) == dies_at:
                raise Died
            optimizer.zero_grad()
            loss = net(rows).square().mean() + random.random()
            loss.backward()
            optimizer.step()
            numbers.samples += len(rows)
            numbers.rows.append(loss.item())
        for (rows,) in tsnb.attach("cnn", stream="val"):
            if len(numbers.rows) == dies_at:
                raise Died
            with torch.no_grad():
                numbers.rows.append(net(rows).sum().item())
    return net


@contextmanager
def serve() -> Iterator[None]:
    rows = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(1))
    shuffled, plain = DataLoader(TensorDataset(rows), 4, shuffle=True), DataLoader(TensorDataset(rows), 4)
    with tsnb.serve(shuffled, name="rows", seed=5), tsnb.serve(plain, name="val"):
        yield


def undisturbed(epochs: int, counted: bool = True) -> list[float]:
    """What one training gives that nothing befalls; each in a stream of its own, which begins with epoch 0."""
    random.seed(3)
    numbers = Numbers()
    with pytest.MonkeyPatch.context() as patch, serve():
        patch.setattr(kept_state, "_keeper", StateKeeper())
        train(numbers, epochs, counted=True)
        for consumer in kept_state._by_name().values():
            consumer.close()
    return numbers.rows


@pytest.mark.slow
@pytest.mark.parametrize("counted", [True, False], ids=["tsnb.epochs", "a loop of its own"])
@pytest.mark.parametrize(
    "dies_at",
    [2 * BATCHES + 4, BATCHES, 2 * BATCHES],
    ids=["in the middle", "in validation", "at the start"],
)
def test_it_goes_on_bit_for_bit_from_the_last_state(
    monkeypatch: pytest.MonkeyPatch, files: KeptFiles, dies_at: int, counted: bool
) -> None:
    """Weights, moments, random draws, the place in two streams, and the rows logged: as if nothing had been."""
    expected = undisturbed(3)
    numbers = Numbers()
    random.seed(3)
    with serve():
        begin(monkeypatch, files, numbers)
        with pytest.raises(Died):
            train(numbers, 3, dies_at=dies_at, counted=counted)
        numbers.rows += [9.0, 9.0]  # rows that came after the state
        random.seed(99)
        begin(monkeypatch, files, numbers, resume=True)
        train(numbers, 3, counted=counted)
    assert numbers.rows == expected


def test_a_longer_loop_goes_on_from_the_end(monkeypatch: pytest.MonkeyPatch, files: KeptFiles) -> None:
    """The rows that were logged after the loop stay; a death in the extension keeps the longer loop."""
    expected = undisturbed(4)
    numbers = Numbers()
    random.seed(3)
    with serve():
        begin(monkeypatch, files, numbers)
        train(numbers, 2)
        last = files.newest
        assert last is not None
        assert (last.epoch, last.batch, last.counted) == (2, None, True)
        count = len(numbers.rows)
        numbers.rows.append(0.5)  # of a test at the end
        keeper = begin(monkeypatch, files, numbers, resume=True, until=4, least_rows=count + 1)
        train(numbers, 2)
        assert this_process.epochs == 2, "those that are left are told, for estimates"
        keeper.end()
        last = files.newest
        assert last is not None
        assert last.epoch == 4
        begin(monkeypatch, files, numbers, resume=True)  # it died after that: nothing is left to do
        train(numbers, 2)
    assert [*numbers.rows[:count], *numbers.rows[count + 1 :]] == expected
    assert len(files.all) <= EPOCHS + 1


def test_what_stays_is_bounded_and_a_damaged_state_is_passed_over(
    files: KeptFiles,
) -> None:
    """The last few of an epoch's start, and one more; what a killed process left half written goes."""
    for epoch in range(6):
        files.write(lambda file: file.write(b"n"), epoch=epoch, batch=None, counted=True)
        files.write(lambda file: file.write(b"n"), epoch=epoch, batch=3, counted=True)
        (files.place / ".000099-epoch1.pt.1").touch()
    there = files.all
    assert [(kept.epoch, kept.batch) for kept in there] == [(3, None), (4, None), (5, None), (5, 3)]
    there[-1].path.write_bytes(b"cut")
    found = files.latest(lambda file: {b"n": {"n": 5}}[file.read()])
    assert found is not None
    kept, state, wrong = found
    assert (kept.epoch, kept.batch, state["n"]) == (5, None, 5)
    assert "cannot be read" in wrong[0]
    files.write(lambda file: file.write(b"n"), epoch=6, batch=None, counted=True)
    assert not list(files.place.glob(".*"))
    files.clear()
    assert files.newest is None


def test_what_cannot_be_kept_is_named(monkeypatch: pytest.MonkeyPatch, files: KeptFiles) -> None:
    """In a script as well, before anything is trained; there nothing is kept, and epochs is range."""
    net = torch.nn.Linear(1, 1)
    with pytest.raises(
        TypeError, match=r"tsnb\.checkpoint\(count=\.\.\.\): a int has no state_dict and no load_state_dict"
    ):
        tsnb.checkpoint(net=net, count=3)
    with pytest.raises(TypeError, match="the class Linear"):
        tsnb.checkpoint(net=torch.nn.Linear)
    with pytest.raises(TypeError, match="needs the objects to keep"):
        tsnb.checkpoint()
    with pytest.raises(ValueError, match="every_s="):
        tsnb.checkpoint(net=net, every_s=-1)
    with pytest.raises(ValueError, match=r"tsnb\.epochs\(-1\)"):
        tsnb.epochs(-1)
    assert tsnb.checkpoint(net=net) is None
    assert tsnb.epochs(3) == range(3)
    begin(monkeypatch, files, Numbers())
    loop = iter(tsnb.epochs(2))
    assert next(loop) == 0
    with pytest.raises(TsnbError, match="must come before the loop"):
        tsnb.checkpoint(net=net)


def test_a_state_that_does_not_fit_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, files: KeptFiles
) -> None:
    """Another shape, or another name: the message says what was kept, and what to do."""
    numbers = Numbers()
    begin(monkeypatch, files, numbers)
    tsnb.checkpoint(net=torch.nn.Linear(1, 1))
    assert list(tsnb.epochs(1)) == [0]
    begin(monkeypatch, files, numbers, resume=True)
    with pytest.raises(
        TsnbError, match=r"the Linear does not accept its checkpoint.*run the trial again from the"
    ):
        tsnb.checkpoint(net=torch.nn.Linear(2, 1))
    begin(monkeypatch, files, numbers, resume=True)
    with pytest.raises(TsnbError, match="has no 'model', only net"):
        tsnb.checkpoint(model=torch.nn.Linear(1, 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which only root may")
def test_a_full_disk_is_a_warning_and_the_state_before_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, nothing half is left, and once there is room it is kept again."""
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", small], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        files = KeptFiles(small / ".tsnb", "cnn-1", "k")
        (small / ".tsnb").mkdir(mode=0o700)
        keeper = begin(monkeypatch, files, Numbers())
        tsnb.checkpoint(net=torch.nn.Linear(16, 16))
        keeper._write(batch=None)
        before = files.newest
        assert before is not None
        (small / "filled").write_bytes(b"x" * (os.statvfs(small).f_bavail * 4096 - 4096))
        with caplog.at_level(logging.WARNING, "tsnb"):
            keeper._write(batch=None)
            keeper._write(batch=None)
        (said,) = [record.getMessage() for record in caplog.records]
        assert "continues, but its checkpoint could not be written" in said
        assert "No space left" in said
        assert "the last checkpoint is of epoch 1" in said
        assert "Free some space there" in said
        assert sorted(path.name for path in files.place.iterdir()) == [before.path.name, "run.key"]
        files.read(before, states.load)
        (small / "filled").unlink()
        keeper._write(batch=None)
        after = files.newest
        assert after is not None
        assert after.number > before.number
    finally:
        subprocess.run(["umount", small], check=True)


def test_where_no_state_can_be_written_for_a_clone_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stream without a seed within an epoch, though not between two; a full disk; a wish that was taken back."""
    told: list[SetAside | str] = []
    rows = DataLoader(TensorDataset(torch.rand(ROWS, 2)), 4, shuffle=True)
    files = KeptFiles(tmp_path / ".tsnb", "cnn-1", "k")
    (tmp_path / ".tsnb").mkdir(mode=0o700)
    numbers = Numbers()
    keeper = begin(monkeypatch, files, numbers)
    with tsnb.serve(rows, name="unseeded"):
        tsnb.checkpoint(net=torch.nn.Linear(2, 1), every_s=1000.0)
        for epoch in tsnb.epochs(2):
            for number, _ in enumerate(tsnb.attach("cnn", stream="unseeded")):
                if (epoch, number) == (0, 1):
                    keeper.branch_off(told.append)
                    (said,) = told
                    assert "the rest of this epoch: it was served without seed=" in str(said)
                    assert "clone(at=EPOCH)" in str(said)
            if not epoch:
                keeper._clones.append(told.append)  # asked for when the loop has ended
        (_, between) = told
        assert isinstance(between, SetAside)
        assert between.path.parent == files.place
        clone = KeptFiles(tmp_path / ".tsnb", "two-1", "k")
        clone.take_in(between.path)
        (kept,) = clone.all
        assert (kept.epoch, kept.batch, kept.number) == (1, None, 1)
        assert clone.read(kept, states.load)["loop"] == 1
        assert not between.path.exists()
        monkeypatch.setattr(states, "save", no_space)
        keeper.branch_off(told.append)
        keeper._write_for_clone(None)
        assert str(told[-1]).endswith("No space left on device")
        assert not list(files.place.glob(".*"))
        keeper.branch_off(told.append)
        assert keeper.forget_branch()
        assert not keeper.forget_branch()


def no_space(_state: Mapping[str, Any], file: BinaryIO) -> None:
    file.write(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


class Runs:
    """Runs a program where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def plant(folder: Path, ran: Path) -> list[str]:
    """Put states into a folder that run something when they are loaded, as an archive may have them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "000001-epoch5.pt").mkdir()  # a name that cannot be unlinked
    for number in (1, 9):
        torch.save({"tsnb": Runs(f"touch {ran}")}, folder / f"{number:06d}-epoch0.pt")
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mark", [None, "", "other", "link", "hard"])
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_states_that_this_run_has_not_written_are_neither_loaded_nor_cleared(
    monkeypatch: pytest.MonkeyPatch,
    files: KeptFiles,
    tmp_path: Path,
    mark: str | None,
    mode: int,
    caplog: Any,
) -> None:
    """A `.tsnb/kept` came out of an archive: neither by a process that goes on, nor by one that begins anew."""
    for parent in (files.place.parent.parent, files.place.parent):
        parent.mkdir(mode=0o700)
    there = plant(files.place, tmp_path / "ran")
    (tmp_path / "key").write_text("k")
    if mark == "link":
        (files.place / "run.key").symlink_to(tmp_path / "key")
    elif mark == "hard":
        (files.place / "run.key").hardlink_to(tmp_path / "key")
    elif mark is not None:
        (files.place / "run.key").write_text(mark)
    there = sorted(path.name for path in files.place.iterdir())
    files.place.chmod(mode)
    assert files.newest is None and not files.starts
    begin(monkeypatch, files, Numbers(), resume=True)
    assert tsnb.checkpoint(net=torch.nn.Linear(1, 1)) is None
    begin(monkeypatch, files, Numbers())
    net = torch.nn.Linear(1, 1)
    tsnb.checkpoint(net=net, every_s=0)
    assert sorted(path.name for path in files.place.iterdir()) == there, "nothing was cleared"
    for _ in tsnb.epochs(2):
        pass
    assert files.newest is not None and files.newest.epoch == 2
    (aside,) = files.place.parent.glob("cnn-1.found-*")
    assert sorted(path.name for path in aside.iterdir()) == there
    assert str(aside) in caplog.text
    begin(monkeypatch, files, Numbers(), resume=True)
    assert tsnb.checkpoint(net=net) is not None, "its own it goes on from"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("which", ["cnn-1", "kept", ".tsnb"])
def test_kept_states_are_not_looked_for_or_cleared_through_a_link(
    monkeypatch: pytest.MonkeyPatch, files: KeptFiles, tmp_path: Path, which: str, caplog: Any
) -> None:
    """What the link leads to loses no file and gets none."""
    victim = tmp_path / "victim"
    within = {"cnn-1": ".", "kept": "cnn-1", ".tsnb": "kept/cnn-1"}[which]
    there = plant(victim / within, tmp_path / "ran")
    (victim / within / "run.key").write_text("k")
    there = sorted([*there, "run.key"])
    link = next(path for path in (files.place, *files.place.parents) if path.name == which)
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    link.symlink_to(victim)
    begin(monkeypatch, files, Numbers(), resume=True)
    tsnb.checkpoint(net=torch.nn.Linear(1, 1))
    begin(monkeypatch, files, Numbers())
    tsnb.checkpoint(net=torch.nn.Linear(1, 1), every_s=0)
    for _ in tsnb.epochs(2):
        pass
    assert sorted(path.name for path in (victim / within).iterdir()) == there
    assert str(link) in caplog.text and not (tmp_path / "ran").exists()


def test_a_forked_process_leaves_the_states_to_the_trial(
    monkeypatch: pytest.MonkeyPatch, files: KeptFiles
) -> None:
    """A worker of its loaders, or a copy of the trial, writes nothing in its place."""
    begin(monkeypatch, files, Numbers())
    tsnb.checkpoint(net=torch.nn.Linear(1, 1))
    child = os.fork()
    if child == 0:
        os._exit(kept_state._keeper.trial is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert kept_state._keeper.trial is not None


def test_live_values_are_what_they_were() -> None:
    """Those that are made only afterwards, too; a value that the code does not allow any more is left."""
    values = LiveValues()
    rate = values.declare("rate", 0.1, None, None)
    values.go_on_from({"rate": 0.3, "later": 5, "bounded": 9.0})
    assert (rate.current, values.declare("later", 1, None, None).current) == (0.3, 5)
    assert values.declare("bounded", 0.5, (0.0, 1.0), None).current == 0.5


@pytest.mark.parametrize(
    ("stated", "name", "own_rows", "from_parent"),
    [
        ({"own_rows": 3}, "cnn", 3, False),
        ({}, "cnn", 8, False),  # from before clones: all of them
        ({"progress": {"own": 5}}, "cnn", 5, False),  # from when it stood among the numbers
        ({"own_rows": 3}, "its-clone", 0, True),
    ],
)
def test_rows_of_its_own_are_told_of_states_old_and_new(
    stated: dict[str, Any],
    name: str,
    own_rows: int,
    *,
    from_parent: bool,
    monkeypatch: pytest.MonkeyPatch,
    files: KeptFiles,
) -> None:
    """Beside the numbers that were kept; a clone that begins from its parent's state has none."""
    numbers = Numbers()
    net = torch.nn.Linear(1, 1)
    begin(monkeypatch, files, numbers)
    tsnb.checkpoint(net=net, every_s=0.0)
    with serve():
        for _ in tsnb.epochs(1):
            numbers.rows += [1.0] * 8
    found = files.latest(states.load)
    assert found is not None and found[1]["own_rows"] == 8
    state = {**found[1], **stated}
    state["progress"] = {**found[1]["progress"], **stated.get("progress", {})}
    if "own_rows" not in stated:
        del state["own_rows"]
    monkeypatch.setattr(states, "load", lambda _file: state)
    begin(monkeypatch, files, numbers, resume=True, name=name)
    tsnb.checkpoint(net=net)
    assert numbers.told == (own_rows, from_parent)
