"""All commands of the command line: their arguments, how each ends, and those about this machine."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tsnb.cli import streams
from tsnb.cli.measuring import add_plan, add_stalls
from tsnb.cli.trials import add_duel_command, add_logs, add_results, add_sweep_command
from tsnb.config import PACINGS, way_out
from tsnb.errors import ExtraMissing, StreamNotNamed, TsnbError
from tsnb.experiments.verbs import VERBS
from tsnb.growing.selection import add_rounds
from tsnb.native.endings import raise_again
from tsnb.options import COMMAND, StreamOptions, TuneOptions, add_options
from tsnb.steering import CommandParser, add_verbs, answer
from tsnb.text.masks import masked_text
from tsnb.text.printable import harmless

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a file takes no more of the output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `tsnb`; by default those of this process.

    Returns:
        The exit status: 0 done, 1 the command failed (the message says why and what to do), 2 bad usage, 141 nobody
        reads the output any more (`tsnb plan ... | head`).
    """
    shown = sys.unraisablehook
    sys.unraisablehook = partial(_unraisable, os.getpid(), shown)
    try:
        with _all_letters():
            try:
                parser = _parser()
                options = parser.parse_args(arguments)
                if options.command is None:
                    parser.print_help()
                    return 0
                return _guarded(options, options.run)
            finally:
                if sys.stdout is not None:  # closed by `>&-`
                    sys.stdout.flush()  # what is left in the buffer fails here, and not at the interpreter's end
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if stream is not None and _unread(stream)]
        if not unread:
            raise
        _drop(*unread)
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _drop(sys.stdout)
        print(f"tsnb cannot write its output: {error.strerror}. {way_out(error)}", file=sys.stderr)
        return 1
    finally:
        sys.unraisablehook = shown


def _drop(*streams: Any) -> None:
    """Have nothing more come out of streams that take nothing: the interpreter flushes each once more."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _all_letters() -> Iterator[None]:
    """Have stdout show a letter that it does not have by its number, as stderr does, and not fail with it."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.errors != "strict":
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if not stream.closed:
            stream.reconfigure(errors="strict")


def _unraisable(process: int, shown: Callable[[Any], Any], dropped: Any) -> None:
    """Raise an interrupt again that Python is about to drop, as it came while something was freed; show all else.

    An import ends with that (a command spends its first seconds so), and so does a collection of garbage.
    """
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        shown(dropped)
    elif os.getpid() == process:  # a forked child is not who was meant
        raise_again(KeyboardInterrupt, _unraisable.__code__)


def _unread(stream: Any) -> bool:
    """Tell whether a stream is a pipe whose other end has gone."""
    asked = select.poll()
    asked.register(stream.fileno(), 0)
    return any(told & select.POLLERR for _, told in asked.poll(0))


def _guarded(options: argparse.Namespace, run: Callable[[argparse.Namespace], int | None]) -> int:
    """Run a command; return its exit status."""
    try:
        return run(options) or 0
    except StreamNotNamed as error:
        told = f"{error.said} Name one, for example tsnb {options.command} {error.example}."
        return _failed(options, told if error.said and "name" in options else str(error))
    except (TsnbError, ValueError, TypeError) as error:
        return _failed(options, str(error))
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        return _failed(options, f"{error.strerror}. {way_out(error)}")
    except KeyboardInterrupt:
        return 130


