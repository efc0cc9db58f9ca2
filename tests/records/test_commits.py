"""The commit that a trial started from, in real repositories."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tsnb.records import commits
from tsnb.records.commits import commit_here, look


def git(*words: str, at: Path) -> str:
    """Run git in a directory; return what it printed."""
    command = [
        "git",
        "-c",
        "user.name=n",
        "-c",
        "user.email=e@example.org",
        "-c",
        "init.defaultBranch=main",
        *words,
    ]
    return subprocess.run(command, cwd=at, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit, the current directory."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", at=folder)
    (folder / "train.py").write_text("lr = 0.1\n")
    git("add", ".", at=folder)
    git("commit", "-m", "first", at=folder)
    monkeypatch.chdir(folder)
    return folder


def looked() -> list[str]:
    """Return what is told of the current directory, once git has looked."""
    told: list[str] = []
    over = threading.Event()
    look(lambda found: (told.append(found), over.set()))  # type: ignore[func-returns-value, arg-type]
    assert over.wait(60)
    return told


def test_the_commit_is_read_at_once_and_the_mark_follows(repository: Path) -> None:
    """A changed and a staged file count, one that git does not know does not; nothing of the repository is touched."""
    head = git("rev-parse", "HEAD", at=repository)[:10]
    assert commit_here() == f"{head}?"
    (repository / "notes.txt").write_text("git does not know it")
    (repository / "train.py").write_text("lr = 0.1\n")  # another time, the same text
    index = (repository / ".git/index").read_bytes()
    assert looked() == [head]
    (repository / "train.py").write_text("lr = 0.2\n")
    assert looked() == [f"{head}-dirty"]
    assert (repository / ".git/index").read_bytes() == index
    git("add", ".", at=repository)
    assert looked() == [f"{head}-dirty"]


def test_every_way_of_checking_out_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder below, packed references, a detached head, a worktree; and before the first commit nothing."""
    head = f"{git('rev-parse', 'HEAD', at=repository)[:10]}?"
    (repository / "below").mkdir()
    monkeypatch.chdir(repository / "below")
    assert commit_here() == head
    git("pack-refs", "--all", at=repository)
    assert commit_here() == head
    git("worktree", "add", "-b", "other", "../tree", at=repository)
    monkeypatch.chdir(repository.parent / "tree")
    assert commit_here() == head
    git("checkout", "--detach", at=repository)
    monkeypatch.chdir(repository)
    assert commit_here() == head
    empty = repository.parent / "empty"
    empty.mkdir()
    git("init", at=empty)
    monkeypatch.chdir(empty)
    assert commit_here() == "?"
    assert looked() == [""]


def test_without_a_repository_or_git_nothing_is_claimed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside: nothing. Without git, or with one in the directory itself only: the commit, and no word on changes."""
    (repository / "git").write_text("#!/bin/sh\ntouch ran\n")
    (repository / "git").chmod(0o755)
    monkeypatch.setenv("PATH", ".")
    assert commit_here().endswith("?")
    assert commits._status(repository) is None
    assert not (repository / "ran").exists()
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert commit_here() == ""


def test_many_who_ask_at_once_are_told_by_few_looks(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep starts a hundred trials: git runs as often as answers could differ, not once a trial."""
    looks: list[Path] = []
    real, go_on = commits._status, threading.Event()

    def counted(directory: Path) -> str | None:
        looks.append(directory)
        assert go_on.wait(60)
        return real(directory)

    monkeypatch.setattr(commits, "_status", counted)
    told: list[str] = []
    over = threading.Semaphore(0)
    for _ in range(100):
        look(lambda found: (told.append(found), over.release()))  # type: ignore[func-returns-value, arg-type]
    go_on.set()
    assert all(over.acquire(timeout=240) for _ in range(100))
    assert len(set(told)) == 1 and len(looks) <= 2
