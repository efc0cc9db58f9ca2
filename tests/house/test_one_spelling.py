"""Each option has one spelling, and one meaning, in Python, on the command line and in magics."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from docs.make_reference import commands
from tests.house.test_public_surface import DESCRIBED, named, section, text_of
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS

PARSERS = {
    **{f"tsnb {name}": parser for name, parser in commands().items()},
    **{f"%tensorsocket {name}": parser for name, parser in TENSORSOCKET.items()},
    **{f"%trials {name}": parser for name, parser in TRIALS.items()},
    "%%trial": TRIAL,
    "%%sweep": SWEEP,
}
OTHER_SPELLING = {
    "stall_timeout_s": "--stall-timeout",  # a time is typed with its unit: 30s
    "settle_s": "--settle",
    "budget_s": "--budget",
    "weights": "--weight",  # one of them each time
    "new": "--name",
    "with_": "--with",  # a keyword of Python's
    "check": "--no-check",
    "number": "--run",  # of the command line's own: run is what a command does
}
"""Options that are typed otherwise than Python has them, with the reason."""
ONLY_TYPED = {
    **dict.fromkeys(("json", "once", "replace", "side", "setup", "other", "off"), "of the surface itself"),
    **dict.fromkeys(("halving", "race", "population"), "rules that Python has as functions of tsnb.search"),
    **dict.fromkeys(("interval", "worse"), "triggers that Python has as functions of tsnb.data"),
    **dict.fromkeys(("against", "incumbent", "candidate"), "an arm of a duel, which Python is given itself"),
    **dict.fromkeys(("disk", "cached", "gpus", "gpu_price"), "questions that Python asks of the result"),
    **dict.fromkeys(("execute", "stop", "number"), "a method of what Python returns"),
    "weight": "one of weights=",
}


def options() -> Iterator[tuple[str, argparse.Action, str]]:
    """Give each option with its surface and long spelling."""
    for surface, parser in PARSERS.items():
        for action in parser._actions:
            if action.option_strings and action.dest != "help":
                yield surface, action, next(o for o in action.option_strings if o.startswith("--"))


def parameters() -> dict[str, set[str]]:
    """Return the parameters of all public functions and methods, with who has them."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in DESCRIBED:
        if inspect.isfunction(one := named(path)):
            for name in inspect.signature(one).parameters:
                found[name].add(path)
    return found


def test_an_option_is_spelt_as_the_parameter() -> None:
    """`--late-join` is `late_join=`; what is spelt otherwise has a reason, and what is only typed too."""
    known, wrong = parameters(), []
    for surface, action, spelt in options():
        expected = OTHER_SPELLING.get(action.dest, "--" + action.dest.replace("_", "-"))
        if spelt != expected:
            wrong.append(f"{surface}: {spelt} is {action.dest}")
        if action.dest not in known and action.dest not in {*ONLY_TYPED, "new"}:
            wrong.append(f"{surface}: no public function has {action.dest}")
    assert not wrong


MEANINGS = {
    "all_runs": "runs of each name",
    "choose": "from which the plan picks",
    "engine": "[Rr]ay",
    "error": "[Cc]hance",
    "fn": "[Ff]unction",
    "guard": "check",
    "high": "Largest",
    "kwh_price": "kilowatt hour",
    "loader": "[Ll]oader",
    "losses": "number per row",
    "low": "Smallest",
    "metric": "[Ll]ogged n|[Nn]umber that|Name of the number",
    "name": "[Nn]ame of|[Pp]refix|first part|Name shown",
    "options": "Options of `tsnb.run`",
    "reconnect_s": "[Ss]econds",
    "recording": "[Rr]ecord",
    "tag": "[Tt]ag",
    "values": "values|[Nn]umbers by name|numbers by name|Values",
    "vcpu_price": "(core|vCPU) for an hour",
    "what": "Word|table",
    "after": "[Tt]rial.* done",
    "at_once": "at the same time|at once",
    "batch_size": "[Ss]amples per batch",
    "by": "compare|shares? a colour|colour",
    "cold": "disk",
    "cores": "cores",
    "device": "GPU|[Dd]evice",
    "epochs": "epochs",
    "every": "[Ss]teps? |new samples",
    "inputs": "inputs",
    "memory": "[Mm]emory|file cache",
    "min_delta": "[Ss]mallest difference",
    "mode": "min",
    "n": "[Nn]umber of",
    "pacing": "compute|together",
    "path": "[Pp]ath|[Ff]ile",
    "run": "[Nn]umber of",
    "samples": "[Ss]amples",
    "seconds": "[Ss]econds",
    "seed": "[Ss]eed|reproducible|fixes",
    "settle_s": "[Ss]econds",
    "target": "[Nn]umbers? to reach|cost of each trial when it reached|had cost when",
    "then": "[Ff]unction",
    "threads": "[Tt]orch threads",
    "timeout_s": "[Ss]econds to wait",
    "trial": "[Tt]rial|trains",
    "n_trials": "[Nn]umber of trials",
    "stream": "[Ss]tream",
    "weights": "[Ww]eight|share of the compute",
    "workers": "loader processes|loader workers|[Nn]umber of processes",
}
"""What a name says wherever it stands: a part of each explanation of it."""


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_one_name_has_one_meaning(name: str) -> None:
    """In every docstring and every help line that has it."""
    said = {
        f"{surface} {spelt}": action.help or "" for surface, action, spelt in options() if action.dest == name
    }
    for path in parameters()[name]:
        entry = re.search(
            rf"^    \**{name}: (.*(?:\n {{5,}}.*)*)", section(text_of(path), "Args"), re.MULTILINE
        )
        said[path] = " ".join(entry.group(1).split()) if entry else ""
    assert said
    assert not {place: text for place, text in said.items() if not re.search(MEANINGS[name], text)}


def test_every_name_that_two_functions_share_has_its_meaning_here() -> None:
    """A new one is written down there, or gets another name."""
    shared = {name for name, paths in parameters().items() if len({p.rpartition(".")[2] for p in paths}) > 1}
    assert not shared - MEANINGS.keys() - {"self"}
