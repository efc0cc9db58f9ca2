"""Producers by name: entered once, found by all, swept when gone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile import changed_somewhere
from tsnb.cli import main
from tsnb.config import LONGEST_SOCKET, check_name, private_directory
from tsnb.discovery import registry
from tsnb.discovery.entries import OWNER, this_owner
from tsnb.discovery.promises import is_promised
from tsnb.errors import NameInUse, ProducerGone, ProducerNotFound, TsnbError
from tsnb.machine.processes import is_ending, started
from tsnb.native.memfd import SWITCH
from tsnb.telemetry.observer import Observer


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TSNB_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def test_a_name_is_entered_once_and_free_again_afterwards() -> None:
    """The error says since when, by whom, and how to stop it."""
    entry = registry.register("mnist", "address", "notebook train.ipynb")
    assert registry.find("mnist") == registry.find() == entry
    with pytest.raises(NameInUse, match=r"for 0 s by notebook train.ipynb .*%tensorsocket stop mnist"):
        registry.register("mnist", "other", "script")
    registry.unregister(entry)
    assert registry.entries() == []


def test_a_promise_of_a_killed_process_is_swept_by_who_looks_next(own_directory: Path) -> None:
    """Looking up any stream is enough; one that is held stays."""
    code = (
        "import sys; from tsnb.discovery.promises import FIRST, Promise; p = Promise('s', FIRST); "
        "print(flush=True); sys.stdin.read()"
    )
    script = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with script:
        assert script.stdout is not None and script.stdout.readline()
        assert registry.entries() == [] and is_promised("s")
        assert len(list((own_directory / "producers").iterdir())) == 1
        script.kill()
    assert registry.entries() == []
    assert list((own_directory / "producers").iterdir()) == []


def test_ones_own_come_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out, a name means the stream of this notebook; what a former kernel of it has left is its own, too."""
    me, living = this_owner(), f"{os.getppid()}-{started(os.getppid())}"
    monkeypatch.setenv(OWNER, living)
    registry.register("theirs", "address", "notebook other.ipynb")
    monkeypatch.setenv(OWNER, "1-1")  # a kernel that has gone
    left = registry.register("left", "address", "notebook gone.ipynb")
    monkeypatch.setenv(OWNER, me)  # as in a trial's kernel
    with pytest.raises(ProducerNotFound, match=r"Several streams are running: left .*theirs "):
        registry.find()
    with pytest.raises(ProducerNotFound, match=r"serves no stream.* Running: left .*theirs .* Name one"):
        registry.own_name()
    monkeypatch.setenv("JPY_SESSION_NAME", "work/gone.ipynb")
    assert registry.find() == left
    mine = registry.register("mine", "address", "notebook gone.ipynb")
    monkeypatch.setenv("JPY_SESSION_NAME", "work/mine.ipynb")
    assert registry.find() == mine
    assert registry.own_name() == "mine"
    registry.register("also", "address", "notebook mine.ipynb")
    with pytest.raises(
        ProducerNotFound, match=r"Several streams are running: also \(.*\), mine \([^()]*\)\. Name"
    ):
        registry.find()
    with pytest.raises(ProducerNotFound, match="Several streams of this notebook are running: also, mine"):
        registry.own_name()
    assert registry.find("theirs").owner == living


