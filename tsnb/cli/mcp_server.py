"""`tsnb mcp`: the commands as tools of a Model Context Protocol server, on stdin and stdout.

Each call runs the command itself in a process of its own, which ends with this one: so it acts as the user who started
the server, by the command line's own doors, and a changed module of the user's is read as it is now. `sweep` and `duel`
are answered before their command has ended, when its trials start. `wait` answers what it prints from then on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tsnb.cli.tools import WAIT, tools_of, words_of
from tsnb.errors import TsnbError

__all__ = ["serve_tools"]

SESSIONS = Path("/run/user")
"""Where the system keeps a directory for each user who is logged in: what XDG_RUNTIME_DIR names."""

ENTRY = (
    "import os, sys; sys.path[:] = [place for place in sys.path if place]; "
    "from tsnb.native.ties import tie_to_parent; tie_to_parent(int(sys.argv.pop(1))); sys.argv[0] = 'tsnb'; "
    "from tsnb.cli import main; sys.exit(main())"
)
"""A command's code: it never outlives the server, and nothing in the working directory stands for what it imports."""
STOP_S = 10.0
"""How long sweeps may take to stop their trials when the program has gone."""
FOLLOWED = ("sweep", "duel")
"""Commands that last: a call is answered when they have begun, and `wait` answers the rest."""
WAIT_S, LONGEST_S = 30.0, 3600.0
"""How long `wait` waits unless it is told, and at most."""
ABOUT = (
    "tsnb runs PyTorch training trials in parallel on one shared data loader, a stream. Each tool runs "
    "the tsnb command of this name. It takes the command's options, with underscores (at_once for --at-once), and "
    "returns the command's JSON. A trial is named STREAM/TRIAL. Settings are strings, for example lr=0.3. sweep "
    "and duel return as soon as their trials start. Then use wait for the trials or seeds that end and for the "
    "verdict of a duel, status for those that run, and results for all. When this server ends, it stops the sweeps and "
    "duels that it started."
)


def serve_tools(parser: argparse.ArgumentParser) -> None:
    """Serve until the program closes stdin.

    Args:
        parser: The command line's, which the tools are made from.
    """
    if sys.stdin.isatty():
        print(
            "tsnb mcp is a server for programs and takes no commands from a terminal. To end it, press Ctrl-C.",
            file=sys.stderr,
        )
    _restore_session()
    anyio.run(_Server(parser).run)


def _restore_session() -> None:
    """Look for streams where the user's terminals do: many programs start a server with few of their variables."""
    if not {"XDG_RUNTIME_DIR", "TSNB_RUNTIME_DIR"} & os.environ.keys():
        place = SESSIONS / str(os.geteuid())
        if (place / "tsnb").is_dir():
            os.environ["XDG_RUNTIME_DIR"] = str(place)


class _Server:
    """Answers calls.

    Args:
        parser: The command line's.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._sweeps: _Sweeps

    async def run(self) -> None:
        """Serve one program, and stop the sweeps when it has gone."""
        server: Server[Any] = Server(
            "tsnb",
            version=sys.modules["tsnb"].__version__,
            instructions=ABOUT,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
            self._sweeps = _Sweeps(group)
            await server.run(incoming, outgoing, server.create_initialization_options())
            await self._sweeps.stop()
            group.cancel_scope.cancel()

    async def _list(self, _context: Any, _asked: Any) -> types.ListToolsResult:
        told = [
            types.Tool(
                name=tool.name,
                description=_described(tool.name, tool.description),
                input_schema=tool.schema,
                annotations=types.ToolAnnotations(
                    read_only_hint=tool.effect.reads, destructive_hint=tool.effect.ends
                ),
            )
            for tool in tools_of(self._parser)
        ]
        seconds = {
            "type": "number",
            "description": f"seconds to wait, from 0 to {LONGEST_S:.0f} (default: {WAIT_S:.0f})",
        }
        wait = types.Tool(
            name=WAIT,
            description="Wait until a trial of a sweep, or a seed of a duel, that this server started ends. Returns "
            "the new lines of `tsnb sweep --json` and `tsnb duel --json` in `ended`, each with its `sweep` or "
            "`duel`, a line with `exit_status` at the end of each, and the names of running ones in `running`.",
            input_schema={
                "type": "object",
                "properties": {"seconds": seconds},
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(read_only_hint=True),
        )
        return types.ListToolsResult(tools=[*told, wait])

    async def _call(self, _context: Any, asked: Any) -> types.CallToolResult:
        try:
            text, wrong = await self._answer(asked.name, asked.arguments or {}), False
        except (TsnbError, ValueError) as error:
            text, wrong = str(error), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=wrong)

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the JSON that a call answers.

        Raises:
            TsnbError: The command failed; says why.
            ValueError: The arguments are not the tool's.
        """
        if name == WAIT:
            return json.dumps(await self._sweeps.news(_seconds(arguments)))
        words = words_of(self._parser, name, arguments)
        if name in FOLLOWED:
            return await self._sweeps.start(words)
        ran = await anyio.run_process(_process(words), stdin=subprocess.DEVNULL, check=False)
        return _told(
            words, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace"), ran.returncode
        )


