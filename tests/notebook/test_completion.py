"""What the Tab key offers behind our magics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

from tsnb.discovery import registry
from tsnb.experiments import trials
from tsnb.notebook.grammar import TENSORSOCKET, options_of


class Loader:
    batch_size = 4

    def __iter__(self) -> Any:
        return iter(())


def offered(shell: Any, line: str) -> list[str]:
    with provisionalcompleter():
        found = list(shell.Completer.completions(line, len(line)))
    return [c.text for c in found]


@pytest.fixture
def named(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a shell with two loaders, a served stream and a trial, by name only."""
    shell.push({"train": Loader(), "validate": Loader(), "count": 3, "names": ["a"], "_hidden": Loader()})
    entry = registry.Entry("mnist", 1, "x", 0.0, "a test")
    monkeypatch.setattr(registry, "entries", lambda: [entry])
    ended, nobody = SimpleNamespace(readings=lambda: ["one"]), SimpleNamespace(readings=list)
    monkeypatch.setattr("tsnb.notebook.completion.watched", lambda: {"ended": ended, "never-served": nobody})
    monkeypatch.setitem(trials._trials, "cnn", None)
    yield shell
    trials._trials.clear()


EXPECTED = [
    ("%tensorsocket ", list(TENSORSOCKET)),
    ("%tensorsocket sta", ["start", "status"]),
    ("%tensorsocket start ", ["train", "validate"]),
    ("%tensorsocket start va", ["validate"]),
    ("%tensorsocket start train --w", ["--window", "--workers"]),
    ("%tensorsocket start train --name m --", sorted(options_of(TENSORSOCKET["start"]))),
    ("%%tensorsocket ", ["start"]),
    ("%%tensorsocket start --late", ["--late-join"]),
    ("%tensorsocket start train --name m --restart ", ["on-crash"]),
    ("%tensorsocket re", ["restart", "reload"]),
    ("%tensorsocket stop ", ["mnist"]),
    ("%tensorsocket restart ", ["mnist"]),
    ("%tensorsocket reload m", ["mnist"]),
    ("%tensorsocket dashboard m", ["mnist"]),
    ("%tensorsocket dashboard mnist --", ["--side"]),
    ("%tensorsocket report ", ["mnist", "ended"]),
    ("%tensorsocket record ", ["mnist"]),
    ("%tensorsocket record mnist f.jsonl --", ["--stop"]),
    ("%%trial ", ["cnn"]),
    ("%%trial cnn --b", ["--batch-size"]),
    ("%%trial cnn --stream ", ["mnist"]),
    ("%%trial next --after ", ["cnn"]),
    ("%%trial next --re", ["--restart"]),
    ("%%trial next --log-to ", ["tensorboard", "mlflow", "trackio", "wandb"]),
    ("%trials ", ["list", "stop", "wait", "logs", "follow", "rerun"]),
    ("%trials rerun ", ["cnn"]),
    ("%trials logs ", ["cnn"]),
]


@pytest.mark.parametrize(("line", "words"), EXPECTED, ids=[line for line, _ in EXPECTED])
def test_tab_offers_what_may_stand_there(named: Any, line: str, words: list[str]) -> None:
    """Subcommands, loaders (not other variables), streams, trials, options."""
    assert sorted(set(offered(named, line)) & set(words)) == sorted(words)
    assert not {"count", "names", "_hidden"} & set(offered(named, line))
