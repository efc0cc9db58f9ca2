"""Recordings: what a stream says, in a file; read again, torn, damaged, from a newer version."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tsnb
from tests.panel.streams import three_models
from tests.system.scripts import Script, scripts
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.telemetry.recording import FORMAT, read_recording

SERVE = """
with tsnb.serve(DataLoader(Numbers(640), batch_size=16), name="s") as producer:
    say("serving")
    producer.wait()
"""
TRAIN = """
for epoch in range(10_000):
    for batch in tsnb.attach("cnn", stream="s"): time.sleep(0.01)
"""
RECORD = """
recorder = tsnb.streams.record(None, sys.argv[1])
while recorder.readings < 4: time.sleep(0.05)
say("four")
"""

Run = Callable[..., Script]


@pytest.fixture
def run() -> Iterator[Run]:
    with scripts() as running:

        def start(code: str, *arguments: str) -> Script:
            running.append(Script(code, *arguments))
            return running[-1]

        yield start


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A recording of the imagined stream: 20 readings."""
    path = tmp_path / "run.jsonl"
    lines = [reading.to_json() for reading in three_models().run(5)]
    path.write_text("\n".join([json.dumps({"tsnb": "0.1.0", "recording": 1, "stream": "mnist"}), *lines, ""]))
    return path


def test_a_recording_gives_the_readings_back(file: Path) -> None:
    """All of them, as they were."""
    assert read_recording(file) == list(three_models().run(5))
    assert read_recording(str(file))[0].name == "mnist"


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_torn_last_line_is_left_out(file: Path, cut: int) -> None:
    """Wherever the machine lost power."""
    text = file.read_text()
    file.write_text(text[:-cut])
    assert read_recording(file) == list(three_models().run(5))[:19]
    file.write_text(text[:-cut] + "\n")
    assert len(read_recording(file)) in (19, 20), "the line is there, its middle is not"


def test_a_recording_without_a_reading_is_empty(tmp_path: Path) -> None:
    """Killed in its first quarter of a second."""
    path = tmp_path / "run.jsonl"
    path.write_text('{"tsnb": "0.1.0", "recording": 1, "stream": "mnist"}\n')
    assert read_recording(path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a recording: its first line is not the header"),
        ("time,loss\n1,2\n", "not a recording"),
        ("[1]\n", "not a recording"),
        ('{"recording": "x"}\n', "not a recording"),
        (
            '{"tsnb": "9.1", "recording": 9}\n{}\n',
            r"recorded by tsnb 9\.1 in format 9.*reads formats up to 1\. Install",
        ),
        ('{"recording": 1}\n{"name": "x"}\n{"name": "x"}\n{}\n', "line 2 is damaged: not a stream reading"),
        ('{"recording": 1}\nhuh\n{}\n{}\n', "line 2 is damaged"),
        ('{"recording": 1}\n[]\n{}\n{}\n', "line 2 is damaged"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    """One line that says what is wrong, and where."""
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recording(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """No traceback of the file system's."""
    with pytest.raises(TsnbError, match=r"none\.jsonl cannot be read: No such file"):
        read_recording(tmp_path / "none.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TsnbError, match="cannot be read: not an ordinary file"):
        read_recording(tmp_path / "folder")


@pytest.mark.system
def test_a_stream_is_recorded_until_it_ends(run: Run, tmp_path: Path) -> None:
    """With its consumers and the machine; stopping the stream ends the recording, which is whole."""
    path = tmp_path / "run.jsonl"
    run(SERVE).expect("serving")
    run(TRAIN)
    recorder = run(
        """
        recorder = tsnb.streams.record("s", sys.argv[1])
        while not any('"cnn":{"cpu"' in line for line in open(sys.argv[1])): time.sleep(0.1)
        say("active", recorder.active, recorder.wait(0.01))
        tsnb.streams.stop("s")
        say("ended", recorder.wait(60), recorder.active)
        say(repr(recorder))
        """,
        str(path),
    )
    recorder.expect("active True False")
    recorder.expect("ended True False")
    readings = read_recording(path)
    assert recorder.expect(f"recorded s to {path}: ") == f"{len(readings)} readings"
    assert {c.name for r in readings for c in r.consumers} == {"cnn"}
    assert any(r.host and r.host.producer for r in readings)
    assert json.loads(path.read_text().splitlines()[0])["recording"] == FORMAT


@pytest.mark.system
def test_a_recorder_that_is_killed_loses_nothing(run: Run, tmp_path: Path) -> None:
    """What it had counted is in the file."""
    path = tmp_path / "run.jsonl"
    run(SERVE).expect("serving")
    recorder = run(RECORD + "\ntime.sleep(60)", str(path))
    recorder.expect("four")
    recorder.send(signal.SIGKILL)
    recorder.end()
    assert len(read_recording(path)) >= 4


@pytest.mark.system
def test_a_producer_that_comes_back_is_recorded_on(run: Run, tmp_path: Path) -> None:
    """A crash is part of the stream's story; one that does not come back ends the recording after a while."""
    path = tmp_path / "run.jsonl"
    first = run(SERVE)
    first.expect("serving")
    recorder = run(
        """
        from pathlib import Path
        from tsnb.telemetry.recording import Recorder
        recorder = Recorder("s", Path(sys.argv[1]), return_s=15.0)
        while recorder.readings < 4: time.sleep(0.05)
        say("four")
        while len({line.split('"pid":')[1].split(",")[0] for line in open(sys.argv[1]) if '"pid"' in line}) < 2:
            time.sleep(0.05)
        say("two producers")
        recorder._return_s = 0.5
        say("ended", recorder.wait(60))
        """,
        str(path),
    )
    recorder.expect("four")
    first.send(signal.SIGKILL)
    second = run(SERVE)
    second.expect("serving")
    recorder.expect("two producers")
    second.send(signal.SIGKILL)
    recorder.expect("ended True")
    assert len({reading.pid for reading in read_recording(path)}) == 2


@pytest.mark.system
def test_what_cannot_be_recorded_is_told_at_once(run: Run, tmp_path: Path) -> None:
    """No such stream, a file that exists, a place where none can be."""
    with pytest.raises(ProducerNotFound):
        tsnb.streams.record("nobody", tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl").exists()
    run(SERVE).expect("serving")
    (tmp_path / "there.jsonl").write_text("precious")
    with pytest.raises(TsnbError, match="already exists"):
        tsnb.streams.record("s", tmp_path / "there.jsonl")
    assert (tmp_path / "there.jsonl").read_text() == "precious"
    with pytest.raises(TsnbError, match=r"cannot be written: No such file or directory\.$"):
        tsnb.streams.record("s", tmp_path / "no" / "folder.jsonl")


@pytest.mark.system
def test_a_disk_that_fills_up_ends_the_recording_and_says_so(run: Run, tmp_path: Path) -> None:
    """And what was written before can be read."""
    path = tmp_path / "run.jsonl"
    run(SERVE).expect("serving")
    script = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, resource.RLIM_INFINITY))
        recorder = tsnb.streams.record("s", sys.argv[1])
        try: recorder.wait(60)
        except tsnb.errors.TsnbError as error: say("told", error)
        recorder._follower.close()
        """,
        str(path),
    )
    assert "File too large" in script.expect("told")
    assert read_recording(path)
