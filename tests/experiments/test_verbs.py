"""The table of verbs and the methods are one: what a surface takes for a verb, the method of that name takes too."""

from __future__ import annotations

import inspect

import pytest

from tsnb.experiments.trial import Trial
from tsnb.experiments.verbs import VERBS
from tsnb.sweeps.sweep import Sweep

NOT_ASKED = {"rerun": {"repeat_changes"}}
"""What only a method takes: the panel and the magic ask it in words of their own."""


def taken(method: object) -> set[str]:
    """Return the arguments of a method; `changes` stands for all settings."""
    parameters = list(inspect.signature(method).parameters.values())[1:]  # type: ignore[arg-type]
    return {"changes" if one.kind is inspect.Parameter.VAR_KEYWORD else one.name for one in parameters}


@pytest.mark.parametrize("name", [name for name in VERBS if name != "release"])
def test_a_trials_method_takes_what_the_table_says(name: str) -> None:
    """An argument that is added to one of them only fails here. Releasing is a way of pausing."""
    verb = VERBS[name]
    assert {one.flag.lstrip("-") for one in verb.arguments} == taken(getattr(Trial, name)) - NOT_ASKED.get(
        name, set()
    )
    if verb.acts_on == "all":
        assert taken(getattr(Sweep, name)) == taken(getattr(Trial, name))
    assert (getattr(Trial, name).__doc__ or "").strip(), "what it does, for `help`"
