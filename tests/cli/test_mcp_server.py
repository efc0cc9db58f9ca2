"""`tsnb mcp` with the official client: a scripted agent works through it alone, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.system.scripts import ROOT
from tsnb.cli import mcp_server
from tsnb.cli.tools import TOOLS

LONGEST_S = 240.0
"""Until what an agent waits for is there."""
CODE = {
    "agent_data.py": """
import torch
from torch.utils.data import DataLoader, TensorDataset

def make():
    return DataLoader(TensorDataset(torch.ones(400, 2)), batch_size=4)
""",
    "agent_train.py": """
import time
import torch
import tsnb

def train(lr, epochs):
    print("this goes to the log, not to the program")
    rate = tsnb.live("lr", lr, bounds=(0.0, 1.0))
    net = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(net.weight), torch.nn.init.ones_(net.bias)
    tsnb.checkpoint(net=net)
    for _ in tsnb.epochs(epochs):
        for (batch,) in tsnb.attach():
            time.sleep(0.002)
            with torch.no_grad():
                net.bias *= 1 - 0.001 * float(rate)
            tsnb.log(loss=net.bias.item(), rate=float(rate))

def lower(gain=0.0):
    for (batch,) in tsnb.attach():
        pass
    tsnb.log(loss=torch.rand(()).item() - gain)

def much_lower():
    lower(gain=1.0)
""",
}

Call = Callable[..., Awaitable[Any]]


class ToolError(Exception):
    """A tool has answered that it failed."""


def with_tools(folder: Path, agent: Callable[[Call], Awaitable[None]]) -> None:
    """Have an agent work with the tools of a server that it starts in a folder, and end the server."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TSNB_PROJECT_DIR": str(folder)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "tsnb", "mcp"], env=environment, cwd=folder
    )

    async def run() -> None:
        async with Client(server) as client:

            async def call(name: str, /, **arguments: Any) -> Any:
                answer = await client.call_tool(name, arguments)
                (content,) = answer.content
                assert content.type == "text"
                if answer.is_error:
                    raise ToolError(content.text)
                return json.loads(content.text)

            assert [tool.name for tool in (await client.list_tools()).tools] == [*TOOLS, "wait"]
            await asyncio.wait_for(agent(call), LONGEST_S)

    with ThreadPoolExecutor(1) as apart:  # a browser's test in this process leaves its loop in this thread
        apart.submit(asyncio.run, run()).result()


@pytest.fixture
def served(tmp_path: Path) -> Any:
    """A folder with a loader that is served as "numbers", and a function that trains."""
    for name, text in CODE.items():
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tsnb", "serve", "agent_data:make", "--name", "numbers", "--seed", "1"]
    serving = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    with serving, serving.stdout:
        assert "serving 'numbers'" in serving.stdout.readline()
        yield tmp_path
        serving.terminate()


async def until(call: Call, name: str, enough: Callable[[Any], bool], /, **arguments: Any) -> Any:
    """Ask until the answer is as wanted, as an agent does."""
    while not enough(answer := await call(name, **arguments)):  # noqa: ASYNC110 (trials are other processes)
        await asyncio.sleep(0.2)
    return answer