def test_an_owner_in_another_container_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number means somebody else here, or nobody: its stream is not ended unasked."""
    monkeypatch.setenv(OWNER, "1-1")
    entry = registry.register("mnist", "address", registry.describe_origin())
    assert not registry.has_owner(entry) and registry.is_mine(entry)
    for there in (replace(entry, namespace="pid:[1]"), replace(entry, host="other", boot="other")):
        assert registry.has_owner(there) and not registry.is_mine(there)
    assert not registry.has_owner(replace(entry, boot="before")), "the machine was started again since"
    assert not registry.has_owner(replace(entry, owner="nonsense"))


def test_stale_entries_are_swept_also_when_their_pid_lives_again(own_directory: Path) -> None:
    """A pid alone proves nothing: the start time must match."""
    entry = registry.register("old", "address", "script")
    path = own_directory / "producers" / "old.json"
    fields = json.loads(path.read_text())
    registry.unregister(entry)
    # of a version without locks, or on a file system without
    path.write_text(json.dumps({**fields, "locked": False, "started": entry.started - 1000}))
    assert registry.entries() == []
    assert not path.exists()
    path.write_text(json.dumps({**fields, "locked": False}))
    assert [found.name for found in registry.entries()] == ["old"], "its process lives"
    path.write_text(json.dumps(fields))
    assert registry.entries() == [], "it would hold the lock"
    assert not path.exists()


def test_what_another_machine_entered_is_left_alone_and_says_where(own_directory: Path) -> None:
    """On a network file system: who looks there cannot know whether it lives."""
    registry.unregister(registry.register("far", "address", "script train.py"))
    path = own_directory / "producers" / "far.json"
    path.write_text(
        json.dumps(
            {"name": "far", "pid": os.getpid(), "address": "a", "since_s": time.time(), "origin": "script",
             "started": 1, "host": "node7", "boot": "another", "namespace": "pid:[1]", "locked": True}
        )
    )  # fmt: skip
    (found,) = registry.entries()
    assert path.exists() and "in the machine node7" in str(found)
    with pytest.raises(ProducerGone, match=r"served on the machine node7 .*Attach there"):
        Observer("far")
    with pytest.raises(NameInUse):
        registry.register("far", "b", "script")


def test_a_fresh_entry_is_not_swept_by_one_that_had_read_a_stale_one(
    own_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lookers: the other has swept it meanwhile, and a producer has entered itself."""
    registry.unregister(registry.register("s", "address", "script"))
    path = own_directory / "producers" / "s.json"
    gone = {"name": "s", "pid": 2**22 + 1, "address": "a", "since_s": 0, "origin": "script", "started": 1}
    path.write_text(json.dumps(gone))
    loads = json.loads
    fresh: list[registry.Entry] = []

    def slow(text: str | bytes) -> object:
        fields = loads(text)
        if not fresh and fields["started"] == 1:
            path.unlink()
            fresh.append(registry.register("s", "fresh", "script"))
        return fields

    monkeypatch.setattr(registry.json, "loads", slow)  # type: ignore[attr-defined]
    registry.entries()
    monkeypatch.undo()
    assert fresh and path.exists(), "the fresh one is swept"
    registry.unregister(fresh[0])


def test_an_entry_that_was_removed_is_put_back_with_its_directory(own_directory: Path) -> None:
    """As by a cleaner of temporary files; one that another producer has entered meanwhile stays."""
    entry = registry.register("s", "address", "script", "a token")
    shutil.rmtree(own_directory)
    assert registry.entries() == []
    assert registry.put_back(entry)
    assert registry.find("s") == entry
    (own_directory / "producers" / "s.json").unlink()
    (own_directory / "producers" / "s.json").write_text(json.dumps({**asdict(entry), "locked": False}))
    with pytest.raises(NameInUse):
        registry.put_back(entry)
    registry.unregister(entry)
    assert (own_directory / "producers" / "s.json").exists(), "somebody else's"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_entry_that_was_changed_anywhere_is_swept_or_fit_to_be_used(
    own_directory: Path, data: st.DataObject
) -> None:
    """Its texts are printable, its numbers can be looked up, and its address can be connected to."""
    registry.entries()
    path = own_directory / "producers" / "s.json"
    fields = asdict(
        registry.Entry("s", os.getpid(), "nobody-there", 1.0, "script", 1, "1-1", "t", "host", "boot", "ns")
    )
    path.write_text(json.dumps(changed_somewhere(fields, data)))
    for entry in registry.entries():
        assert str(entry).isprintable()
        with pytest.raises(TsnbError):
            Observer("s")
    path.unlink(missing_ok=True)