class _Sweeps:
    """The sweeps and duels that this server has started, and what they have printed and nobody has been told.

    Args:
        group: Where they are followed.
    """

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._running: dict[Process, str] = {}
        self._kinds: dict[Process, str] = {}
        self._lines: list[dict[str, Any]] = []
        self._changed = anyio.Event()

    async def start(self, words: Sequence[str]) -> str:
        """Start one; return its first line, when its trials start.

        Raises:
            TsnbError: It does not start.
        """
        process = await anyio.open_process(
            _process(words), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )  # what its trials print is in their logs
        lines = _Lines(process)
        try:
            first = await lines.next()
        except BaseException:
            process.kill()
            raise
        if first is None or "error" in first:
            status = await process.wait()
            return _told(words, json.dumps(first) if first else "", "", status or 1)
        self._running[process] = str(first.get("sweep") or first.get("duel"))
        self._kinds[process] = words[0]
        self._group.start_soon(self._follow, process, lines)
        return json.dumps(first)

    async def news(self, seconds: float) -> dict[str, Any]:
        """Return what sweeps have printed since the last time, as soon as there is something."""
        with anyio.move_on_after(seconds):
            while self._running and not self._lines:
                await self._changed.wait()
        told, self._lines = self._lines, []
        return {"ended": told, "running": list(self._running.values())}

    async def stop(self) -> None:
        """Have all of them stop their trials and end."""
        for process in self._running:
            process.send_signal(signal.SIGINT)
        with anyio.move_on_after(STOP_S):
            while self._running:
                await self._changed.wait()
        for process in self._running:
            process.kill()

    async def _follow(self, process: Process, lines: _Lines) -> None:
        name, kind = self._running[process], self._kinds.pop(process)
        while (line := await lines.next()) is not None:
            self._tell({kind: name, **line})
        status = await process.wait()
        del self._running[process]
        self._tell({kind: name, "exit_status": status})

    def _tell(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class _Lines:
    """The lines of JSON that a process prints."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._from = process.stdout
        self._rest = b""

    async def next(self) -> dict[str, Any] | None:
        """Return the next one; None: there is none any more."""
        while True:
            while b"\n" not in self._rest:
                try:
                    self._rest += await self._from.receive()
                except anyio.EndOfStream:
                    return None
            line, _, self._rest = self._rest.partition(b"\n")
            with suppress(ValueError):  # what the user's code writes to the descriptor itself
                return dict(json.loads(line))


def _described(name: str, text: str) -> str:
    """Return a tool's description: the command's help, but for what a call does otherwise."""
    waits = {"sweep": " and wait for them", "duel": " and wait for the verdict"}.get(name)
    return text if waits is None else text.replace(waits, " and answer when they start")


def _seconds(arguments: Mapping[str, Any]) -> float:
    seconds = arguments.get("seconds", WAIT_S)
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST_S:
        raise ValueError(f"seconds={seconds!r} is invalid. Pass a number from 0 to {LONGEST_S:.0f}.")
    return float(seconds)


def _process(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", ENTRY, str(os.getpid()), *words]


def _told(words: Sequence[str], printed: str, said: str, status: int) -> str:
    """Return what a command has printed.

    Raises:
        TsnbError: It has failed, and said why, or has not even done that.
    """
    if status == 0:
        return printed.strip()
    failed = ""
    with suppress(ValueError, TypeError, KeyError, IndexError):
        failed = str(json.loads(printed.strip().splitlines()[-1])["error"])
    if not failed:
        last = said.strip().splitlines()
        failed = (
            last[-1]
            if last
            else f"tsnb {words[0]} ended with status {status}. Run it in a terminal to see why."
        )
    raise TsnbError(failed)
