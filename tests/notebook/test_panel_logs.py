"""The logs of this notebook's trials, as the panel's log pane reads them."""

from __future__ import annotations

import base64
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.waiting import wait_until as until
from tsnb.errors import TsnbError
from tsnb.experiments import trials
from tsnb.notebook import trial_logs
from tsnb.notebook.stills import Still
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.panel import Panel
from tsnb.reports import report
from tsnb.telemetry.readings import OutcomeReading
from tsnb.telemetry.watching import watch


def test_a_log_is_read_in_parts_and_a_new_run_from_its_start(shell: Any) -> None:
    """Each part goes on where the last one ended; running the cell again is another log under the same name."""
    logs = TrialLogs()
    assert logs.read("talker", "", 0, 1000) is None
    assert logs.trials() == []
    shell.run_cell_magic("trial", "talker", "for k in range(100): print('line', k)\nprint('bar', end='\\r')")
    trials["talker"].wait(60)
    first = logs.read("talker", "", 0, 100_000)
    assert first is not None
    whole = first.text + first.open
    assert [line for line in whole.splitlines() if line.startswith("line")] == [
        f"line {k}" for k in range(100)
    ]
    at = whole.index("line 50")
    part = logs.read("talker", first.run, at, 100_000)
    assert part is not None
    assert (part.start, part.text + part.open) == (at, whole[at:])
    assert logs.trials() == [("talker", "done")]

    shell.run_cell_magic("trial", "talker", "print('again')")
    until(lambda: trials["talker"].state == "done")
    again = logs.read("talker", first.run, at, 100_000)
    assert again is not None
    assert again.run != first.run
    assert again.start == 0
    assert "again\n" in again.text + again.open
    assert "line" not in again.text + again.open


def test_a_trial_without_a_stream_has_a_row_with_its_state_time_and_numbers(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, once it is sure that it attaches to none, and after its end, however it ended."""
    logs = TrialLogs()
    assert logs.beside() == []
    shell.run_cell_magic(
        "trial", "svm", "import tsnb\ntsnb.log(score=0.5, bad=float('nan'))\nraise ValueError('x')"
    )
    until(lambda: trials["svm"].state == "failed" and logs.beside())
    (row,) = logs.beside()
    assert row["name"] == "svm" and row["state"] == "failed" and row["duration_s"] > 0
    assert row["started_s"] == trials["svm"].started_s
    assert row["error"] == "ValueError: x"
    assert row["metrics"] == {"score": 0.5, "bad": "nan"}
    shell.run_cell_magic("trial", "long", "import time\nwhile True: time.sleep(0.1)")
    until(lambda: trials["long"].state == "running")
    assert [row["name"] for row in logs.beside()] == ["svm"], "it may still attach"
    monkeypatch.setattr("tsnb.notebook.trial_logs.SURE_S", 0.0)
    assert [(row["name"], row["state"]) for row in logs.beside()] == [("svm", "failed"), ("long", "running")]
    trials["long"].stop()


def test_a_trial_without_a_stream_stays_in_its_row_when_it_ends(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one stream is served, too: it moved into the rows of that stream, of which it had taken nothing."""
    for module in ("notebook.trial_logs", "experiments.running.trial_life"):
        monkeypatch.setattr(f"tsnb.{module}.SURE_S", 0.0)
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40.0)), batch_size=4), name="numbers"):
        rows = watch("numbers").view.rows
        shell.run_cell_magic("trial", "svm", "import tsnb\ntsnb.log(score=0.5)")
        trials["svm"].wait(60)
        shell.run_cell_magic("trial", "cnn", "import tsnb\nfor _ in tsnb.attach(): pass")
        trials["cnn"].wait(60)
        until(lambda: "cnn" in rows and rows["cnn"].end)
        # while it started it could have been of that stream, and had a row there
        until(lambda: [name for name, row in rows.items() if not row.unknown] == ["cnn"])
        assert [row["name"] for row in TrialLogs().beside()] == ["svm"]


def test_a_live_value_of_a_sweep_has_the_sweeps_range_where_its_code_gives_no_bounds(shell: Any) -> None:
    """The panel's slider crosses that range; a value that all trials share has none."""
    logs = TrialLogs()
    code = "import tsnb\nlr, width = tsnb.live('lr', lr), tsnb.live('width', width)"
    sweep = shell.run_cell(f"%%sweep b --grid lr=0.1,0.01,1 --grid width=8\n{code}").result
    sweep.wait(60)
    name = next(iter(sweep))
    found = logs.facts(name)
    assert found is not None and found["bounds"] == {"lr": [0.01, 1]}, found