def attached(reading: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the trials that train, by name."""
    return {c["name"]: c for c in reading["consumers"] if c["state"] != "gone"}


@pytest.mark.slow
@pytest.mark.system
def test_an_agent_sweeps_clones_the_best_and_stops_the_rest(served: Path) -> None:
    """Through the tools alone: it finds the best by its loss, clones it with another value, and stops all."""

    async def agent(call: Call) -> None:
        (stream,) = await call("list")
        assert stream["stream"] == "numbers"
        begun = await call(
            "sweep", function="agent_train:train", stream="numbers", name="lin", at_once=3,
            grid=["lr=0.01,0.1,0.5", "epochs=100000"],
        )  # fmt: skip
        names = [f"lin-lr{lr}-epochs100000" for lr in (0.01, 0.1, 0.5)]
        assert [*begun["trials"]] == names
        assert begun["trials"][names[1]] == {"lr": 0.1, "epochs": 100000}

        def trained(reading: Any) -> bool:
            there = attached(reading)
            return set(names) <= there.keys() and all(there[name]["batches"] >= 100 for name in names)

        await until(call, "status", trained, name="numbers")
        await until(call, "results", lambda rows: all(row.get("loss") for row in rows))
        best = (await call("results", sort="loss", name="lin"))[0]["name"]
        assert best == names[2], "the highest rate has the lowest loss"
        compared = await call("results", sort="loss", by="lr", mode="min")
        assert [row["lr"] for row in compared] == [0.5, 0.1, 0.01]
        assert compared[0]["best_trial"] == best
        assert "this goes to the log" in (await call("logs", name=best))["log"]

        cloned = await call("clone", target=f"numbers/{best}", name="hot", changes=["lr=0.9"])
        assert (cloned["trial"], cloned["clone"]) == (best, "hot")
        with pytest.raises(ToolError, match=r"lr=7 is invalid. Pass a number from 0 to 1"):
            await call("set", target="numbers/hot", changes=["lr=7"])
        told = await call("set", target="numbers/hot", changes=["lr=0.8"])
        assert told["live"]["lr"]["value"] == 0.8
        assert (await call("pause", target="numbers/hot"))["paused"] == ["hot"]
        assert (await call("resume", target="numbers/hot"))["resumed"] == ["hot"]
        for name in names:
            await call("stop", name=f"numbers/{name}")
        assert [*attached(await call("status", name="numbers"))] == ["hot"]
        with pytest.raises(ToolError, match="running and can be extended once it is done"):
            await call("extend", target="numbers/hot", epochs=1)
        await call("stop", name="numbers/hot")
        lines: list[dict[str, Any]] = []
        while (news := await call("wait", seconds=30))["running"] or news["ended"]:
            lines += news["ended"]
        *ends, last = lines
        assert {end["trial"]: end["state"] for end in ends} == dict.fromkeys([*names, "hot"], "stopped")
        assert last == {"sweep": "lin", "exit_status": 0}

    with_tools(served, agent)


@pytest.mark.slow
@pytest.mark.system
def test_an_agent_is_told_the_verdict_of_a_duel(served: Path) -> None:
    """The call is answered when the trials start; `wait` tells of each seed, and then the verdict."""

    async def agent(call: Call) -> None:
        begun = await call(
            "duel", incumbent="agent_train:lower", candidate="agent_train:much_lower", metric="loss",
            stream="numbers", name="change", at_once=6,
        )  # fmt: skip
        assert begun["duel"] == "change"
        lines: list[dict[str, Any]] = []
        while (news := await call("wait", seconds=60))["running"] or news["ended"]:
            lines += news["ended"]
        assert all(line["duel"] == "change" for line in lines)
        *seeds, verdict, last = lines
        assert last == {"duel": "change", "exit_status": 0}
        assert (verdict["verdict"], verdict["effect"]) == ("better", pytest.approx(-1.0))
        assert len(seeds) >= verdict["seeds"] >= 6
        with pytest.raises(ToolError, match="metric"):
            await call("duel", incumbent="agent_train:lower", candidate="agent_train:much_lower")
        with pytest.raises(ToolError, match="No stream named 'nope' is running"):
            await call("duel", incumbent="agent_train:lower", candidate="agent_train:much_lower",
                metric="loss", stream="nope")  # fmt: skip
        begun = await call("duel", incumbent="agent_train:lower", candidate="agent_train:lower",
            metric="missing", mode="min", stream="numbers", name="unlogged", at_once=2)  # fmt: skip
        while (news := await call("wait", seconds=60))["running"] or news["ended"]:
            lines += news["ended"]
        verdict, last = lines[-2:]
        assert last == {"duel": begun["duel"], "exit_status": 1}
        assert "both arms never logged 'missing'" in verdict["why"] and verdict["about"] == ""

    with_tools(served, agent)


@pytest.mark.slow
@pytest.mark.system
def test_a_sweep_ends_with_its_server_and_mistakes_are_errors_of_the_tool(served: Path) -> None:
    """The program goes while trials train: their processes end (`no_leftovers`), and the stream goes on."""

    async def agent(call: Call) -> None:
        with pytest.raises(ToolError, match="has no 'nope'"):
            await call("sweep", function="agent_train:nope", grid=["lr=1"])
        with pytest.raises(ToolError, match="No trial is named 'cnn'"):
            await call("logs", name="cnn")
        with pytest.raises(ToolError, match=r"No stream .*nobody.* is running"):
            await call("status", name="nobody")
        assert await call("wait", seconds=5) == {"ended": [], "running": []}
        stalls = await call("stalls", loader="agent_data:make", seconds=0.2)
        assert stalls["batch_size"] == 4
        await call(
            "sweep", function="agent_train:train", stream="numbers", grid=["lr=0.1,0.2", "epochs=100000"]
        )
        await until(call, "status", lambda reading: len(attached(reading)) == 2, name="numbers")
        assert (await call("wait", seconds=0))["running"] == ["train"]

    with_tools(served, agent)
    words = [sys.executable, "-m", "tsnb", "status", "numbers", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert not attached(json.loads(done.stdout))


@pytest.mark.parametrize("given", ["", "XDG_RUNTIME_DIR", "TSNB_RUNTIME_DIR"])
def test_streams_are_looked_for_where_terminals_have_them(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that starts the server without XDG_RUNTIME_DIR would find no stream. What is set, stays."""
    for name in ("XDG_RUNTIME_DIR", "TSNB_RUNTIME_DIR"):
        monkeypatch.setenv(name, "/chosen")  # so that it is put back
        if name != given:
            monkeypatch.delenv(name)
    monkeypatch.setattr(mcp_server, "SESSIONS", tmp_path)
    mcp_server._restore_session()
    assert os.environ.get("XDG_RUNTIME_DIR") == ("/chosen" if given == "XDG_RUNTIME_DIR" else None), (
        "not there"
    )
    (tmp_path / str(os.geteuid()) / "tsnb").mkdir(parents=True)
    mcp_server._restore_session()
    found = None if given == "TSNB_RUNTIME_DIR" else "/chosen" if given else str(tmp_path / str(os.geteuid()))
    assert os.environ.get("XDG_RUNTIME_DIR") == found


@pytest.mark.slow
@pytest.mark.system
def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    """As of any extra."""
    blocked = (
        "import importlib.util, sys; found = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name, package=None: None if name == 'mcp' else found(name, package); "
        "from tsnb.cli import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("Install it: pip install 'tsnb[mcp]'")
