"""Commands as tools: what a program is told of them, and the words that a call of one stands for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.house.pages import SKILL
from tsnb.cli.commands import _parser, main
from tsnb.cli.tools import TOOLS, tools_of, words_of

PARSER = _parser()
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("list", {}, "list --json"),
    ("status", {"name": "digits"}, "status --json -- digits"),
    ("results", {"sort": "loss", "by": "lr", "mode": "min"}, "results --json --sort=loss --by=lr --mode=min"),
    ("logs", {"name": "cnn", "run": 2}, "logs --json --run=2 -- cnn"),
    (
        "sweep",
        {"function": "m:train", "grid": ["lr=0.1,0.2", "epochs=3"], "at_once": 2, "plan": True},
        "sweep --json --grid=lr=0.1,0.2 --grid=epochs=3 --at-once=2 --plan -- m:train",
    ),
    ("set", {"target": "digits/cnn", "changes": ["lr=0.3", "wd=0"]}, "set --json -- digits/cnn lr=0.3 wd=0"),
    ("pause", {"target": "digits", "release": False}, "pause --json -- digits"),
    ("clone", {"target": "digits/cnn", "name": "hot", "at": 1}, "clone --json --name=hot --at=1 -- digits/cnn"),
    ("extend", {"target": "digits/cnn", "epochs": 2}, "extend --json --epochs=2 -- digits/cnn"),
    ("stop", {"name": "--json"}, "stop --json -- --json"),
    ("stalls", {"loader": "m:make", "seconds": 0.5, "cold": True}, "stalls --json --seconds=0.5 --cold -- m:make"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "line"), CALLS, ids=[name for name, *_ in CALLS])
def test_a_call_is_a_line_that_the_command_reads(name: str, arguments: dict[str, Any], line: str) -> None:
    """It fits the tool's schema, no value is taken for an option, and the command's parser has all of them."""
    schema = {tool.name: tool.schema for tool in tools_of(PARSER)}[name]
    jsonschema.validate(arguments, schema)
    words = words_of(PARSER, name, arguments)
    assert words == line.split()
    read = PARSER.parse_args(words)
    assert read.command == name
    assert read.json
    if name == "set":
        assert (read.target, read.changes) == ("digits/cnn", ["lr=0.3", "wd=0"])
    if name == "stop":
        assert read.name == "--json", "a text that looks like an option is none"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("sett", {}, "No tool is named 'sett'. Did you mean 'set'?"),
        ("wat", {}, "No tool is named 'wat'. Did you mean 'wait'?"),
        ("stop", {}, "stop needs the argument 'name' (NAME: STREAM or STREAM/TRIAL)."),
        ("pause", {}, "pause needs the argument 'target'"),
        ("resume", {}, "resume needs the argument 'target'"),
        ("set", {"targt": "x"}, "set has no argument 'targt'. Did you mean 'target'? Arguments: target, changes"),
        ("list", {"json": True}, "list has no argument 'json'. Arguments: none"),
        ("set", {}, "set needs the argument 'target' (STREAM/TRIAL: trial of a stream)."),
        ("extend", {"target": "a/b"}, "extend needs the argument 'epochs'"),
        ("extend", {"target": "a/b", "epochs": 0}, "a whole number of epochs, 1 or more"),
        ("sweep", {"function": "m:f", "plan": "yes"}, "plan must be true or false, got 'yes'."),
        ("sweep", {"function": "m:f", "mode": "best"}, "invalid choice: 'best'"),
        ("set", {"target": {"a": 1}}, "target must be a string or a number, got {'a': 1}."),
        ("status", {"name": ["a", "b"]}, "unrecognized arguments: b"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(name: str, arguments: dict[str, Any], said: str) -> None:
    """Before a process is started for it."""
    with pytest.raises(ValueError, match=re.escape(said)):
        words_of(PARSER, name, arguments)


def test_tools_have_the_texts_and_all_options_of_their_commands() -> None:
    """A program is told what a person reads, and each schema is one."""
    tools = {tool.name: tool for tool in tools_of(PARSER)}
    assert [*tools] == [*TOOLS]
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.schema)
        assert all(told["description"] for told in tool.schema["properties"].values())
    assert tools["logs"].description == "Print the end of a trial's output."
    assert tools["stop"].schema["required"] == ["name"], "left out, it would stop the only stream"
    for name in ("stop", "pause", "resume"):
        assert "STREAM/TRIAL" in tools[name].description
        assert " STREAM " in tools[name].description
    sweep = tools["sweep"].schema["properties"]
    assert {"function", "grid", "space", "halving", "at_once", "stream", "seed"} <= sweep.keys()
    assert sweep["mode"]["enum"] == ["min", "max"]
    assert sweep["keep"]["description"] == "50%: with --halving: share of trials to keep (default: 50%)"
    assert tools["sweep"].schema["required"] == ["function"]
    assert [name for name, effect in TOOLS.items() if effect.ends] == ["stop"]


def test_the_page_for_agents_lists_each_tool() -> None:
    """In the first column of its table, once."""
    page = SKILL.parents[2] / "docs" / "agents.md"
    table = page.read_text(encoding="utf-8").partition("| tool |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall("`(\\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted([*TOOLS, "wait"])


def test_the_skill_file_is_one_and_lies_where_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Agents find it by its front matter. Its commands run as those of the pages do (tests/house/test_pages.py)."""
    assert main(["skill"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == SKILL
    _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(front)
    assert told["name"] == path.parents[1].name == "tsnb"
    assert 100 < len(told["description"]) < 1024
    named = {name for name in TOOLS if f"tsnb {name} " in body}
    assert named == {*TOOLS}, "each main job is there"
    assert "`wait`" in body
