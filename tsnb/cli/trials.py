"""The commands about many trials: `tsnb sweep`, and `tsnb results`, which tells what trials have logged."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tsnb.cli.arguments import aside, named, numbers
from tsnb.option_kinds import read_devices
from tsnb.options import read_change
from tsnb.steering import run_sweep
from tsnb.sweeps.space_grammar import add_sweep, read_rule
from tsnb.words import strict, text_table

__all__ = ["add_results", "add_sweep_command"]


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


def add_results(commands: Any) -> None:
    """Add `tsnb results`."""
    told = commands.add_parser("results", help="print the last logged numbers of the project's trials")
    told.add_argument("name", nargs="?", metavar="NAME", help="trial or sweep (default: all)")
    told.add_argument("--sort", metavar="METRIC", help="sort by METRIC, best first")
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


def _results(options: argparse.Namespace) -> None:
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
