"""Paths that another person may have made: pipes, devices, endless and looping ones, where a file is expected."""

from __future__ import annotations

import ast
import itertools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import begun
from tsnb.cli import main
from tsnb.errors import TsnbError
from tsnb.kernels.cargo.mentions import Mentions, _run
from tsnb.kernels.output.transcript import FollowedLog
from tsnb.machine.disks import cached_bytes, put_out
from tsnb.machine.gpus import look_for_mps
from tsnb.notebook.batch import _code_cells
from tsnb.notebook.runs import _former_log
from tsnb.notebook.trial_logs import _files, _is_own_place, _pictures
from tsnb.private.files import copy_whole, read_below, read_foreign
from tsnb.telemetry.recording import read_recording

pytestmark = pytest.mark.timeout(120)

KINDS = ("pipe", "endless", "folder", "huge")


def put(path: Path, kind: str) -> Path:
    """Put something that never ends where a file is expected."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 43)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_file_is_an_ordinary_one_of_bounded_size(tmp_path: Path, kind: str) -> None:
    """The one function that reads them."""
    with pytest.raises(OSError, match=r"ordinary|directory|larger"):
        read_foreign(put(tmp_path / "file", kind))
    (tmp_path / "good").write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to("good")
    assert read_foreign(tmp_path / "link", 10) == b"x" * 10
    with pytest.raises(OSError, match="larger than 9 bytes"):
        read_foreign(tmp_path / "good", 9)
    with pytest.raises(OSError, match="symbolic"):
        read_foreign(tmp_path / "link", follow=False)


def recording(path: Path) -> None:
    with pytest.raises((TsnbError, ValueError)):
        read_recording(path)


def notebook(path: Path) -> None:
    assert _code_cells(path) == []


def script(path: Path) -> None:
    _run(Mentions(), ["-i", str(path)])


def daemon(path: Path) -> None:
    path.rename(path.with_name("nvidia-cuda-mps-control.pid"))
    path.with_name("control").touch()
    look_for_mps({"CUDA_MPS_PIPE_DIRECTORY": str(path.parent)})


def cached(path: Path) -> None:
    if path.is_fifo() or path.is_char_device():
        cached_bytes(str(path))
        put_out([str(path)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", [recording, notebook, script, daemon, cached])
def test_whoever_reads_a_foreign_path_waits_for_nothing(
    tmp_path: Path, kind: str, reads: Callable[[Path], None]
) -> None:
    """Recordings, notebooks, scripts of %run, the number of an MPS daemon, files of a data set."""
    reads(put(tmp_path / "dir" / "file.py", kind))


def test_every_module_reads_foreign_files_by_the_one_function() -> None:
    """Others open the system's own files, tsnb's, or those of directories of tsnb's that no other user enters."""
    root = Path(tsnb.__file__).parent
    own = {
        "private/directories.py", "private/files.py", "checks/devices.py", "cluster/membership.py",
        "cluster/remote_run.py", "device_sharing/mps.py",
        "kernels/in_kernel/forked.py", "kernels/in_kernel/hazards.py", "kernels/processes/forking.py",
        "machine/clocks.py", "machine/disks.py", "machine/energy.py", "machine/gpus.py", "machine/memory.py",
        "machine/owners.py", "panel/widget.py", "stalling/reading.py",
    }  # fmt: skip
    opening = {"read_text", "read_bytes", "copy2", "copyfile"}
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in opening:
                found.add(path.relative_to(root).as_posix())
    assert found <= own, "use tsnb.private.files.read_foreign, read_below or read_private"


