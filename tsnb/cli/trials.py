"""The commands about many trials: `tsnb sweep`, `tsnb duel`, `tsnb results` (what trials have logged), `tsnb logs`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tsnb.cli.arguments import aside, code_at, named, numbers
from tsnb.duels.grammar import add_duel, asked
from tsnb.errors import TsnbError
from tsnb.option_kinds import COUNT, TWO_OR_MORE, read_devices
from tsnb.options import read_change
from tsnb.steering import FORKS_S, LOOK_S, answer, run_sweep
from tsnb.sweeps.space_grammar import add_sweep, read_rule
from tsnb.text.printable import is_terminal, uncoloured
from tsnb.text.words import strict, text_table

if TYPE_CHECKING:
    from tsnb.duels.result import Duel
    from tsnb.records.tables import Table

__all__ = ["add_duel_command", "add_logs", "add_results", "add_sweep_command"]


def add_sweep_command(commands: Any) -> None:
    """Add `tsnb sweep`."""
    swept = commands.add_parser(
        "sweep", help="run a function once per parameter combination, as trials, and wait for them"
    )
    swept.add_argument(
        "function",
        metavar="MODULE:NAME",
        help="training function that takes the parameters and reads from tsnb.attach()",
    )
    add_sweep(swept)
    swept.add_argument(
        "--name", metavar="NAME", help="first part of the trials' names (default: the function's name)"
    )
    swept.add_argument(
        "--stream", metavar="STREAM", help="stream that tsnb.attach() reads (default: the only one)"
    )
    swept.add_argument("--seed", type=int, metavar="S", help="seed for the draws and for every trial")
    swept.add_argument(
        "--threads",
        type=numbers,
        metavar="N[,N]",
        help="torch threads per trial (default: 1); with --plan, several to pick the fastest from",
    )
    swept.add_argument(
        "--device",
        type=read_devices,
        metavar="D[,D]",
        help="the only device that each trial sees; with --plan, several to pick one from",
    )
    swept.add_argument("--json", action="store_true", help="print one line of JSON when a trial ends")
    swept.set_defaults(run=_sweep)


def add_duel_command(commands: Any) -> None:
    """Add `tsnb duel`."""
    compared = commands.add_parser(
        "duel",
        help="compare two trainings over seeds and wait for the verdict",
        epilog="exit status: 0 with a verdict, also if it is undecided; 1 if the two could not be compared, for "
        "example without a stream or if one of them failed with every seed; 2 for wrong usage",
    )
    for arm in ("incumbent", "candidate"):
        compared.add_argument(
            arm,
            metavar=arm.upper(),
            help=f"training of the {arm}: SCRIPT.py or MODULE:NAME, which reads from tsnb.attach()",
        )
    add_duel(compared)
    compared.add_argument(
        "--at-once",
        type=TWO_OR_MORE.typed,
        metavar="N",
        help="number of trials that run at once (default: two per core)",
    )
    compared.add_argument("--name", metavar="NAME", help="name of the duel (default: those of the trainings)")
    compared.add_argument(
        "--stream", metavar="STREAM", help="stream that tsnb.attach() reads (default: the only one)"
    )
    compared.add_argument(
        "--threads",
        type=COUNT.typed,
        metavar="N",
        help="torch threads per trial (default: 1)",
    )
    compared.add_argument("--device", metavar="D", help="the only device that each trial sees")
    compared.add_argument(
        "--json", action="store_true", help="print one line of JSON when a seed ends, and one of the verdict"
    )
    compared.set_defaults(run=_duel)


def add_results(commands: Any) -> None:
    """Add `tsnb results`."""
    told = commands.add_parser("results", help="print the last logged numbers of the project's trials")
    told.add_argument("name", nargs="?", metavar="NAME", help="trial or sweep (default: all)")
    told.add_argument(
        "--sort",
        metavar="METRIC",
        help="sort by METRIC: finished trials first, then the others, each best first",
    )
    told.add_argument(
        "--by",
        metavar="PARAMETER",
        help="with --sort: compare the values of PARAMETER, one row per value",
    )
    told.add_argument(
        "--mode", choices=("min", "max"), help="with --by: whether a low (min) or high (max) METRIC is better"
    )
    told.add_argument(
        "--target",
        action="append",
        metavar="METRIC=VALUE",
        help="also print the cost of each trial when it reached VALUE (repeatable)",
    )
    told.add_argument("--recording", metavar="FILE", help="with --target: file that `tsnb record` wrote")
    told.add_argument(
        "--vcpu-price", type=float, metavar="P", help="with --target: price of one core for an hour"
    )
    told.add_argument("--kwh-price", type=float, metavar="P", help="with --target: price of a kilowatt hour")
    told.add_argument("--json", action="store_true", help="print a list of JSON objects")
    told.set_defaults(run=_results)


def add_logs(commands: Any) -> None:
    """Add `tsnb logs`."""
    told = commands.add_parser("logs", help="print the end of a trial's output")
    told.add_argument("name", metavar="NAME", help="trial")
    told.add_argument(
        "--run", type=COUNT.typed, dest="number", metavar="N", help="number of the run (default: the last)"
    )
    told.add_argument("--json", action="store_true", help="print the answer as JSON")
    told.set_defaults(run=_logs)


def _logs(options: argparse.Namespace) -> None:
    from tsnb.records.selection import log_of

    run, text = log_of(options.name, options.number)
    if text is None:
        raise TsnbError(f"The log of trial {run.name!r} (run {run.number}) no longer exists.")
    facts = {"trial": run.name, "run": run.number, "state": run.state, "log": uncoloured([text])}
    shown = text if is_terminal(sys.stdout) else uncoloured([text])
    answer(options, facts, shown.rstrip("\n"))


def _sweep(options: argparse.Namespace) -> int:
    with aside(options):
        found = named(options.function)
    given = {
        name: value
        for name in ("n", "at_once", "rotate", "name", "seed", "deadline")
        if (value := getattr(options, name)) is not None
    }
    if options.stream is not None:
        given["stream"] = options.stream
    if options.plan:
        given["plan"] = True
    if options.threads is not None:
        given["threads"] = options.threads if len(options.threads) > 1 else options.threads[0]
    if options.device is not None:
        given["device"] = options.device
    if options.choose:
        given["choose"] = dict(options.choose)
    rule = read_rule(options)
    return run_sweep(found, dict(options.grid), dict(options.space), given, rule, json_lines=options.json)


def _duel(options: argparse.Namespace) -> int:
    """Run a duel to its verdict; return 1 where the two arms could not be compared."""
    with aside(options):
        arms = [code_at(options.incumbent), code_at(options.candidate)]
    names = [Path(target.rpartition(":")[2]).stem for target in (options.incumbent, options.candidate)]
    given = {
        name: value
        for name in ("stream", "threads", "device")
        if (value := getattr(options, name)) is not None
    }
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        from tsnb.duels.starting import duel_code, title_of  # kernels: the other commands answer without them
        from tsnb.kernels.hub import the_hub
        from tsnb.kernels.processes.forking import await_server

        the_hub().call(await_server(the_hub(), FORKS_S))
        began = duel_code(
            title_of(options.name, *names), arms, options=given, says_verdict=False, at_once=options.at_once,
            **asked(options),
        )  # fmt: skip
        try:
            _follow(began, out, json_lines=options.json)
        except KeyboardInterrupt:
            began.stop()
            raise
        finally:
            verdict = {"duel": began.name, **began.verdict.to_dict(), "notes": began.notes}
            print(json.dumps(strict(verdict)) if options.json else began, file=out, flush=True)
    return int(not began.verdict.compared)


def _follow(duel: Duel, out: TextIO, *, json_lines: bool) -> None:
    """Wait for a duel; print a line for each seed that ends. With JSON lines, begin with one for the duel."""
    from tsnb.duels.result import seed_line

    rules, number, over = duel.verdict.rules, 0, False
    if json_lines:
        facts = {"duel": duel.name, "stream": duel.stream, "level": rules.level, "seeds": rules.most}
        print(json.dumps({**facts, "resumed": duel.resumed, "notes": duel.notes}), file=out, flush=True)
    while not over:
        over = duel.over  # looked at first: what ends meanwhile is told in the next round
        verdict = duel.verdict
        rows = verdict.rows
        for at in range(number, len(rows)):
            line = json.dumps(strict(rows[at])) if json_lines else f"[{duel.name}] {seed_line(verdict, at)}"
            print(line, file=out, flush=True)
        number = len(rows)
        time.sleep(0.0 if over else LOOK_S)
    duel.wait()


def _results(options: argparse.Namespace) -> None:
    if options.by is not None or options.mode is not None:
        columns, rows = _compared(options)
    else:
        from tsnb.reports.costed import costed_table

        columns, rows = costed_table(
            options.name,
            sort=options.sort,
            target=dict(map(read_change, options.target)) if options.target else None,
            vcpu_price=options.vcpu_price,
            kwh_price=options.kwh_price,
            recording=options.recording,
        )
    if options.json:
        print(json.dumps(strict([dict(zip(columns, row, strict=True)) for row in rows]), default=str))
    else:
        print("\n".join(text_table([columns, *([str(cell) for cell in row] for row in rows)])))


def _compared(options: argparse.Namespace) -> Table:
    """Return what `--by` shows: a row for each value of a parameter.

    Raises:
        ValueError: The options do not go together.
    """
    from tsnb.records.tables import compared

    if options.by is None or options.sort is None:
        raise ValueError(
            "--mode needs --by, and --by needs --sort. Type for example: --sort loss --by lr --mode min"
        )
    if options.target:
        raise ValueError("--by does not work with --target. Leave one of them out.")
    return compared(options.sort, options.by, options.mode, options.name, False, None)
