"""A secret among a trial's parameters reaches the trial, and nothing that is kept or shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsnb
from tsnb.errors import TrialFailed
from tsnb.experiments.board import launch, trials
from tsnb.experiments.functions import plan_function
from tsnb.records.run import Run

pytestmark = pytest.mark.system

KEY = "sk-test-4f9aK2mXq7Lz81"
WORD = "tr0ub4dor&3"
TOKEN = "ghp_" + "a1B2c3D4e5" * 4

TRAIN = f"""
import hashlib, os
def train(api_key, login, lr):
    tsnb.log(loss=lr)
    print("connecting with", api_key)
    print("token", os.environ["MY_TOKEN"])
    if lr < 0:
        raise ConnectionError(f"refused: {{login}}")
    headers = dict(authorization_token="{TOKEN}")
    return [hashlib.sha256(text.encode()).hexdigest() for text in (api_key, login["password"], os.environ["MY_TOKEN"])]
"""
ENV = {"MY_TOKEN": "env-5ecret-5ecret"}


def digests(*texts: str) -> list[str]:
    import hashlib

    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def test_a_secret_reaches_the_trial_and_nothing_that_is_kept_or_shown(
    notebook: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name, records, log, cell, table, results, tracebacks; a rerun has it again, and a sweep too."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    notebook.variables["tsnb"] = tsnb
    train = notebook.run(TRAIN)["train"]
    given = {"api_key": KEY, "login": {"user": "me", "password": WORD}}
    first = launch(plan_function(train, {**given, "lr": 0.5}, env=ENV), page)
    want = digests(KEY, WORD, ENV["MY_TOKEN"])
    assert first.result(60) == want
    assert first.name == "train-lr0.5"
    assert first.params == {"api_key": "[masked]", "login": {"user": "me", "password": "[masked]"}, "lr": 0.5}
    second = first.rerun(lr=0.25)
    assert second.result(60) == want
    failed = launch(plan_function(train, {**given, "lr": -1.0}, env=ENV), page)
    with pytest.raises(TrialFailed, match="ConnectionError") as raised:
        failed.wait(120)
    sweep = tsnb.sweep(train, grid={"api_key": [KEY, KEY[::-1]]}, login=given["login"], lr=1.0, env=ENV)
    assert {trial.result(60)[0] for trial in sweep.wait(120).values()} == set(digests(KEY, KEY[::-1]))
    assert list(sweep.params.values()) == [{"api_key": "[masked]"}] * 2
    assert all("connecting with [masked]" in trial.logs() for trial in (first, second, failed))

    shown = [
        page.text,
        repr(first),
        first.logs(),
        failed.logs(),
        trials._repr_html_(),
        repr(trials),
        str(raised.value),
    ]
    shown += [
        str(tsnb.results()),
        repr(sweep),
        sweep._repr_html_(),
        str(sweep.results()),
        repr(first.life.plan),
    ]
    shown += [tsnb.export(tmp_path / "runs.csv").read_text()]
    record = Run.find(first.name)
    assert record is not None
    shown += [str(record.read()), str(record.params)]
    kept = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for secret in (KEY, KEY[::-1], WORD, TOKEN, ENV["MY_TOKEN"]):
        assert not [text for text in shown if secret in text]
        assert not [path for path, content in kept.items() if secret.encode() in content or secret in path]
    assert any(path.endswith("records.sqlite") for path in kept)