@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_artifact_is_copied_to_its_end_or_refused(tmp_path: Path, kind: str, inside: bool) -> None:
    """A pipe or a device, itself or in a folder: nothing is left, and no disk is filled."""
    source = put(tmp_path / "given" / "one.bin", kind)
    target = tmp_path / "kept" / "artifacts" / "x"
    (tmp_path / "kept").mkdir(mode=0o700)
    with pytest.raises(OSError, match="ordinary"):
        copy_whole(source.parent if inside else source, target, tmp_path / "kept")
    assert not list(target.parent.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("around", [False, True])
def test_a_folder_whose_links_loop_or_multiply_is_refused(tmp_path: Path, around: bool) -> None:
    """By name, before the disk is full. Other links are copied as what they lead to."""
    given, other, kept = tmp_path / "given", tmp_path / "other", tmp_path / "kept"
    other.mkdir()
    (other / "file").write_text("other")
    for number in range(30):
        (given / f"{number}").mkdir(parents=True)
    (given / "link").symlink_to(other / "file")
    (given / "folder").symlink_to(other)
    kept.mkdir(mode=0o700)
    target = kept / "artifacts" / "x"
    copy_whole(given, target, kept)
    assert (target / "link").read_text() == (target / "folder" / "file").read_text() == "other"
    if around:
        (given / "again").symlink_to(given)
    else:
        for number, name in itertools.product(range(29), "ab"):
            (given / f"{number}" / name).symlink_to(given / f"{number + 1}")
    with pytest.raises(OSError, match="forms a loop"):
        copy_whole(given, kept / "artifacts" / "y", kept)
    assert [path.name for path in target.parent.iterdir()] == ["x"]


@pytest.mark.parametrize("link", ["logs", "logs/cnn-1.log", "artifacts", "artifacts/cnn-1"])
def test_links_below_ones_own_records_are_not_followed_on_reading(
    project: Path, tmp_path: Path, link: str
) -> None:
    """An archive has them: what they lead to is no log and no picture of a trial."""
    run = begun("cnn")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "cnn-1.log").write_text("secret")
    (secret / "cnn-1").mkdir()
    for folder in (secret, secret / "cnn-1"):
        (folder / "one.png").write_bytes(b"secret")
    place = project / link
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        place.rmdir()
    place.symlink_to(secret / "cnn-1.log" if link.endswith(".log") else secret)
    if link.startswith("logs"):
        with pytest.raises(TsnbError, match=r"cnn-1\.log is not a log that tsnb can read: .* link"):
            _former_log("cnn", None)
    assert FollowedLog(project / "logs" / "cnn-1.log").text == ""
    with pytest.raises(OSError, match=r"symbolic|directory"):
        read_below(project, *(f"{link}/cnn-1.log" if link == "logs" else link).split("/"))
    assert not _is_own_place(run.artifacts_path)


def test_a_name_below_the_records_is_one_part_of_a_path(project: Path, tmp_path: Path) -> None:
    """Neither `..` nor a slash nor nothing leads a reader out of the folder."""
    (project / "logs").mkdir(parents=True)
    (tmp_path / "secret.log").write_text("secret")
    for name in ("../../secret.log", "..", "", "/etc/passwd", "a/b"):
        with pytest.raises(OSError, match="not the name of a file"):
            read_below(project, "logs", name)


def test_a_name_in_somebodys_records_leads_to_no_file_elsewhere(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tsnb logs`, which the tool for agents calls as well."""
    begun("../../secret")
    begun("cnn").log_path.write_text("good")
    (tmp_path / "secret-1.log").write_text("secret")
    assert main(["logs", "../../secret"])
    said = capsys.readouterr()
    assert "secret\n" not in said.out and "a value that tsnb never writes" in said.err


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_of_a_trial_is_read_at_its_end_or_said_to_be_something_else(
    project: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """A huge one costs what is shown; of anything else it is said what it is, and it is not waited for."""
    path = begun("cnn").log_path
    put(path, kind)
    if kind == "huge":
        with path.open("ab") as file:
            file.write("\nthe end: ✓\n".encode() * 3)
        tracemalloc.start()
        main(["logs", "cnn"])
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
        tracemalloc.stop()
        assert capsys.readouterr().out.endswith("the end: ✓\n")
        return
    assert main(["logs", "cnn"])
    what = "is a link" if kind == "endless" else "is not an ordinary file"
    assert f"cnn-1.log is not a log that tsnb can read: it {what}. Remove it." in capsys.readouterr().err


def test_a_link_among_artifacts_shows_nothing(project: Path, tmp_path: Path) -> None:
    """A picture of a run is a file that lies there."""
    run = begun("cnn")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "good.png").write_bytes(b"good")
    run.add_artifact(tmp_path / "good.png")
    (run.artifacts_path / "link.png").symlink_to(tmp_path / "secret.png")
    os.mkfifo(run.artifacts_path / "pipe.png")
    assert _is_own_place(run.artifacts_path)
    assert [name for name, *_ in _pictures(run.artifacts_path)] == ["good.png"]
    assert dict(_files(run.artifacts_path)) == {"good.png": 4, "link.png": None, "pipe.png": None}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the records directory of a new project."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    return tmp_path / ".tsnb"