def test_the_saved_picture_has_trials_without_a_stream_and_each_trial_once(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that attaches later moves to the stream's rows; its next run without a stream has a row of its own."""
    monkeypatch.setattr("tsnb.notebook.trial_logs.SURE_S", 0.0)
    loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=4)
    with tsnb.serve(loader, name="numbers"), tsnb.serve(loader, name="other"):
        panel = Panel("numbers")
        still = Still(panel)

        def picture() -> list[str]:
            still.news()
            until(lambda: not any(one.wanted for one in still._of.values()))
            with still._drawing:
                svg = still._left[still.mark]["image/svg+xml"]
            texts = [element for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
            return [(one.text or "") + "".join(child.tail or "" for child in one) for one in texts]

        made: list[str] = []
        row = trial_logs._row

        def counted(trial: Any) -> dict[str, Any]:
            made.append(trial.name)
            return row(trial)

        monkeypatch.setattr(trial_logs, "_row", counted)
        go = Path(os.environ["TSNB_PROJECT_DIR"]) / "go"
        code = "for _ in tsnb.attach(stream='numbers'): pass"
        wait = f"import time, tsnb\nfrom pathlib import Path\nwhile not Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        shell.run_cell_magic("trial", "late", f"{wait}{code}\ntime.sleep(1)")
        shell.run_cell_magic(
            "trial", "svm", "import tsnb\ntsnb.log(score=0.5)\nraise ValueError('no margin')"
        )
        until(lambda: trials["svm"].state == "failed" and trials["late"].state == "running")
        texts = picture()
        made.clear()
        still.news(tsnb.streams.status("numbers"))
        assert not made, "a reading that draws no picture needs no rows"
        later = replace(tsnb.streams.status("numbers"), outcome=OutcomeReading(duels="Duel d: better."))
        still.news(later)
        until(lambda: "svm" in made)  # what a stream's notebooks tell of it may come after the last end
        assert {"late", "svm", "✕ failed", "failed: ValueError: no margin", "score 0.500"} <= set(texts)
        go.touch()
        until(lambda: any(trial.name == "late" for trial in report("numbers").story.trials))
        texts = picture()
        assert "computing" in texts and texts.count("late") == 2, "its row, and its strip of time"
        trials["late"].wait(60)
        shell.run_cell_magic("trial", "late", "import tsnb\ntsnb.log(score=0.25)")
        trials["late"].wait(60)
        texts = picture()
        assert texts.count("late") == 3 and "score 0.250" in texts
        panel.close()


def test_a_trial_that_has_ended_runs_again_under_its_name(shell: Any) -> None:
    """With the code and variables that it had; one that runs, or that is not here, is refused with the reason."""
    logs = TrialLogs()
    shell.user_ns["word"] = "first"
    shell.run_cell_magic("trial", "talker", "print('said', word)")
    until(lambda: trials["talker"].state == "done")
    first = trials["talker"].number  # other tests of this project may have run one of that name
    shell.user_ns["word"] = "second"
    facts = logs.facts("talker")
    assert facts is not None and facts["cannot"]["rerun"] == ""
    thread = threading.Thread(target=logs.steer, args=("rerun", "talker", {}))  # as the panel does
    thread.start()
    thread.join(60)
    until(lambda: trials["talker"].number == first + 1 and trials["talker"].state == "done")
    assert "said first" in trials["talker"].logs()
    shell.run_cell_magic("trial", "long", "import time\nwhile True: time.sleep(0.1)")
    until(lambda: trials["long"].state == "running")
    with pytest.raises(TsnbError, match=r"long is running\. Run it again after its end"):
        logs.steer("rerun", "long", {})
    with pytest.raises(TsnbError, match=r"nobody was started by another notebook\. Run it again there"):
        logs.steer("rerun", "nobody", {})
    trials["long"].stop()


def test_a_trial_of_a_stream_that_has_gone_is_not_run_again_from_the_panel(shell: Any) -> None:
    """It would fail at once: the reason says which stream to start, and once that is there it runs."""
    logs = TrialLogs()
    batches = [torch.zeros(2)] * 3
    with tsnb.serve(batches, name="went"):
        shell.run_cell_magic("trial", "reader --stream went", "import tsnb\nfor x in tsnb.attach(): pass")
        trials["reader"].wait(60)
        facts = logs.facts("reader")
        assert facts is not None and facts["cannot"]["rerun"] == ""
    facts = logs.facts("reader")
    assert facts is not None and "stream 'went', which is no longer served" in facts["cannot"]["rerun"]
    with pytest.raises(TsnbError, match="--name went"):
        logs.steer("rerun", "reader", {})
    assert trials["reader"].state == "done"
    with tsnb.serve(batches, name="went"):
        logs.steer("rerun", "reader", {})
        trials["reader"].wait(60)


def test_a_drawer_knows_parameters_live_values_and_artifacts_and_sets_a_value(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was given, what is read now, each change with what was before; a value that may not be is refused."""
    monkeypatch.chdir(tmp_path)  # trials begin where the notebook is
    logs = TrialLogs()
    assert logs.facts("setter") is None
    with pytest.raises(TsnbError, match="was started by another notebook"):
        logs.steer("set", "setter", {"value": "lr", "text": "0.05"})
    code = """
import os, time, tsnb
open("net.txt", "w").write("weights")
tsnb.log_artifact("net.txt")
for k in range(6):
    open(f"curve-{k}.png", "wb").write(bytes([k]) * 10)
    os.utime(f"curve-{k}.png", (1000 + k, 1000 + k))
    tsnb.log_artifact(f"curve-{k}.png")
open("huge.png", "wb").write(bytes(400_000))
tsnb.log_artifact("huge.png")
lr = tsnb.live("lr", 0.1, bounds=(0, 1)); how = tsnb.live("how", "sum", choices=("sum", "mean"))
while float(lr) > 0.01: time.sleep(0.01)
"""
    shell.run_cell_magic("trial", "setter", code)

    def facts() -> dict[str, Any]:
        found = logs.facts("setter")
        assert found is not None
        json.dumps(found)
        return found

    until(lambda: len(facts()["live"]) == 2 and facts()["artifacts"])
    assert facts()["live"] == [["lr", "0.1"], ["how", "sum"]]
    assert facts()["bounds"] == {"lr": [0.0, 1.0]}
    assert facts()["cannot"]["clone"] == ""
    assert facts()["cannot"]["extend"].startswith("is running and can be extended once it is done")
    with pytest.raises(TsnbError, match="has not taken a batch of a stream"):
        logs.steer("clone", "setter", {"changes": [["lr", "0.2"]]})
    with pytest.raises(TsnbError, match=r"elsewhere was started by another notebook\. Clone it there"):
        logs.steer("clone", "elsewhere", {})
    for unread in (5, [["lr"]]):  # a page of another version
        with pytest.raises((TypeError, ValueError)):
            logs.steer("clone", "setter", {"changes": unread})
    assert (logs.params(), logs.verdicts()) == ({"setter": []}, {})
    until(lambda: len(facts()["artifacts"]) == 8)
    assert ["net.txt", 7] in facts()["artifacts"] and ["huge.png", 400_000] in facts()["artifacts"]
    figures = facts()["figures"]
    assert len(figures) == 4 and all(name.startswith("curve-") for name, *_ in figures), (
        "small ones, the newest"
    )
    assert len({mark for _, mark, _ in figures}) == 4
    for name, _, address in figures:
        kind, _, text = address.partition(",")
        assert kind == "data:image/png;base64" and base64.b64decode(text) == bytes([int(name[6])]) * 10
    assert (Path(facts()["where"]) / "net.txt").read_text() == "weights"
    logs.steer("set", "setter", {"value": "how", "text": "mean"})
    until(lambda: facts()["live"][1] == ["how", "mean"])
    for name, text, why in (
        ("lr", "2", "from 0 to 1"),
        ("lr", "much", "a number"),
        ("rate", "1", "reads no live hyperparameter"),
    ):
        with pytest.raises((ValueError, TsnbError), match=why):
            logs.steer("set", "setter", {"value": name, "text": text})
    logs.steer("set", "setter", {"value": "lr", "text": "0.005"})
    trials["setter"].wait(60)
    told = [(change["name"], change["before"], change["value"]) for change in facts()["changes"]]
    assert ("lr", "", "0.005") in told
    assert [text for _, text in logs.changes()["setter"]] == ["how mean", "lr 0.005"]
    assert [round(time_s) for time_s, _ in logs.changes()["setter"]] == [
        round(change["time_s"]) for change in facts()["changes"]
    ]
    with pytest.raises(TsnbError, match="is done"):
        logs.steer("set", "setter", {"value": "lr", "text": "0.1"})
    assert facts()["cannot"]["clone"] == (
        "is done, and only a running trial can be cloned. To run its code from the top: "
        "tsnb.trials['setter'].rerun(name=...). It has no checkpoint from the start of an epoch. To write some, put "
        "tsnb.checkpoint(net=net, optimizer=optimizer) before its loop over tsnb.epochs(n)"
    )
    with pytest.raises(TsnbError, match="has no checkpoint"):
        logs.steer("extend", "setter", {"epochs": 2})
