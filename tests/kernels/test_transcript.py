"""The transcript of a log file that another process writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsnb.kernels.output import transcript
from tsnb.kernels.output.transcript import FollowedLog


def test_a_file_is_read_on(tmp_path: Path) -> None:
    """What was written since the last look, bars as one line, letters of two bytes torn apart."""
    path = tmp_path / "a.log"
    log = FollowedLog(path)
    assert log.since(0) == (0, "", "")
    lines = "".join(f"line {k} \u00e4\n" for k in range(100)).encode()
    got, position = "", 0
    for at in range(0, len(lines), 7):
        with path.open("ab") as file:
            file.write(lines[at : at + 7])
        part = log.since(position)
        got, position = got + part.text, part.start + len(part.text)
    with path.open("ab") as file:
        file.write(b"10 %\r20 %\r30 %")
    assert (got + log.since(position).text + log.since(position).open).encode() == lines + b"30 %"
    assert log.text.encode() == lines + b"30 %"


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A week's log does not come into memory."""
    monkeypatch.setattr(transcript, "TRANSCRIPT_CHARACTERS", 1000)
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {k:05}\n" for k in range(10_000)))
    text = FollowedLog(path).text
    assert len(text) <= 1000
    assert text.endswith("line 09998\nline 09999\n")


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    """The trial was run again under the same path."""
    path = tmp_path / "a.log"
    path.write_text("a long first text\n")
    log = FollowedLog(path)
    assert log.text == "a long first text\n"
    path.write_text("new\n")
    assert log.text == "new\n"
