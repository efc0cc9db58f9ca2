"""Trials that attach for the first time in the seconds in which their stream comes back."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hosting.test_moments import GATED, LONG_S, Held
from tests.waiting import wait_until
from tsnb.discovery import registry
from tsnb.experiments import Trial, run_cell
from tsnb.hosting import serve_loader
from tsnb.options import StreamOptions

pytestmark = pytest.mark.system

KEEPING = """
import tsnb, torch
net = torch.nn.Linear(2, 1)
where = tsnb.checkpoint(net=net, history=3)
seen = []
for epoch in tsnb.epochs(2):
    for batch in tsnb.attach():
        seen += batch[:, 0].tolist()
"""

VALIDATING = """
import os, tsnb
for batch in tsnb.attach(fold=(0, 4)):
    pass
open(gate + ".validating", "w").close()
while not os.path.exists(gate + ".away"):
    __import__("time").sleep(0.01)
open(gate + ".attaching", "w").close()
held_out = [i for batch in tsnb.attach(fold=(0, 4), held_out=True) for i in batch[:, 0].tolist()]
"""

SIMPLE = """
import tsnb
seen = [i for batch in tsnb.attach() for i in batch[:, 0].tolist()]
"""


def test_every_kind_of_trial_waits_for_a_stream_that_comes_back(
    notebook: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited for another one, one that is extended, a clone from checkpoint, and a validation that begins."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    gate = tmp_path / "gate"
    held = Held(notebook.run(GATED), page, gate)
    kernel = serve_loader(held.loader("second making"), "s", StreamOptions(restart="on-crash"), outlet=page)
    one = run_cell("one", KEEPING, {}, outlet=page, seed=3)
    validating = run_cell("validating", VALIDATING, {"gate": str(gate)}, outlet=page)
    one.wait(LONG_S)
    wait_until(Path(f"{gate}.validating").exists, LONG_S)
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    held.reached()
    assert registry.entries() == []
    begun: dict[str, Trial] = {}
    try:
        begun["after"] = run_cell("after", SIMPLE, {}, outlet=page, after="one")
        begun["clone"] = one.clone("clone", at=2)
        begun["extended"] = one.extend(epochs=1)
        Path(f"{gate}.away").touch()
        wait_until(Path(f"{gate}.attaching").exists, LONG_S)
        wait_until(lambda: {trial.state for trial in begun.values()} == {"running"}, LONG_S)
        time.sleep(0.5)
        assert {trial.state for trial in begun.values()} == {"running"}
    finally:
        held.open()
    whole = list(range(16))
    for trial in (*begun.values(), validating):
        assert trial.wait(LONG_S).state == "done"
    assert begun["after"]["seen"] == whole
    assert begun["clone"]["seen"][-16:] == whole
    assert begun["extended"]["seen"][-16:] == whole
    assert len(validating["held_out"]) == 4