def _failed(options: argparse.Namespace, said: str) -> int:
    """Say why a command failed; return its exit status."""
    said = masked_text(said)
    if getattr(options, "json", False):
        print(json.dumps({"error": said}))
    print(harmless(f"tsnb {options.command}: {said}"), file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tsnb", description="Parallel training trials on one shared data loader."
    )
    version = sys.modules[
        "tsnb"
    ].__version__  # not `import tsnb`: its lazy names reach up to the notebook layer
    parser.add_argument("--version", action="version", version=f"tsnb {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    serve = commands.add_parser("serve", help="serve a loader until Ctrl-C or `tsnb stop NAME`")
    serve.add_argument("loader", metavar="MODULE:NAME", help="loader, or function that returns one")
    serve.add_argument("--name", required=True, help="name of the stream, which trials attach to")
    add_options(serve, StreamOptions, "command")
    serve.set_defaults(run=partial(streams.serve_loader, guarded=_guarded))
    examined = commands.add_parser("doctor", help="check what tsnb needs on this machine")
    examined.set_defaults(run=_doctor)
    listed = commands.add_parser("list", help="list the running streams")
    listed.add_argument("--json", action="store_true", help="print the list as JSON")
    listed.set_defaults(run=streams.list_streams)
    for name, run, text in (
        ("status", streams.show_status, "show a stream and its trials"),
        ("top", streams.show_top, "watch a stream live: trials, waits and the machine"),
        ("rounds", streams.give_rounds, "train on growing data in rounds of selected samples"),
        ("stop", streams.stop_named, VERBS["stop"].command),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("name", nargs="?", metavar="NAME", help="stream (default: the only one)")
        command.set_defaults(run=run)
    add_verbs(commands)
    balancing = commands.add_parser("balance", help="change how trials share compute")
    balancing.add_argument("name", nargs="?", metavar="NAME", help="stream (default: the only one)")
    balancing.add_argument("pacing", metavar="|".join(PACINGS), help="how trials share compute")
    balancing.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="TRIAL=2",
        help="with weights: a trial's share of the compute (repeatable)",
    )
    balancing.set_defaults(run=streams.set_balance)
    for name in ("status", "stop", "rounds"):
        commands.choices[name].add_argument("--json", action="store_true", help="print the answer as JSON")
    tuning = commands.add_parser("tune", help="show or change a loader's number of workers while trials run")
    tuning.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="stream (default: the only one, which is shown unless --workers is given)",
    )
    add_options(tuning, TuneOptions, COMMAND)
    tuning.set_defaults(workers=None)  # left out, and no name: only looked at
    tuning.add_argument("--json", action="store_true", help="print the answer as JSON")
    tuning.set_defaults(run=streams.tune_workers)
    add_rounds(commands.choices["rounds"])
    commands.choices["top"].add_argument("--once", action="store_true", help="print once and exit")
    listing = commands.add_parser("devices", help="show GPUs, cores and the processes that use them")
    listing.set_defaults(run=_devices)
    _add_mps(commands)
    add_stalls(commands)
    add_plan(commands)
    add_sweep_command(commands)
    add_duel_command(commands)
    add_results(commands)
    add_logs(commands)
    recording = commands.add_parser(
        "record", help="write a stream's time series to a file until it ends or Ctrl-C"
    )
    recording.add_argument("name", metavar="NAME", help="stream")
    recording.add_argument("file", metavar="FILE", help="new file, for example run.jsonl")
    recording.set_defaults(run=streams.record_readings)
    tools = commands.add_parser(
        "mcp", help="serve these commands as tools to a coding agent (Model Context Protocol)"
    )
    tools.set_defaults(run=partial(_mcp, parser))
    skill = commands.add_parser("skill", help="print the path of the skill file for coding agents")
    skill.set_defaults(run=_skill)
    return parser


def _add_mps(commands: Any) -> None:
    mps = commands.add_parser("mps", help="run trials on one GPU at the same time through NVIDIA's MPS")
    mps.add_argument(
        "verb",
        choices=("start", "stop", "status"),
        help="start or stop the MPS daemon, or show the trials attached to it",
    )
    mps.add_argument("--json", action="store_true", help="print the answer as JSON")
    mps.set_defaults(run=_mps)


def _mcp(parser: argparse.ArgumentParser, _options: argparse.Namespace) -> None:
    if find_spec("mcp") is None or find_spec("mcp_types") is None:  # version 1 has no mcp_types
        raise ExtraMissing(
            "tsnb mcp needs the package mcp, version 2 or newer. Install it: pip install 'tsnb[mcp]'"
        )
    from tsnb.cli.mcp_server import serve_tools

    serve_tools(parser)


def _skill(_options: argparse.Namespace) -> None:
    print(Path(__file__).parents[1] / "skill" / "SKILL.md")


def _doctor(_options: argparse.Namespace) -> int:
    from tsnb.checks.examining import doctor

    found = doctor()
    print(found)
    return 0 if found.works else 1


def _devices(_options: argparse.Namespace) -> None:
    from tsnb.checks.devices import devices

    print(devices())


def _mps(options: argparse.Namespace) -> None:
    from tsnb.checks.devices import name_of_process, our_processes
    from tsnb.device_sharing import mps

    if options.verb == "status":
        found = mps.status(our_processes())
        answer(options, found.to_dict(), str(found))
    elif options.verb == "stop":
        ours = our_processes()
        ran = mps.stop(lambda pid: name_of_process(pid, ours))
        answer(
            options, {"stopped": ran}, "stopped your MPS daemon" if ran else "you have no running MPS daemon"
        )
    else:
        daemon, new = mps.start()
        text = f"your MPS daemon is {'' if new else 'already '}running (pid {daemon.pid})"
        answer(
            options,
            {"started": new, "pid": daemon.pid},
            f"{text}; new trials attach to it, and `tsnb mps status` lists them",
        )
