"""The commands that measure before hours are spent: `tsnb stalls` and `tsnb plan`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tsnb.cli.arguments import aside, load, named, numbers
from tsnb.option_kinds import in_its_words, share
from tsnb.options import read_change
from tsnb.sweeps.space_grammar import read_grid
from tsnb.text.words import text_table

if TYPE_CHECKING:
    from tsnb.experiments.trial import Trial
    from tsnb.planning import Plan

__all__ = ["add_plan", "add_stalls"]


_THEN = "frozen part of a network that the loader computes, or a function of a batch"


def add_stalls(commands: Any) -> None:
    """Add `tsnb stalls`."""
    stalling = commands.add_parser("stalls", help="measure how long a model waits for its loader")
    stalling.add_argument("loader", metavar="MODULE:NAME", help="loader, or function that returns one")
    stalling.add_argument(
        "--train-step",
        metavar="MODULE:NAME",
        help="function of a batch that does one training step (it trains the model)",
    )
    stalling.add_argument("--then", metavar="MODULE:NAME", help=_THEN)
    stalling.add_argument(
        "--n-trials", type=int, default=4, metavar="N", help="number of trials to predict for (default: 4)"
    )
    stalling.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="seconds per measurement (default: 2)"
    )
    stalling.add_argument(
        "--threads", type=int, default=1, metavar="N", help="torch threads in the step (default: 1)"
    )
    stalling.add_argument(
        "--cold",
        action="store_true",
        help="also measure the disk: drops some files from the page cache",
    )
    stalling.add_argument("--workers", type=int, metavar="N", help="also predict for N loader workers")
    stalling.add_argument("--disk", metavar="100MB/s", help="also predict for a disk with this rate")
    held = stalling.add_mutually_exclusive_group()
    held.add_argument(
        "--memory", metavar="8GiB", help="also predict for a file cache of this size (needs --cold or --disk)"
    )
    held.add_argument(
        "--cached",
        type=share("a share of the samples, 0 to 1").typed,
        metavar="50%",
        help="also predict for this share of the samples in memory (needs --cold or --disk)",
    )
    stalling.add_argument("--cores", type=float, metavar="N", help="also predict for N cores")
    stalling.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="also size a machine: vCPUs per GPU for N GPUs (needs --train-step)",
    )
    stalling.add_argument(
        "--vcpu-price", type=float, metavar="P", help="with --gpus: price of a vCPU for an hour"
    )
    stalling.add_argument(
        "--gpu-price", type=float, metavar="P", help="with --gpus: price of a GPU for an hour"
    )
    stalling.add_argument("--json", action="store_true", help="print the figures as JSON")
    stalling.set_defaults(run=_stalls)


def add_plan(commands: Any) -> None:
    """Add `tsnb plan`."""
    planning = commands.add_parser(
        "plan", help="predict which trials fit in memory, how long they take and in which order"
    )
    planning.add_argument("loader", metavar="MODULE:NAME", help="loader, or function that returns one")
    planning.add_argument("--then", metavar="MODULE:NAME", help=_THEN)
    planning.add_argument(
        "--trial",
        action="append",
        nargs="+",
        required=True,
        metavar=("MODULE:NAME", "K=V"),
        help="function that trains on tsnb.attach(), with its parameters (repeatable)",
    )
    planning.add_argument(
        "--epochs", type=float, metavar="N", help="epochs per trial (default: its parameter epochs)"
    )
    planning.add_argument(
        "--samples", type=int, metavar="N", help="samples per epoch, if the loader has no length"
    )
    planning.add_argument("--memory", metavar="12GiB", help="memory for all trials (default: what is free)")
    planning.add_argument("--json", action="store_true", help="print the figures as JSON")
    planning.add_argument(
        "--threads",
        type=numbers,
        default=(1,),
        metavar="N[,N]",
        help="torch threads per trial, or several to pick the fastest from (default: 1)",
    )
    planning.add_argument(
        "--cold", action="store_true", help="also measure the disk: drops some files from the page cache"
    )
    planning.add_argument(
        "--device",
        type=lambda words: words.split(","),
        metavar="cuda:0,cuda:1",
        help="GPUs for the trials, one each",
    )
    planning.add_argument(
        "--choose",
        type=in_its_words(read_grid),
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="values of a parameter, from which the plan picks one per trial (repeatable)",
    )
    planning.add_argument("--cores", type=float, metavar="N", help="cores for all trials (default: all)")
    planning.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds per measurement of the loader (default: 1)",
    )
    planning.add_argument(
        "--execute", action="store_true", help="run the trials that fit afterwards, in that order"
    )
    planning.set_defaults(run=_plan)


def _stalls(options: argparse.Namespace) -> None:
    from tsnb.stalling import asked, stalls, what_if  # needs torch

    given = _given(options, "workers", "disk", "memory", "cached")
    for name in given.keys() & {"memory", "cached"}:
        if "disk" not in given and not options.cold:
            raise ValueError(f"--{name} needs the cost of the disk. Add --cold, or --disk 100MB/s.")
    sizes = _checked_sizes(options)
    if options.cores is not None:
        asked.CORES.checked("cores", options.cores)
    changed = what_if(**given)  # what cannot be asked is refused before anything is measured
    with aside(options):
        step = None if options.train_step is None else named(options.train_step)
        found = stalls(
            load(options.loader),
            step,
            then=None if options.then is None else named(options.then),
            n_trials=options.n_trials,
            seconds=options.seconds,
            threads=options.threads,
            cold=options.cold,
        )
    numbers = {1, 2, 4, 8, options.n_trials}
    told = changed(found) if given else None
    sized = found.sizing(**sizes) if sizes else None
    if options.json:
        more = (
            {}
            if told is None
            else {"what_if": {"asked": given, **told.to_dict(numbers, cores=options.cores)}}
        )
        more |= {} if sized is None else {"sizing": sized.to_dict()}
        print(json.dumps({**found.to_dict(numbers, cores=options.cores), **more}, indent=1))
        return
    print(found)
    if options.cores is not None:
        print(f"\n{found.sharing(options.n_trials, cores=options.cores)}")
    if sized is not None:
        print(f"\n{sized}")
    if told is not None:
        print("\nWith " + " ".join(f"--{name} {value}" for name, value in given.items()) + f":\n\n{told}")


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of some options that were given, by name."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _checked_sizes(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `Stalls.sizing` is to be asked; nothing where no option says so.

    Raises:
        ValueError: A number is out of range, or there is no step whose model could wait.
    """
    from tsnb.stalling import asked  # needs torch

    given = _given(options, "gpus", "vcpu_price", "gpu_price")
    kinds = {"gpus": asked.GPUS, "vcpu_price": asked.PRICE, "gpu_price": asked.PRICE}
    found = {name: kinds[name].checked(name, value) for name, value in given.items()}
    if found and options.train_step is None:
        raise ValueError(
            "--gpus, --vcpu-price and --gpu-price need the model's speed. Add --train-step MODULE:NAME."
        )
    return found


def _plan(options: argparse.Namespace) -> int:
    """Measure trials, run them if that is asked for, and print it; return the exit status."""
    from tsnb.planning import plan  # needs torch

    names = ("epochs", "samples", "memory", "threads", "seconds", "cold", "device", "cores")
    given = {name: getattr(options, name) for name in names}
    with aside(options):
        then = None if options.then is None else named(options.then)
        found = plan(
            _trials(options), loader=load(options.loader), then=then, choose=dict(options.choose), **given
        )
        ran = found.run() if options.execute else {}
    return _told(options, found, ran)


def _trials(options: argparse.Namespace) -> list[tuple[Any, dict[str, Any]]]:
    return [(named(target), dict(map(read_change, given))) for target, *given in options.trial]


def _told(options: argparse.Namespace, found: Plan, ran: Mapping[str, Trial]) -> int:
    """Print the figures, and how trials that were run have ended; return the exit status, as `tsnb sweep` has it."""
    from tsnb.experiments.overview.trials_table import rows_of  # kernels: nothing else here needs them

    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    if ran and not options.json:
        print("", *text_table(rows_of(list(ran.values()))), sep="\n")
    return int(bool(ran) and all(trial.state in ("failed", "crashed") for trial in ran.values()))
