"""A secret among a trial's parameters reaches the trial, and nothing that is kept or shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tsnb
from tests.waiting import wait_until
from tsnb.errors import LoaderFailed, TrialFailed
from tsnb.experiments.functions import plan_function
from tsnb.experiments.overview.board import launch, trials
from tsnb.notebook.trial_logs import TrialLogs
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
    shown += [tsnb.records.export(tmp_path / "runs.csv").read_text()]
    record = Run.find(first.name)
    assert record is not None
    shown += [str(record.read()), str(record.params)]
    kept = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for secret in (KEY, KEY[::-1], WORD, TOKEN, ENV["MY_TOKEN"]):
        assert not [text for text in shown if secret in text]
        assert not [path for path, content in kept.items() if secret.encode() in content or secret in path]
    assert any(path.endswith("records.sqlite") for path in kept)


ADDRESS = "postgresql://me:pa55w0rd.Xy@db.host/x"
HEADER = "Authorization: Bearer 4f9aK2mXq7Lz81TT"
SAYS_TOO_MUCH = f"""
import dataclasses, enum, functools, logging, argparse
@dataclasses.dataclass
class Login:
    user: str
    password: str
class Keys(enum.Enum):
    MINE = "{KEY}"
def train(login, namespace, key, call):
    print("connecting to {ADDRESS}")
    try:
        raise ConnectionError("{HEADER}")
    except ConnectionError:
        logging.exception("first")
    raise ConnectionError("cannot reach {ADDRESS} with {HEADER}")
given = dict(
    login=Login("me", "{WORD}"), namespace=argparse.Namespace(password="{WORD}"), key=Keys.MINE,
    call=functools.partial(print, password="{WORD}"),
)
"""


def test_a_secret_in_an_error_leaves_by_no_way(
    notebook: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address and a header in what is printed, logged and raised; objects that hold a password as parameters."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    notebook.variables["tsnb"] = tsnb
    variables = notebook.run(SAYS_TOO_MUCH)
    trial = launch(plan_function(variables["train"], variables["given"]), page)
    with pytest.raises(TrialFailed, match="cannot reach") as raised:
        trial.wait(120)
    source = TrialLogs()
    shown = [
        page.text,
        repr(trial),
        trial.logs(),
        str(trial.params),
        str(raised.value),
        repr(trials),
        str(tsnb.results()),
    ]
    shown += [str(source.facts(trial.name)), str(source.params()), str(tsnb.results())]
    kept = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for secret in (KEY, WORD, "pa55w0rd.Xy", "4f9aK2mXq7Lz81TT"):
        assert not [text for text in shown if secret in text]
        assert not [path for path, content in kept.items() if secret.encode() in content]
    assert "[masked]" in str(source.facts(trial.name))


def test_a_secret_in_a_loaders_error_leaves_by_no_way(tmp_path: Path) -> None:
    """Neither by the consumer's error nor by a reading, a recording, or the line of the status."""

    def make(epoch: int) -> Any:
        yield torch.zeros(2)
        raise ConnectionError(f"cannot reach {ADDRESS} with {HEADER}")

    with tsnb.serve(make, name="leaks") as producer:
        recorder = tsnb.streams.record("leaks", tmp_path / "leaks.jsonl")
        with (
            tsnb.attach("a", stream="leaks") as batches,
            pytest.raises(LoaderFailed, match="cannot reach") as raised,
        ):
            list(batches)
        reading = producer.status()
        wait_until(lambda: recorder.readings > 3 and "cannot reach" in (tmp_path / "leaks.jsonl").read_text())
        recorder.stop()
    shown = [
        str(raised.value),
        raised.value.summary,
        raised.value.loader_traceback,
        reading.to_json(),
        str(reading),
    ]
    shown += [(tmp_path / "leaks.jsonl").read_text()]
    for secret in ("pa55w0rd.Xy", "4f9aK2mXq7Lz81TT"):
        assert not [text for text in shown if secret in text]
