"""The commit that a trial started from, in real repositories."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from tests.second_user import does, reachable, two_users
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


def tried(*words: str, at: Path) -> None:
    """Run git in a directory, and let it fail: nothing to commit, say."""
    with contextlib.suppress(subprocess.CalledProcessError):
        git(*words, at=at)


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
    """Return what is told of the current directory, once it is known."""
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


def test_outside_a_repository_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit, and no word on changes."""
    monkeypatch.chdir(tmp_path)
    assert commit_here() == ""
    assert commits._status(tmp_path) is None


def test_what_git_says_is_said_in_any_state_of_a_repository(repository: Path) -> None:
    """Files changed, staged, removed, linked, packed, unmerged; index versions; what is not known is never guessed."""
    rest = random.Random(7)
    names = ["train.py", "b.txt", "dir/c", "dir/d/e", "dir.x", "dir-y/z"]
    told = []
    for step in range(40):
        path = repository / rest.choice(names)
        path.parent.mkdir(parents=True, exist_ok=True)
        words = rest.choice(
            [
                "write", "touch", "remove", "link", "add -A", "commit -am more", "commit -am more --allow-empty",
                "gc --prune=now", "reset --hard", "reset", "reset --soft HEAD~1", "stash", "rm -r --cached dir",
                "update-index --index-version=4",
            ]
        )  # fmt: skip
        if words == "touch":
            subprocess.run(["touch", "--no-create", path], check=True)
        elif words in {"write", "remove", "link"}:
            path.unlink(missing_ok=True)
            if words == "write":
                path.write_text(str(step))
            elif words == "link":
                path.symlink_to("nowhere")
        else:
            tried(*words.split(), at=repository)
        head = git("rev-parse", "HEAD", at=repository)[:10]
        differs = git("status", "--porcelain", "--untracked-files=no", at=repository)
        told.append(commits._status(repository))
        assert told[-1] in {None, f"{head}-dirty" if differs else head}, step
    assert told.count(None) < 20 and len(set(told)) > 3


def test_no_program_that_a_repository_names_is_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unpacked data set has a .git of its own: filters, hooks, monitors, converters, pagers and includes."""
    ran = tmp_path / "ran"
    ran.mkdir()
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch "{ran}/$$-$1"\ncat\n')
    program.chmod(0o755)
    places = [
        "filter.f.clean", "filter.f.smudge", "filter.f.process", "core.fsmonitor", "core.pager", "core.editor",
        "core.sshCommand", "diff.f.textconv", "diff.f.command", "diff.external", "merge.f.driver", "pager.status",
        "uploadpack.packObjectsHook", "credential.helper", "gpg.program", "core.hooksPath",
    ]  # fmt: skip
    (tmp_path / "more").write_text(
        "".join(f'[filter "g"]\n\t{kind} = {program} included\n' for kind in ("clean",))
    )
    (repository / ".gitattributes").write_text("*.py filter=f diff=f merge=f\n*.txt filter=g\n")
    (repository / "b.txt").write_text("b")
    git("add", ".", at=repository)
    git("commit", "-m", "second", at=repository)
    for place in places:
        git("config", place, f"{program} {place}", at=repository)
    git("config", "include.path", str(tmp_path / "more"), at=repository)
    for hook in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc"):
        (repository / ".git/hooks").mkdir(exist_ok=True)
        (repository / ".git/hooks" / hook).symlink_to(program)
    (repository / "git").symlink_to(program)
    monkeypatch.setenv("PATH", f".:{repository}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    (repository / "train.py").write_text("lr = 0.2\n")
    (repository / "b.txt").write_text("c")
    os.utime(repository / ".gitattributes")
    assert commit_here().endswith("?")
    assert looked()[0].endswith("-dirty")
    assert not list(ran.iterdir())


WITHIN = """
import resource, sys
from pathlib import Path
from tsnb.records import commits
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import os
for place in sys.argv[1:]:
    os.chdir(place)
    print([commits.commit_here(), commits._status(Path(place))], flush=True)
