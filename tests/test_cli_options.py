"""Every option of the commands that measure reaches what measures: one that were ignored fails here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from tsnb.cli.commands import _parser, main

BATCHES = [[1, 2]]
TRIAL = f"{__name__}:train"


def train(width: int = 1) -> None:
    """A trial that is never run."""


def trunk(batch: list[int]) -> list[int]:
    """A frozen part that is never run."""
    return batch


def make() -> list[list[int]]:
    """A loader that is never read."""
    return BATCHES


MEASURED: dict[tuple[str, ...], dict[str, Any]] = {
    ("--epochs", "2"): {"epochs": 2.0},
    ("--samples", "50"): {"samples": 50},
    ("--memory", "12GiB"): {"memory": "12GiB"},
    ("--seconds", "0.5"): {"seconds": 0.5},
}
"""What of `plan` is asked of the loader and the trials."""

OPTIONS: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {
    "plan": {
        **MEASURED,
        ("--threads", "1,2"): {"threads": (1, 2)},
        ("--cold",): {"cold": True},
        ("--device", "cuda:0,cuda:1"): {"device": ["cuda:0", "cuda:1"]},
        ("--choose", "limit=None,2GiB"): {"choose": {"limit": [None, "2GiB"]}},
        ("--cores", "1.5"): {"cores": 1.5},
        ("--then", f"{__name__}:trunk"): {"then": trunk},
    },
    "stalls": {
        ("--train-step", TRIAL): {"train_step": train},
        ("--then", f"{__name__}:trunk"): {"then": trunk},
        ("--n-trials", "7"): {"n_trials": 7},
        ("--seconds", "0.5"): {"seconds": 0.5},
        ("--threads", "2"): {"threads": 2},
        ("--cold",): {"cold": True},
        ("--workers", "3"): {"workers": 3},
        ("--disk", "100MB/s"): {"disk": "100MB/s"},
        ("--memory", "8GiB", "--disk", "1MB/s"): {"memory": "8GiB", "disk": "1MB/s"},
        ("--cached", "50%", "--cold"): {"cached": 0.5, "cold": True},
        ("--cores", "1.5"): {"cores": 1.5},
        ("--gpus", "2", "--train-step", TRIAL): {"gpus": 2, "train_step": train},
        ("--vcpu-price", "0.5", "--train-step", TRIAL): {"vcpu_price": 0.5, "train_step": train},
        ("--gpu-price", "3", "--train-step", TRIAL): {"gpu_price": 3.0, "train_step": train},
    },
    "tune": {
        ("--workers", "3"): {"workers": 3},
        ("--workers", "auto", "--memory", "2GiB"): {"memory": 2 << 30},
        ("--settle", "7"): {"settle_s": 7.0},
    },
}
"""By command, what is typed, and what is asked of it then."""

SHOWN = {"--help", "--json", "--execute", "--trial"}
"""Options with a test of their own below."""


class Asked(ValueError):
    """Ends a command where it would measure."""


class Found:
    """What a command prints, runs, or asks on.

    Args:
        heard: What it has been asked, by keyword.
    """

    def __init__(self, heard: dict[str, Any] | None = None) -> None:
        self.ran = False
        self._heard = {} if heard is None else heard

    def run(self) -> None:
        self.ran = True

    def sharing(self, _trials: int, *, cores: float) -> Found:
        self._heard["cores"] = cores
        return self

    def sizing(self, **sizes: Any) -> Found:
        self._heard.update(sizes)
        return self

    def to_dict(self, _numbers: object = None, *, cores: float | None = None) -> dict[str, Any]:
        return {"as": "json"} if cores is None else {"as": "json", "cores": cores}

    def __repr__(self) -> str:
        return "as text"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last command has asked, by keyword; measuring begins nowhere."""
    heard: dict[str, Any] = {}

    def listening(*names: str, answer: Callable[[], Any]) -> Callable[..., Any]:
        def listen(*given: Any, **keywords: Any) -> Any:
            heard.update(zip(names, given, strict=False))
            heard.update(keywords)
            return answer()

        return listen

    def stop() -> None:
        raise Asked("seen")

    monkeypatch.setattr("tsnb.planning.plan", listening("trials", answer=stop))
    monkeypatch.setattr(
        "tsnb.stalling.stalls", listening("loader", "train_step", answer=lambda: Found(heard))
    )
    monkeypatch.setattr("tsnb.stalling.what_if", listening(answer=lambda: lambda found: found))
    monkeypatch.setattr("tsnb.telemetry.tuning.tune", listening("name", answer=stop))
    return heard


def command(name: str) -> argparse.ArgumentParser:
    (commands,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return cast("argparse.ArgumentParser", commands.choices[name])


def words_of(name: str) -> list[str]:
    if name == "tune":
        return [name, "a-stream"]
    return [name, f"{__name__}:make", *(["--trial", TRIAL, "width=4"] if name != "stalls" else [])]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_has_a_test(name: str) -> None:
    """One that is added has none yet."""
    flags = {flag for action in command(name)._actions for flag in action.option_strings if flag[:2] == "--"}
    assert flags - SHOWN == {word for words in OPTIONS[name] for word in words if word[:2] == "--"}


@pytest.mark.parametrize(
    ("name", "typed", "wanted"),
    [(name, typed, wanted) for name, some in OPTIONS.items() for typed, wanted in some.items()],
)
def test_what_is_typed_is_asked(
    name: str, typed: tuple[str, ...], wanted: dict[str, Any], asked: dict[str, Any]
) -> None:
    """And is something other than what is asked without it."""
    ends = 0 if name == "stalls" else 1
    assert main(words_of(name)) == ends
    without = dict(asked)
    asked.clear()
    assert main([*words_of(name), *typed]) == ends
    assert {key: asked[key] for key in wanted} == wanted
    assert all(key not in without or without[key] != value for key, value in wanted.items())
    same = without.keys() - wanted.keys() - {"loader"}
    assert {key: asked[key] for key in same} == {key: without[key] for key in same}
    if name == "plan":
        assert asked["trials"] == [(train, {"width": 4})] and asked["loader"] == BATCHES


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_it_is_run_and_printed_as_asked(
    *,
    runs: bool,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--execute` runs it, and without it nothing is run; `--json` is for programs."""
    found = Found()
    monkeypatch.setattr("tsnb.planning.plan", lambda *_, **__: found)
    words = [*words_of("plan"), *(["--execute"] if runs else []), *(["--json"] if as_json else [])]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert found.ran is runs
    assert (json.loads(printed) == {"as": "json"}) if as_json else printed == "as text\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_stalls_are_printed_as_asked(
    *, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, or for programs; what would be otherwise stands beside it, on as many cores as were asked for."""
    monkeypatch.setattr("tsnb.stalling.stalls", lambda *_, **__: Found())
    monkeypatch.setattr("tsnb.stalling.what_if", lambda **_: lambda found: found)
    words = [*words_of("stalls"), "--workers", "3", "--cores", "2"]
    assert main([*words, *(["--json"] if as_json else [])]) == 0
    printed = capsys.readouterr().out
    if as_json:
        mine = {"as": "json", "cores": 2.0}
        assert json.loads(printed) == {**mine, "what_if": {"asked": {"workers": 3}, **mine}}
    else:
        assert printed == "as text\n\nas text\n\nWith --workers 3:\n\nas text\n"
