"""A log on disk: complete at any moment, bounded, and never a reason for a trial to end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tsnb.kernels.output.logfile import LogFile


def test_open_lines_are_written_over(tmp_path: Path) -> None:
    """The file has the bar's last state at any moment, and what settles before it."""
    log = LogFile(tmp_path / "a.log")
    log.write("begun\n", " 10 % ####")
    assert log.path.read_text() == "begun\n 10 % ####"
    log.write("", " 9 %")
    log.write("done\n")
    assert log.path.read_text() == "begun\ndone\n"
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_printed_steers_no_terminal(tmp_path: Path) -> None:
    """`cat` and `less -R` show it: no colours, and no other sequence either."""
    log = LogFile(tmp_path / "a.log")
    log.write("\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b2J\ttab\n", "open \x1bc \u00e4 \udc80")
    assert log.path.read_text(encoding="utf-8") == "red ?]0;title??2J\ttab\nopen ?c \u00e4 ?"


def test_a_bound_holds_and_beginning_and_end_stay(tmp_path: Path) -> None:
    """A gigabyte in small is left out in the middle: a quarter from the start, the last lines, one note."""
    log = LogFile(tmp_path / "a.log", most_bytes=8000)
    lines = [f"line {number} \u00e4\n" for number in range(20_000)]
    largest = 0
    for number, line in enumerate(lines):
        log.write(line, "open" if number % 3 else "")
        largest = max(largest, log.path.stat().st_size)
    text = log.path.read_text()
    assert largest <= 8000
    assert text.startswith("".join(lines[:100]))
    before, _, after = text.partition("[... ")
    left_out, _, after = after.partition(" bytes were left out here ...]\n")
    assert before == "".join(lines[: before.count("\n")])
    assert after.count("\n") > 250
    assert after == "".join(lines[-after.count("\n") :]) + "open"
    whole = len("".join(lines).encode())
    assert int(left_out.replace(",", "")) == whole + len("open") - len((before + after).encode())


def test_one_text_larger_than_the_bound_fits_too(tmp_path: Path) -> None:
    """A trial that prints an array of a megabyte at once, or a line without an end."""
    log = LogFile(tmp_path / "a.log", most_bytes=8000)
    log.write("start\n" + "x" * 100_000 + "\nend\n", "y" * 50_000)
    content = log.path.read_bytes()
    assert len(content) <= 8000
    assert content.startswith(b"start\n")
    assert b"x\nend\ny" in content


def test_a_log_is_continued(tmp_path: Path) -> None:
    """A trial that is started again after a crash writes on behind what it printed before."""
    LogFile(tmp_path / "a.log").write("before\n", "crashed in the mid")
    LogFile(tmp_path / "a.log").write("\nagain\n")
    assert (tmp_path / "a.log").read_text() == "before\ncrashed in the mid\nagain\n"


def test_a_log_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A full disk costs the log, not the trial."""
    with caplog.at_level(logging.WARNING, logger="tsnb"):
        log = LogFile(tmp_path / "no" / "a.log")
        log.write("a\n")
        log.write("b\n")
    assert len(caplog.records) == 1
    assert "a.log is no longer written" in caplog.text


def test_what_another_process_writes_is_shortened(tmp_path: Path) -> None:
    """As a detached kernel's own output: it goes on at the end of what is left."""
    log = LogFile(tmp_path / "a.log", most_bytes=8000)
    with (tmp_path / "a.log").open("a", buffering=1) as output:
        for number in range(3000):
            output.write(f"line {number}\n")
            if number % 500 == 499:
                log.shorten()
        output.write("last\n")
    text = log.path.read_text()
    assert len(text) < 8000 + 500 * len("line 2999\n")
    before, _, rest = text.partition("[... ")
    left_out, _, after = rest.partition(" bytes were left out here ...]\n")
    assert text.startswith("line 0\nline 1\n")
    assert after.endswith("line 2998\nline 2999\nlast\n")
    whole = sum(len(f"line {number}\n") for number in range(3000)) + len("last\n")
    assert int(left_out.replace(",", "")) == whole - len(before) - len(after)
