"""Texts from anywhere in every field that a command or a printed object shows: none of them steers the terminal."""

from __future__ import annotations

import argparse
import io
import json
import re
import sqlite3
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import tsnb
from tests.hostile import HOSTILE_TEXTS
from tests.records.recorded import trained
from tsnb.cli import commands
from tsnb.text.words import html_table, text_table

BAD = "".join(HOSTILE_TEXTS).replace("\ud800", "").replace("\0", "")
WORDS: dict[str, list[list[str]]] = {
    "results": [["results"], ["results", "a"], ["results", "--json"], ["results", BAD]],
    "list": [["list"]],
    "logs": [["logs", "a"], ["logs", BAD]],
    "skill": [["skill"]],
    "mcp": [["mcp", BAD]],
    "doctor": [["doctor"]],
    "devices": [["devices"]],
    "mps": [["mps", "status"]],
    "serve": [["serve", f"no_such:{BAD}", "--name", "x"]],
    "sweep": [["sweep", f"no_such:{BAD}"]],
    "duel": [
        ["duel", f"no_such:{BAD}", f"{BAD}.py", "--metric", "loss"],
        ["duel", f"{BAD}.py", "x:y", "--metric", BAD],
    ],
    "stalls": [["stalls", f"no_such:{BAD}"]],
    "plan": [["plan", f"no_such:{BAD}"]],
    "set": [["set", BAD, "lr=1"]],
    "extend": [["extend", BAD, "1"]],
    "record": [["record", BAD, "file.jsonl"]],
    "balance": [["balance", "together", BAD], ["balance", BAD]],
    **{
        name: [[name, BAD]]
        for name in ("status", "top", "rounds", "stop", "pause", "resume", "clone", "interrupt", "tune")
    },
}
"""How each command is called."""


def steers(text: str) -> str:
    """Return what a terminal would take as an order, beside colours."""
    left = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return "".join(c for c in left if not c.isprintable() and c not in "\n\t")


@pytest.fixture
def hostile_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose records have such a text in every field that takes one, as somebody could send them."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    trained("a", [1.0, 2.0], params={"augment": BAD, BAD: [BAD, {BAD: BAD}]}, origin=BAD, sweep="s")
    trained("b", [1.0], params={"augment": "none"}, state="failed", sweep="s")
    with sqlite3.connect(tmp_path / ".tsnb" / "records.sqlite") as connection:
        for column in (
            "failure",
            "source",
            "origin",
            "sweep",
            "host",
            "boot",
            "namespace",
            "git",
            "waits_for",
        ):
            connection.execute(f"UPDATE runs SET {column} = ?", (BAD,))
        told = json.dumps({"stream": BAD, BAD: 1}), json.dumps([BAD]), json.dumps({BAD: BAD})
        connection.execute("UPDATE runs SET report = ?, tags = ?, versions = ?", told)
        connection.execute("UPDATE runs SET state = ? WHERE name = 'b'", (BAD,))
        connection.execute("UPDATE metrics SET name = name || ?", (BAD,))
    return tmp_path


def test_every_command_prints_hostile_texts_harmless(hostile_project: Path) -> None:
    """In each of the project's fields, and among what is typed."""
    parser = commands._parser()
    (below,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert set(below.choices) == set(WORDS), "say here how a new command is called"
    for command, calls in WORDS.items():
        for words in calls:
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                try:
                    commands.main(words)
                except SystemExit:
                    pass
            assert not steers(said.getvalue()), (
                command,
                ascii(steers(said.getvalue())),
                ascii(said.getvalue())[-500:],
            )


def test_a_hostile_name_of_a_trial_is_one_error(
    hostile_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of a run are called as the trial: the records file is refused by name, and that steers no terminal."""
    with sqlite3.connect(hostile_project / ".tsnb" / "records.sqlite") as connection:
        connection.execute("UPDATE runs SET name = ? WHERE name = 'b'", (BAD,))
    for words in (["results"], ["logs", "b"]):
        assert commands.main(words) == 1
        said = capsys.readouterr()
        assert "a value that tsnb never writes" in said.err
        assert not steers(said.out + said.err)


def test_every_printed_table_is_harmless(hostile_project: Path) -> None:
    """All of them are made by two functions; objects whose sentences hold texts from elsewhere clean them whole."""
    for text in (*text_table([["a", BAD], [BAD, "b"]]), html_table([["a", BAD], [BAD, "b"]])):
        assert not steers(text), ascii(text)
    for shown in (tsnb.results(), tsnb.results(all_runs=True), tsnb.trials, tsnb.records.history()):
        assert not steers(repr(shown)) and not steers(str(shown)), ascii(repr(shown))


def scored(augment: str) -> float:
    """A trial: logs a loss, and fails with what it was given."""
    tsnb.log(loss=float(len(augment)))
    if augment == "none":
        return 1.0
    raise RuntimeError(augment)


def test_what_a_sweep_prints_of_hostile_values_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Values of a grid, and the errors of its trials: in the sweep, its trials, their results and all that is said."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    sweep = tsnb.sweep(
        scored, name="hostile", grid={"augment": [BAD, "none"]}, seed=0, prune=tsnb.search.race("loss")
    )
    sweep.wait(120)
    shown: list[object] = [sweep, tsnb.trials, *sweep.values(), tsnb.results()]
    shown += [getattr(sweep, "race", None), getattr(sweep, "best", None)]
    for one in shown:
        made = [repr(one), str(one)]
        if hasattr(one, "_repr_html_") and type(one).__module__.startswith(
            "tsnb."
        ):  # pandas makes its own page
            made.append(one._repr_html_())
        for text in made:
            assert not steers(text), ascii(text)
    said = capfd.readouterr()
    assert "RuntimeError" in said.out + said.err
    assert not steers(said.out + said.err), ascii(said.out + said.err)