def test_an_entry_of_another_version_is_left_in_place(own_directory: Path) -> None:
    """Two environments of one user must not sweep each other's producers."""
    entry = registry.register("new", "address", "script")
    path = own_directory / "producers" / "new.json"
    fields = json.loads(path.read_text())
    del fields["started"]
    path.write_text(json.dumps({**fields, "something_new": 1}))
    assert [found.name for found in registry.entries()] == [entry.name]


def test_what_is_no_entry_is_swept(own_directory: Path) -> None:
    """A damaged file does not stop anybody."""
    registry.entries()
    (own_directory / "producers" / "bad.json").write_text("{")
    assert registry.entries() == []


def test_sockets_that_are_files_have_short_private_paths_and_are_swept_by_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of processes that have gone, no others; this test's directory is too long for a socket of macOS."""
    monkeypatch.setenv(SWITCH, "1")
    lives = Path(registry.new_address("s"))
    assert len(os.fsencode(lives)) <= LONGEST_SOCKET
    assert lives.parent.stat().st_mode & 0o777 == 0o700
    ends = lives.with_name(f"{os.getpid()}-{started(os.getpid()) + 100_000}-test")
    others = lives.with_name("notes-of-mine.txt")
    for path in (lives, ends, others):
        path.touch()
    try:
        assert registry.entries() == []
        assert [path.exists() for path in (lives, ends, others)] == [True, False, True]
    finally:
        lives.unlink()
        others.unlink()


def test_a_missing_name_lists_what_there_is() -> None:
    """Did you mean, and the list."""
    with pytest.raises(ProducerNotFound, match=r"^No stream is running\. Start one"):
        registry.find()
    registry.register("mnist", "a", "script a.py")
    registry.register("cifar", "b", "script b.py")
    with pytest.raises(ProducerNotFound, match=r"Did you mean 'mnist'\?.*cifar .*mnist"):
        registry.find("minst")
    with pytest.raises(ProducerNotFound, match="Several"):
        registry.find()


def test_the_directory_must_be_private(tmp_path: Path) -> None:
    """Others must not be able to put entries there."""
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    with pytest.raises(TsnbError, match="0700"):
        private_directory(loose)
    (tmp_path / "file").write_text("")
    with pytest.raises(TsnbError, match="TSNB_RUNTIME_DIR"):
        private_directory(tmp_path / "file")
    made = private_directory(tmp_path / "new" / "deep")
    assert os.stat(made).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("bad", ["", "a/b", ".hidden", "ä", "x" * 65, "a b", None, 5])
def test_names_are_plain(bad: object) -> None:
    """They become file names, socket names and labels."""
    with pytest.raises(ValueError, match="cannot name a trial"):
        check_name(bad, "trial")


def test_ages_are_said_as_people_do() -> None:
    """Seconds, minutes, hours, days."""
    now = time.time()
    assert [registry.age(now - s) for s in (5, 300, 7300, 200_000)] == ["5 s", "5 min", "2 h", "2 d"]


def test_a_process_that_dies_is_known_to_as_soon_as_its_sockets_close() -> None:
    """Who sees the end of a line must be able to tell a death from being shown out, without waiting."""
    for _ in range(20):
        ours, theirs = socket.socketpair()
        script = "import time; print(flush=True); time.sleep(60)"
        child = subprocess.Popen(
            [sys.executable, "-c", script], pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE
        )
        theirs.close()
        assert child.stdout is not None
        child.stdout.readline()
        assert not is_ending(child.pid)
        child.kill()
        assert ours.recv(1) == b""
        assert is_ending(child.pid)
        child.wait()
        assert is_ending(child.pid)
        child.stdout.close()
        ours.close()


@pytest.mark.parametrize("command", ["status", "top", "stop"])
def test_a_command_that_names_no_stream_says_how_to_name_one(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own name: `tsnb top` said to run `tsnb status`."""
    for name in ("digits", "other"):
        monkeypatch.setenv(OWNER, f"1-{name}")
        registry.register(name, "address", f"notebook {name}.ipynb")
    monkeypatch.setenv(OWNER, "1-1")
    assert main([command]) == 1
    assert f" Name one, for example tsnb {command} digits.\n" in capsys.readouterr().err
