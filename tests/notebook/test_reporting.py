"""Reports, recordings and side panels by magics; what a cell is left with in a real kernel."""

from __future__ import annotations

import json
import os
import queue
import sys
import time
import types
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from jupyter_client.manager import KernelManager

import tsnb
from tests.notebook.test_magics import LOADER, run
from tests.panel.streams import three_models
from tests.telemetry.watches import forget_watches
from tests.waiting import wait_until as until
from tsnb.errors import TsnbError
from tsnb.experiments import trials
from tsnb.notebook.report_cells import recorders
from tsnb.notebook.streams import stop
from tsnb.planners import timeline
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.reports import Report
from tsnb.telemetry.watching import watched

TRIAL = (
    "%%trial {name} --wait\nimport time\nfor batch in tsnb.attach():\n    time.sleep(0.05)\ntime.sleep(0.4)"
)


@pytest.mark.slow
@pytest.mark.system
def test_stop_leaves_the_report_of_the_whole_stream(
    shell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Watched from the start on, recorded meanwhile, shown at the end and afterwards; a new stream begins anew."""
    file = tmp_path / "numbers.jsonl"
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name numbers")
    assert list(watched()) == ["numbers"]
    run(shell, f"%tensorsocket record numbers {file}")
    assert "tsnb.streams.replay(" in capsys.readouterr().out
    for name in ("one", "two"):
        run(shell, TRIAL.format(name=name))
    live = run(shell, "%tensorsocket report")
    assert isinstance(live, Report)
    assert [trial.name for trial in live.story.trials] == ["one", "two"]
    run(shell, "%tensorsocket record numbers --stop")
    assert not recorders
    capsys.readouterr()
    last = run(shell, "%tensorsocket stop")
    assert "stopped 'numbers'" in capsys.readouterr().out
    assert last.story.state == "gone"
    assert [trial.batches for trial in last.story.trials] == [4, 4]
    assert not last.story.watched_late
    assert {mark.text for mark in last.story.marks} >= {"one joined", "one left", "two joined", "two left"}
    again = run(shell, "%tensorsocket report numbers")
    assert again.story == last.story
    recorded = tsnb.report(file).story
    assert [trial.name for trial in recorded.trials] == ["one", "two"]
    assert recorded.trials[0].computing_s == pytest.approx(last.story.trials[0].computing_s, abs=0.3)
    run(shell, "%tensorsocket start train --name numbers")
    assert run(shell, "%tensorsocket report numbers").story.trials == ()
    assert run(shell, "%tensorsocket stop numbers") is None, "no trial came: there is nothing to show"


@pytest.mark.system
def test_the_report_that_stop_leaves_has_the_plan_of_its_trials(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that a saved notebook keeps: as planned and in fact, as a report that is asked for has them."""
    made = Timeline("sweep", (PlannedTrial("one", (0.0, 1.0), (0.0, 60.0)),), ("numbers",), time.time())
    monkeypatch.setattr(timeline, "_newest", [lambda: made])
    run(shell, LOADER)
    run(shell, "%tensorsocket start train --name numbers")
    run(shell, TRIAL.format(name="one"))
    asked = run(shell, "%tensorsocket report")
    assert asked.story.plan == made
    assert run(shell, "%tensorsocket stop").story.plan == made


@pytest.mark.system
def test_a_stream_that_somebody_else_serves_has_its_report_when_it_is_stopped_here(shell: Any) -> None:
    """Nobody watched it in this notebook: its totals are in the last reading."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4)
    with tsnb.serve(loader, name="theirs"), tsnb.attach("mine", stream="theirs") as consumer:
        for number, _ in enumerate(consumer):
            time.sleep(0.02)
            if number == 9:
                break
        shown = run(shell, "%tensorsocket stop theirs")
    assert shown.story.trials[0].name == "mine"
    assert shown.story.trials[0].batches >= 10


def test_replay_is_a_panel_of_a_recording(tmp_path: Path) -> None:
    """All of it, without a connection; a file that holds nothing says so."""
    header = '{"tsnb":"0.1.0","recording":1,"stream":"mnist"}\n'
    file = tmp_path / "three.jsonl"
    file.write_text(header + "".join(r.to_json() + "\n" for r in three_models().run(30)), encoding="utf-8")
    panel = tsnb.streams.replay(file)
    assert panel.stream == "mnist"
    assert "resnet18-wide" in repr_of(panel)
    assert panel.make_report is None and panel.steer is None
    panel.close()
    (tmp_path / "empty.jsonl").write_text(header, encoding="utf-8")
    with pytest.raises(tsnb.errors.TsnbError, match="is empty"):
        tsnb.streams.replay(tmp_path / "empty.jsonl")


def repr_of(panel: Any) -> str:
    bundle = panel._repr_mimebundle_()
    return str((bundle[0] if isinstance(bundle, tuple) else bundle)["text/plain"])


@pytest.mark.slow
@pytest.mark.system
def test_several_streams_in_one_notebook_have_a_panel_and_a_report_each(shell: Any) -> None:
    """Each shows its own trials; without a name the message lists them."""
    run(shell, LOADER)
    for name in ("left", "right"):
        run(shell, f"%tensorsocket start train --name {name}")
    panels = {name: tsnb.dashboard(name) for name in ("left", "right")}
    run(
        shell,
        "%%trial one --stream left --wait\nimport time\nfor batch in tsnb.attach(): time.sleep(0.1)\ntime.sleep(0.6)",
    )
    assert [t.name for t in tsnb.report("left").story.trials] == ["one"]
    assert tsnb.report("right").story.trials == ()
    until(
        lambda: panels["left"].state in {"idle", "serving"} and panels["right"].state in {"idle", "serving"}
    )
    assert list(panels["left"]._tape.view.rows) == ["one"]
    assert panels["right"]._tape.view.rows == {}
    with pytest.raises(UsageError, match="Several streams are served: left, right"):
        run(shell, "%tensorsocket report")
    for name, panel in panels.items():
        run(shell, f"%tensorsocket stop {name}")
        panel.close()
    assert [t.name for t in tsnb.report("left").story.trials] == ["one"]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%tensorsocket report nobody", "No stream named 'nobody' is served"),
        ("%tensorsocket report gone.jsonl", "gone.jsonl cannot be read"),
        ("%tensorsocket record nobody f.jsonl", "No stream named 'nobody' is running"),
        ("%tensorsocket record nobody", "needs a file"),
        ("%tensorsocket record nobody --stop", "'nobody' is not recorded here. Recorded here: nothing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    shell: Any, cell: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left: no file, no watch."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        run(shell, cell)
    assert not list(tmp_path.iterdir())


def test_a_side_panel_needs_sidecar_and_says_so(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install, and what works without."""
    monkeypatch.setattr("tsnb.notebook.panels.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'tsnb\[side\]'.*Create New View for Cell Output"):
        run(shell, "%tensorsocket dashboard nobody-serves-this --side")
    tsnb.dashboard("nobody-serves-this").close()


def test_a_side_panel_shows_the_same_panel(
    shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked twice the first side panel is closed: one for each stream. The cell itself shows nothing."""
    made: list[FakeSidecar] = []
    monkeypatch.setattr("tsnb.notebook.panels.find_spec", lambda name: object())

    def make(**options: Any) -> FakeSidecar:
        made.append(FakeSidecar(options))
        return made[-1]

    monkeypatch.setitem(sys.modules, "sidecar", types.SimpleNamespace(Sidecar=make))
    for _ in range(2):
        assert run(shell, "%tensorsocket dashboard nobody-serves-this --side") is None
    assert [side.options for side in made] == [
        {"title": "tsnb nobody-serves-this", "anchor": "split-right"}
    ] * 2
    assert [side.closed for side in made] == [True, False]
    assert "tsnb panel of the stream nobody-serves-this" in capsys.readouterr().out
    tsnb.dashboard("nobody-serves-this").close()


class FakeSidecar:
    """What a panel is shown in, as far as we use it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.closed = False

    def __enter__(self) -> FakeSidecar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.mark.system
def test_the_panel_s_interrupt_button_is_ctrl_c(shell: Any) -> None:
    """The trial's cell gets KeyboardInterrupt; its kernel lives on; who is no trial of ours is not touched."""
    run(shell, "%%trial busy\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    panel = tsnb.dashboard("nobody-serves-this")
    assert panel.steer is not None
    until(lambda: "begun" in trials["busy"].logs())
    panel.steer("interrupt", "busy")
    until(lambda: trials["busy"].state == "interrupted")
    assert "KeyboardInterrupt" in trials["busy"].logs()
    with pytest.raises(tsnb.errors.TsnbError, match="busy is not running: it was interrupted"):
        panel.steer("interrupt", "busy")
    with pytest.raises(tsnb.errors.TsnbError, match=r"is not a trial of this notebook.*Stop ends its loop"):
        panel.steer("interrupt", "somebody")
    panel.close()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Start a real kernel; return what runs a cell there and gives all that it showed, also later."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "k"))
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "TSNB_PROJECT_DIR": str(tmp_path)}
    manager.start_kernel(env=env, extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def execute(code: str, listen_s: float = 0.0) -> list[dict[str, Any]]:
        cell, shown, idle_s = client.execute(code), [], None
        while idle_s is None or time.monotonic() - idle_s < listen_s:
            try:
                message = client.get_iopub_msg(timeout=0.2 if idle_s else 60)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["content"].get("execution_state") == "idle":
                idle_s = time.monotonic()
            assert message["msg_type"] != "error", message["content"]
            shown.append({"kind": message["msg_type"], **message["content"]})
        return shown

    yield execute
    manager.shutdown_kernel()
    client.stop_channels()


def pictures(shown: list[dict[str, Any]]) -> list[str]:
    return [m["data"]["image/svg+xml"] for m in shown if "image/svg+xml" in m.get("data", {})]


@pytest.mark.slow
@pytest.mark.system
def test_a_saved_notebook_keeps_its_reports(
    notebook: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The cells of report and stop hold a picture; the panel's report button leaves one under the panel's cell."""
    notebook("%load_ext tsnb")
    notebook(LOADER)
    notebook("%tensorsocket start train --name numbers")
    notebook(TRIAL.format(name="cnn"))
    shown = notebook("%tensorsocket report")
    (picture,) = pictures(shown) or [str(shown)]
    assert "<svg" in picture and "cnn" in picture
    clicked = "panel = tsnb.dashboard()\nimport threading\nthreading.Timer(0.5, panel.make_report).start()"
    assert "cnn" in pictures(notebook(clicked, listen_s=3.0))[0]
    stopped = notebook("%tensorsocket stop")
    assert "stopped 'numbers'" in "".join(m.get("text", "") for m in stopped)
    (last,) = pictures(stopped)
    assert "ended" in last
    saved = json.dumps([m["data"] for m in stopped if "data" in m])
    assert len(saved) < 60_000


@pytest.mark.slow
@pytest.mark.system
def test_another_notebook_shows_the_same_stream(notebook: Callable[..., list[dict[str, Any]]]) -> None:
    """A kernel of its own serves and trains; this process opens panel and report by the stream's name alone."""
    notebook("%load_ext tsnb")
    notebook(LOADER)
    notebook("%tensorsocket start train --name shared")
    panel = tsnb.dashboard("shared")
    notebook(TRIAL.format(name="cnn"))
    until(lambda: "cnn" in panel._tape.view.rows)
    (picture,) = pictures(notebook("%tensorsocket report"))
    assert "cnn" in picture
    here = tsnb.report("shared")
    assert here.story.batches >= 4
    refused = {
        "shared": r"belongs to another notebook or script: .* stop shared --other",
        None: r"no stream.* Running: shared .* Name",
    }
    for name, words in refused.items():
        with pytest.raises(TsnbError, match=words):
            stop(Namespace(name=name, other=False))
    assert "stopped 'shared'" in stop(Namespace(name="shared", other=True))[0]
    until(lambda: panel.state == "gone")
    panel.close()
    forget_watches()
