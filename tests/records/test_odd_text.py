"""A text with a lone surrogate, as Python makes of a file name that is not UTF-8: it spoils no table, no file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import tsnb
from tests.records.recorded import trained
from tsnb.records.database import FILE
from tsnb.records.run import Run

ODD = "caf\udce9/\ud800.png"
SHOWN = "caf\\udce9/\\ud800.png"


@pytest.fixture(autouse=True)
def odd_run(project: Path) -> Run:
    """Record a run with such a text wherever its user's texts go, and one before this version's."""
    run = trained(
        "odd",
        [1.0, 0.5],
        params={"path": ODD, "deep": {ODD: [ODD, 1]}, "é": "é ✓ 🎉"},
        origin=f"script {ODD}",
    )
    failed = trained("failed", [1.0], state="running", params={"path": "a"})
    failed.end("failed", f"ValueError: {ODD}")
    old = trained("old", [2.0], params={"path": "b"})
    with sqlite3.connect(project / FILE) as connection:
        connection.execute("UPDATE runs SET params = ? WHERE key = ?", (json.dumps({"path": ODD}), old.key))
    return run


def test_the_results_of_the_project_are_there_and_show_it_by_its_number() -> None:
    """In every table of them, and in those who share a parameter with it."""
    table = tsnb.results()
    paths = dict(zip(table["name"], table["path"], strict=True))
    assert (paths["odd"], paths["old"], paths["failed"]) == (SHOWN, SHOWN, "a")
    assert dict(zip(table["name"], table["é"], strict=True))["odd"] == "é ✓ 🎉"
    assert table.to_csv().encode()
    assert len(tsnb.records.history("loss"))
    assert tsnb.results(sort="loss", by="path") is not None
    tsnb.records.tag("odd", "kept")
    assert tsnb.results(tag="kept")["name"].tolist() == ["odd"]


def test_how_it_failed_is_recorded() -> None:
    """The reason itself is such a text."""
    found = Run.find("failed")
    assert found is not None
    record = found.read()
    assert record is not None
    assert (record.state, record.failure) == ("failed", f"ValueError: {SHOWN}")


def test_the_handle_of_the_run_has_texts_that_a_tracker_takes(odd_run: Run) -> None:
    """MLflow and TensorBoard encode them."""
    assert odd_run.id
    assert json.dumps(odd_run.params, ensure_ascii=False).encode()
    assert odd_run.params["deep"] == {SHOWN: [SHOWN, 1]}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_terminal_that_knows_ascii_only_shows_the_table(more: tuple[str, ...]) -> None:
    """By the letters' numbers, as Python itself shows them on stderr."""
    ran = subprocess.run(
        [sys.executable, "-m", "tsnb", "results", *more],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert SHOWN.replace("\\", "\\\\" if more else "\\") in ran.stdout.decode("ascii")