"""


def read_in_another_process(*places: Path) -> list[list[str | None]]:
    """Return what is said of directories by a process that may neither wait for good nor take all memory."""
    done = subprocess.run(
        [sys.executable, "-c", WITHIN, *map(str, places)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return [ast.literal_eval(line) for line in done.stdout.splitlines()]


def test_files_of_a_repository_that_never_end_stop_nothing(repository: Path, tmp_path: Path) -> None:
    """A pipe, an endless device, a folder or a huge file in place of any that is read: what it says is unknown."""
    git("pack-refs", "--all", at=repository)
    git("repack", "-ad", at=repository)
    (pack,) = (repository / ".git/objects/pack").glob("*.idx")
    head = git("rev-parse", "HEAD", at=repository)
    within = ["HEAD", "index", "commondir", "packed-refs", "refs/heads/main", f"objects/pack/{pack.name}",
              f"objects/pack/{pack.stem}.pack", f"objects/{head[:2]}/{head[2:]}"]  # fmt: skip
    names = ["train.py", ".git", *(f".git/{name}" for name in within)]
    places: list[Path] = []
    for name, kind in itertools.product(names, ("pipe", "endless", "folder", "large")):
        place = tmp_path / f"{len(places)}"
        subprocess.run(["cp", "-a", repository, place], check=True)
        path = place / name
        path.parent.mkdir(exist_ok=True, parents=True)
        subprocess.run(["rm", "-rf", path], check=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "endless":
            path.symlink_to("/dev/zero")
        elif kind == "folder":
            path.mkdir()
        else:
            with path.open("wb") as file:
                file.truncate(1 << 40)
        places.append(place)
    for place, (commit, after) in zip(places, read_in_another_process(*places), strict=True):
        assert commit in {"", "?", f"{head[:10]}?"}, place
        assert after in {None, "", head[:10], f"{head[:10]}-dirty"}, place


def test_a_planted_list_of_all_branches_costs_a_start_nothing(repository: Path) -> None:
    """As many lines as are read: memory of its size, twice or so. A larger one says nothing."""
    git("pack-refs", "--all", at=repository)
    listed = repository / ".git/packed-refs"
    own = listed.read_bytes()
    assert own.count(b" refs/heads/main\n") == 1
    head = f"{git('rev-parse', 'HEAD', at=repository)[:10]}?"
    false = b"0" * 40 + b" refs/heads/main2\n" + b"1" * 40 + b" x refs/heads/mai\n"
    for size, expected in ((commits.MOST_REFS - len(own), head), (1 << 26, "?")):
        listed.write_bytes(
            (false + b"a b\n" * (size // 4))[: size - size % 4 - 4].rpartition(b"\n")[0] + b"\n" + own
        )
        tracemalloc.start()
        assert commit_here() == expected
        assert tracemalloc.get_traced_memory()[1] < 4 * commits.MOST_REFS
        tracemalloc.stop()
    listed.write_bytes(own.rstrip(b"\n"))
    assert commit_here() == head, "the last line may have no end"
    listed.write_bytes(own.replace(b"refs/heads/main\n", b"refs/heads/main2\n"))
    assert commit_here() == "?"


@two_users
def test_a_repository_that_another_user_puts_above_is_passed_over(repository: Path, tmp_path: Path) -> None:
    """In a shared folder above the working directory; one's own beyond it counts."""
    shared = repository / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "mine").mkdir()
    reachable(shared)
    does("os.mkdir(sys.argv[1]); os.mkfifo(sys.argv[1] + '/HEAD')", shared / ".git")
    head = git("rev-parse", "HEAD", at=repository)[:10]
    assert read_in_another_process(shared / "mine") == [[f"{head}?", head]]
    does("os.remove(sys.argv[1] + '/HEAD'); os.symlink('/dev/zero', sys.argv[1] + '/HEAD')", shared / ".git")
    assert read_in_another_process(shared / "mine") == [[f"{head}?", head]]
    does("os.remove(sys.argv[1] + '/HEAD'); os.rmdir(sys.argv[1]); os.mkfifo(sys.argv[1])", shared / ".git")
    assert read_in_another_process(shared / "mine") == [[f"{head}?", head]]


def test_many_who_ask_at_once_are_told_by_few_looks(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep starts a hundred trials: files are looked at as often as answers could differ, not once a trial."""
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
