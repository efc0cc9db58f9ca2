"""Where records lie."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.records.recorded import begun, row
from tests.second_user import does, given, reachable, two_users
from tsnb.config import runtime_directory
from tsnb.errors import TsnbError
from tsnb.kernels.output.logfile import LogFile
from tsnb.records import project as projects
from tsnb.records.project import project_directory, project_name
from tsnb.records.run import Run


@pytest.fixture(autouse=True)
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty directory, with nothing chosen, and no records above it."""
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.delenv("TSNB_PROJECT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_records_lie_beside_the_notebook_and_out_of_the_repository(anywhere: Path) -> None:
    """Git sees nothing of them; readers make nothing."""
    subprocess.run(["git", "init", "-q"], check=True)
    assert project_directory(make=False) == anywhere / ".tsnb"
    assert not (anywhere / ".tsnb").exists()
    begun("cnn")
    assert (anywhere / ".tsnb" / "records.sqlite").exists()
    status = subprocess.run(["git", "status", "--short", "-uall"], check=True, capture_output=True, text=True)
    assert status.stdout == ""
    assert project_name(project_directory()) == anywhere.name


def test_a_directory_below_belongs_to_the_project(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest records above are found, as git finds its repository."""
    made = project_directory()
    below = anywhere / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project_directory() == made
    (anywhere / "a" / ".tsnb").mkdir()
    assert project_directory() == anywhere / "a" / ".tsnb"


def test_the_home_directorys_records_do_not_take_in_every_project_below(
    anywhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One notebook tried in the home directory must not collect all that is run below it from then on."""
    monkeypatch.setenv("HOME", str(anywhere))
    at_home = project_directory()
    assert at_home == anywhere / ".tsnb"
    project = anywhere / "work" / "mnist"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    assert project_directory() == project / ".tsnb"


def test_a_notebook_keeps_its_project_wherever_it_goes(
    anywhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%cd data` in the middle does not start other records."""
    (anywhere / "data").mkdir()
    projects.stay_in(anywhere)
    try:
        monkeypatch.chdir("data")
        assert project_directory() == anywhere / ".tsnb"
    finally:
        projects.stay_in(None)
    assert project_directory(make=False) == anywhere / ".tsnb", "the nearest above, as ever"


def test_a_chosen_directory_wins(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made where it is not there yet."""
    project_directory()
    monkeypatch.setenv("TSNB_PROJECT_DIR", "elsewhere/deep")
    assert project_directory() == anywhere / "elsewhere" / "deep" / ".tsnb"
    assert (anywhere / "elsewhere" / "deep" / ".tsnb" / ".gitignore").read_text() == "*\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory somebody else's")
def test_somebody_elses_records_above_are_left_alone(anywhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared directory anybody could put some, and read what they get."""
    planted = anywhere / ".tsnb"
    planted.mkdir()
    os.chown(planted, 12345, 12345)
    below = anywhere / "mine"
    below.mkdir()
    monkeypatch.chdir(below)
    assert project_directory() == below / ".tsnb"


def lives(name: str = "cnn") -> Run:
    """Live through a run that writes whatever a run writes."""
    run = begun(name)
    LogFile(run.log_path).write("printed\n")
    run.add_rows([row(0, loss=1.0)])
    Path("net.pt").write_text("net")
    run.add_artifact("net.pt", "nets/net.pt")
    run.end("done")
    return run


@pytest.fixture
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder of this user's whose contents have to stay as they are."""
    place = tmp_path_factory.mktemp("victim")
    (place / "log").write_text("precious")
    (place / "records.sqlite").write_bytes(b"")
    (place / "folder").mkdir()
    before = {path: path.stat().st_mtime_ns for path in (place, *place.rglob("*"))}
    yield place
    assert {path: path.stat().st_mtime_ns for path in (place, *place.rglob("*"))} == before
    assert (place / "log").read_text() == "precious"


PLANT = """
place, victim = sys.argv[1:]
os.mkdir(f"{place}/.tsnb", 0o777)
os.chmod(f"{place}/.tsnb", 0o777)
os.mkdir(f"{place}/.tsnb/logs", 0o777)
os.chmod(f"{place}/.tsnb/logs", 0o777)
os.symlink(f"{victim}/log", f"{place}/.tsnb/logs/cnn-1.log")
os.symlink(f"{victim}/records.sqlite", f"{place}/.tsnb/records.sqlite")
os.symlink(f"{victim}/folder", f"{place}/.tsnb/artifacts")
os.symlink(f"{victim}/new", f"{place}/.tsnb/.gitignore")
"""


@two_users
@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize(
    "plant", [PLANT, "os.symlink(sys.argv[2], sys.argv[1] + '/.tsnb')"], ids=["full", "link"]
)
def test_planted_records_in_the_working_directory_are_not_used(
    anywhere: Path,
    victims: Path,
    mode: int,
    plant: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a shared directory another user puts a `.tsnb` with links to the victim's files; trials run all the same."""
    monkeypatch.setattr(projects, "_told", set())
    shared = reachable(anywhere) / "shared"
    shared.mkdir()
    shared.chmod(mode)
    does(plant, shared, victims)
    monkeypatch.chdir(shared)
    run = lives()
    assert run.directory.is_relative_to(runtime_directory() / "projects")
    assert run.log_path.read_text() == "printed\n"
    assert "set TSNB_PROJECT_DIR" in caplog.records[0].message
    assert str(shared) in caplog.records[0].message
    assert project_directory(make=False) == run.directory, "nor are they read"


@two_users
def test_chosen_records_that_are_somebody_elses_are_refused(
    anywhere: Path, victims: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen by name, a directory of others may hold ours, but `.tsnb` itself is ours or is not used."""
    shared = reachable(anywhere) / "shared"
    given(shared, 0o777)
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(shared))
    assert lives().directory == shared / ".tsnb", "who chose it trusts its owner"
    (shared / ".tsnb").rename(anywhere / "away")
    does(PLANT, shared, victims)
    for make in (True, False):
        with pytest.raises(TsnbError, match=r"it belongs to nobody \(user 65534\).*Set TSNB_PROJECT_DIR"):
            project_directory(make=make)


@pytest.mark.parametrize(
    "below", ["logs", "logs/cnn-1.log", "artifacts", "artifacts/cnn-1", "records.sqlite"]
)
@pytest.mark.parametrize("hard", [False, True])
def test_links_below_ones_own_records_are_not_followed(
    anywhere: Path, victims: Path, below: str, hard: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An older tsnb made `.tsnb` with the umask's mode: others may have put links there before it was closed."""
    place = anywhere / ".tsnb" / below
    place.parent.mkdir(parents=True)
    target = {"logs/cnn-1.log": "log", "records.sqlite": "records.sqlite"}.get(below, "folder")
    if hard and target == "folder":
        pytest.skip("folders have no hard links")
    if hard:
        place.hardlink_to(victims / target)
    else:
        place.symlink_to(victims / target)
    lives()
    assert str(place) in caplog.text, "what is not kept is said"


def test_records_that_were_open_to_others_are_closed(anywhere: Path) -> None:
    """An older tsnb left that to the umask."""
    (anywhere / ".tsnb").mkdir()
    (anywhere / ".tsnb").chmod(0o777)
    lives()
    assert (anywhere / ".tsnb").stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_the_records_go_to_the_user(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Trials are recorded all the same, in a directory for that project, and one warning says where."""
    monkeypatch.chdir("/proc/self")
    monkeypatch.setattr(projects, "_told", set())
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    assert run.directory.is_relative_to(runtime_directory() / "projects")
    assert len(run.rows()[0]) == 1
    assert project_directory() == project_directory(make=False) == run.directory
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "set TSNB_PROJECT_DIR" in caplog.records[0].message


def test_a_chosen_directory_that_cannot_be_written_is_told_and_stops_no_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere would not be what was asked for."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", "/proc/self/records")
    with pytest.raises(TsnbError, match="Set TSNB_PROJECT_DIR to a directory that you can write to"):
        project_directory()
    run = begun("cnn")
    run.add_rows([row(0, loss=1.0)])
    run.end("done")
    assert run.id == 0
    assert run.log_path.parent.is_dir(), "what it prints has a place all the same"
    assert len(caplog.records) == 1
    assert "set TSNB_PROJECT_DIR" in caplog.records[0].message


def test_a_deleted_current_directory_stops_no_trial(
    anywhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The notebook's folder was moved away, say."""
    gone = anywhere / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert begun("cnn").id == 0
    assert len(caplog.records) == 1
