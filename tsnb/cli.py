"""The command line: `tsnb COMMAND`; `tsnb --help` lists them. No logic of its own."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsnb import registry
from tsnb.arena.nameless import make_nameless
from tsnb.config import MODES, read_weight
from tsnb.errors import TsnbError
from tsnb.options import COMMAND, StreamOptions, TuneOptions, add_options, options_from, read_change
from tsnb.samples.selection import add_rounds, rounds_as_typed
from tsnb.steering import CommandParser, add_verbs, answer, run_sweep, stop_trial
from tsnb.streams.served import RECONNECT_S, seed_of
from tsnb.sweeps.space_grammar import add_sweep, read_rule
from tsnb.telemetry.observer import balance, status, stop
from tsnb.telemetry.recording import record
from tsnb.telemetry.tuning import tune_as_typed
from tsnb.telemetry.words import balanced, footnotes, growth_text, tuned
from tsnb.words import text_table

if TYPE_CHECKING:
    from tsnb.planning import Fitting, Plan

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `tsnb`; by default those of this process.

    Returns:
        The exit status: 0 done, 1 the command failed (the message says why and what to do), 2 bad usage, 141 nobody
        reads the output any more (`tsnb plan ... | head`).
    """
    try:
        try:
            options = _parser().parse_args(arguments)
            return _guarded(options, options.run)
        finally:
            sys.stdout.flush()  # what is left in the buffer fails here, and not at the interpreter's end
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if _unread(stream)]
        if not unread:
            raise
        for stream in unread:  # the interpreter flushes both once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + signal.SIGPIPE


def _unread(stream: Any) -> bool:
    """Tell whether a stream is a pipe whose other end has gone."""
    asked = select.poll()
    asked.register(stream.fileno(), 0)
    return any(told & select.POLLERR for _, told in asked.poll(0))


def _guarded(options: argparse.Namespace, run: Callable[[argparse.Namespace], int | None]) -> int:
    """Run a command; return its exit status."""
    try:
        return run(options) or 0
    except (TsnbError, ValueError, TypeError) as error:
        if getattr(options, "json", False):
            print(json.dumps({"error": str(error)}))
        print(f"tsnb {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tsnb", description="Parallel training trials on one shared data loader."
    )
    version = sys.modules[
        "tsnb"
    ].__version__  # not `import tsnb`: its lazy names reach up to the notebook layer
    parser.add_argument("--version", action="version", version=f"tsnb {version}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    serve = commands.add_parser("serve", help="serve a loader until Ctrl-C or `tsnb stop NAME`")
    serve.add_argument("loader", metavar="MODULE:NAME", help="a loader, or a function that returns one")
    serve.add_argument("--name", required=True, help="the name that consumers attach by")
    add_options(serve, StreamOptions, "command")
    serve.set_defaults(run=_serve)
    examined = commands.add_parser(
        "doctor", help="try what tsnb needs on this machine, and say what will not work"
    )
    examined.set_defaults(run=_doctor)
    listed = commands.add_parser("list", help="list what is served")
    listed.add_argument("--json", action="store_true", help="print it as JSON")
    listed.set_defaults(run=_list)
    for name, run, text in (
        ("status", _status, "show a stream and its consumers"),
        ("top", _top, "watch a stream live: who waits for whom, and what the machine does"),
        ("rounds", _rounds, "give a stream over data that grows in rounds of chosen samples"),
        ("stop", _stop, "stop a stream, or one of its trials: STREAM/TRIAL"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("name", nargs="?", metavar="NAME", help="may be left out while one is running")
        command.set_defaults(run=run)
    add_verbs(commands)
    balancing = commands.add_parser("balance", help="change how a stream divides compute between its trials")
    balancing.add_argument("name", nargs="?", metavar="NAME", help="may be left out while one is running")
    balancing.add_argument("mode", metavar="|".join(MODES), help="how compute is divided between trials")
    balancing.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="TRIAL=2",
        help="by weight: twice the compute of one with 1",
    )
    balancing.set_defaults(run=_balance)
    for name in ("status", "stop", "rounds"):
        commands.choices[name].add_argument("--json", action="store_true", help="print the answer as JSON")
    tuning = commands.add_parser(
        "tune", help="change the number of a loader's workers while trials go on, or look at it"
    )
    tuning.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="may be left out while one is running; without --workers it is only looked at then",
    )
    add_options(tuning, TuneOptions, COMMAND)
    tuning.set_defaults(workers=None)  # left out, and no name: only looked at
    tuning.add_argument("--json", action="store_true", help="print what was asked and measured as JSON")
    tuning.set_defaults(run=_tune)
    add_rounds(commands.choices["rounds"])
    commands.choices["top"].add_argument("--once", action="store_true", help="print it once and exit")
    listing = commands.add_parser("devices", help="show GPUs and cores, and the processes that use them")
    listing.set_defaults(run=_devices)
    _add_mps(commands)
    _add_stalls(commands)
    _add_plan(commands)
    _add_place(commands)
    _add_sweep(commands)
    recording = commands.add_parser(
        "record", help="write a stream's readings to a file until it ends or Ctrl-C"
    )
    recording.add_argument("name", metavar="NAME", help="the stream's name")
    recording.add_argument("file", metavar="FILE", help="a new file, such as run.jsonl")
    recording.set_defaults(run=_record)
    return parser


def _add_mps(commands: Any) -> None:
    mps = commands.add_parser(
        "mps", help="run trials on one GPU at the same time, by an MPS daemon of yours (docs/devices.md)"
    )
    mps.add_argument(
        "verb", choices=("start", "stop", "status"), help="status tells which trials are attached"
    )
    mps.add_argument("--json", action="store_true", help="print the answer as JSON")
    mps.set_defaults(run=_mps)


def _add_stalls(commands: Any) -> None:
    stalling = commands.add_parser(
        "stalls", help="measure how long a model waits for its loader (docs/stalls.md)"
    )
    stalling.add_argument("loader", metavar="MODULE:NAME", help="a loader, or a function that returns one")
    stalling.add_argument(
        "--step", metavar="MODULE:NAME", help="a function of a batch: one step of training; it really trains"
    )
    stalling.add_argument("--trials", type=int, default=4, metavar="N", help="how many trials to tell of (4)")
    stalling.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="of each measurement; longer is steadier (2)"
    )
    stalling.add_argument("--threads", type=int, default=1, metavar="N", help="torch threads in the step (1)")
    stalling.add_argument(
        "--cold",
        action="store_true",
        help="also measure what the disk costs: some files leave the page cache",
    )
    stalling.add_argument("--workers", type=int, metavar="N", help="also tell of that many loader workers")
    stalling.add_argument(
        "--disk", metavar="100MB/s", help="also tell of everything read from a disk of that rate"
    )
    stalling.add_argument(
        "--memory", metavar="8GiB", help="also tell of so much memory for files; with --cold or --disk"
    )
    stalling.add_argument("--json", action="store_true", help="print the figures as JSON")
    stalling.set_defaults(run=_stalls)


def _add_plan(commands: Any) -> None:
    planning = commands.add_parser(
        "plan", help="measure several trials, and tell in which way all are done soonest (docs/before.md)"
    )
    _add_measured(planning)
    planning.add_argument(
        "--threads",
        type=_numbers,
        default=(1,),
        metavar="N[,N]",
        help="torch threads of each (1); 1,2: those of them with which all are done soonest",
    )
    planning.add_argument(
        "--cold", action="store_true", help="also measure the disk: some files leave the page cache"
    )
    planning.add_argument(
        "--devices",
        type=lambda words: words.split(","),
        metavar="cuda:0,cuda:1",
        help="a GPU of these for each",
    )
    planning.add_argument("--cores", type=float, metavar="N", help="for all of them; by default all")
    planning.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="of each measurement of the loader (1)"
    )
    planning.add_argument("--run", action="store_true", dest="carried_out", help="then run them in that way")
    planning.set_defaults(run=_plan)


def _numbers(words: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in words.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{words!r}: give a number from 1 on, or several: 1,2")
    return found


def _add_place(commands: Any) -> None:
    placing = commands.add_parser(
        "place", help="measure which trials fit together in memory, and which have to wait (docs/before.md)"
    )
    _add_measured(placing)
    placing.add_argument("--threads", type=int, default=1, metavar="N", help="torch threads of each (1)")
    placing.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="each trial, and each group, is watched (2)"
    )
    placing.add_argument("--run", action="store_true", dest="carried_out", help="then run those that fit")
    placing.set_defaults(run=_place)


def _add_measured(parser: argparse.ArgumentParser) -> None:
    """Add what `plan` and `place` share: the loader and the trials."""
    parser.add_argument("loader", metavar="MODULE:NAME", help="a loader, or a function that returns one")
    parser.add_argument(
        "--trial",
        action="append",
        nargs="+",
        required=True,
        metavar=("MODULE:NAME", "K=V"),
        help="a function that trains on tsnb.attach(), and its parameters; may be repeated",
    )
    parser.add_argument("--epochs", type=float, metavar="N", help="of each; by default its parameter epochs")
    parser.add_argument("--samples", type=int, metavar="N", help="in an epoch, if the loader does not say")
    parser.add_argument("--memory", metavar="12GiB", help="for all of them; by default what is free")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_sweep(commands: Any) -> None:
    """Add what runs many trials, and tells what they have logged."""
    swept = commands.add_parser("sweep", help="run a function as many trials, and wait for their end")
    swept.add_argument(
        "function", metavar="MODULE:NAME", help="it gets the parameters, and says tsnb.attach()"
    )
    add_sweep(swept)
    swept.add_argument("--name", metavar="NAME", help="what the trials' names begin with")
    swept.add_argument("--stream", metavar="STREAM", help="what tsnb.attach() takes; left out: the only one")
    swept.add_argument("--seed", type=int, metavar="S", help="seeds the draw, and every trial")
    swept.add_argument(
        "--threads",
        type=_numbers,
        metavar="N[,N]",
        help="torch threads of each (1); 1,2 with --plan: those of them with which all are done soonest",
    )
    swept.add_argument("--json", action="store_true", help="print a line of JSON for each trial that ends")
    swept.set_defaults(run=_sweep)
    told = commands.add_parser("results", help="print what the project's trials have logged last")
    told.add_argument("name", nargs="?", metavar="NAME", help="a trial or a sweep; left out: all")
    told.add_argument("--sort", metavar="METRIC", help="the best first")
    told.add_argument(
        "--until",
        action="append",
        metavar="METRIC=VALUE",
        help="what each had cost when it got there; may be repeated",
    )
    told.add_argument("--recording", metavar="FILE", help="with --until: what `tsnb record` wrote meanwhile")
    told.add_argument("--vcpu-price", type=float, metavar="P", help="with --until: of an hour of one core")
    told.add_argument("--kwh-price", type=float, metavar="P", help="with --until: of a kilowatt hour")
    told.add_argument("--json", action="store_true", help="print a list of JSON objects")
    told.set_defaults(run=_results)


def _serve(options: argparse.Namespace) -> int:
    given = options_from(options)  # what does not go together is refused before anything is loaded
    if given.restart is None:
        _serve_here(options, given)
        return 0
    from tsnb.streams.supervising import supervise

    spare_seed = secrets.randbelow(2**31)
    kept = None if given.cache is None else make_nameless()

    def life(first_epoch: int) -> int:
        if kept is not None:  # in a fork of its own, where it may take numpy
            from tsnb.samples.memory import adopt

            adopt(kept)
        return _guarded(options, lambda _: _serve_here(options, given, spare_seed, first_epoch))

    return supervise(options.name, life)


def _serve_here(
    options: argparse.Namespace, given: StreamOptions, spare_seed: int | None = None, first_epoch: int = 0
) -> None:
    """Serve until the stream is stopped.

    Args:
        options: As parsed.
        given: Those of the stream among them.
        spare_seed: The seed of a DataLoader that was given none, where this process may be started again.
        first_epoch: The epoch to begin with.
    """
    from tsnb.producer.serving import serve  # needs torch: the other commands answer without it

    loader = _load(options.loader)
    seed = seed_of(loader, options.seed, spare_seed)
    if seed != options.seed:
        print(f"order drawn from seed {seed}, to be the same again after a crash", flush=True)
    waits_s = 0.0 if spare_seed is None else RECONNECT_S
    chosen = {f.name: getattr(given, f.name) for f in fields(given) if f.name not in ("detach", "restart")}
    with serve(
        loader,
        name=options.name,
        origin=f"tsnb serve {options.loader}",
        **{**chosen, "seed": seed, "first_epoch": first_epoch, "reconnect_s": waits_s},
    ) as producer:
        print(
            f"serving {producer.name!r} (pid {os.getpid()}); attach with "
            f'tsnb.attach("my-model", producer="{producer.name}"); stop with Ctrl-C or `tsnb stop {producer.name}`',
            flush=True,
        )
        producer.wait()


def _load(target: str) -> Any:
    """Return a loader by its name, or what the function of that name returns."""
    found = _named(target)
    iterable = hasattr(found, "__iter__") or not callable(found)
    return found if iterable else found()


def _named(target: str) -> Any:
    """Return what `MODULE:NAME` names.

    Raises:
        ValueError: There is no such thing.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute:
        raise ValueError(f"expected MODULE:NAME, for example data.cifar:make_loader, and got {target!r}.")
    from tsnb.native.start_line import close_workers

    close_workers()
    sys.path.append(str(Path.cwd()))  # last: nothing of Python's or of a library can be shadowed from there
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise ValueError(
            f"no module {module_name!r} was found, neither here ({Path.cwd()}) nor installed."
        ) from None
    if not hasattr(module, attribute):
        where = getattr(module, "__file__", None) or "part of Python"
        raise ValueError(f"module {module_name!r} ({where}) has no {attribute!r}.")
    return getattr(module, attribute)


def _stalls(options: argparse.Namespace) -> None:
    from tsnb.stalling import stalls, what_if  # needs torch

    changes = {name: getattr(options, name) for name in ("workers", "disk", "memory")}
    given = {name: value for name, value in changes.items() if value is not None}
    if "memory" in given and "disk" not in given and not options.cold:
        raise ValueError("--memory needs to know what the disk costs: add --cold, or --disk 100MB/s.")
    changed = what_if(**given)  # what cannot be asked is refused before anything is measured
    step = None if options.step is None else _named(options.step)
    found = stalls(
        _load(options.loader),
        step,
        trials=options.trials,
        seconds=options.seconds,
        threads=options.threads,
        cold=options.cold,
    )
    numbers = {1, 2, 4, 8, options.trials}
    told = changed(found) if given else None
    if options.json:
        more = {} if told is None else {"what_if": {"asked": given, **told.to_dict(numbers)}}
        print(json.dumps({**found.to_dict(numbers), **more}, indent=1))
        return
    print(found)
    if told is not None:
        print("\nWith " + " ".join(f"--{name} {value}" for name, value in given.items()) + f":\n\n{told}")


def _plan(options: argparse.Namespace) -> None:
    from tsnb.planning import plan  # needs torch

    found = plan(
        _trials(options),
        loader=_load(options.loader),
        epochs=options.epochs,
        samples=options.samples,
        cold=options.cold,
        devices=options.devices,
        cores=options.cores,
        memory=options.memory,
        threads=options.threads,
        seconds=options.seconds,
    )
    _told(options, found)


def _place(options: argparse.Namespace) -> None:
    from tsnb.planning import place  # needs torch

    found = place(
        _trials(options),
        loader=_load(options.loader),
        epochs=options.epochs,
        samples=options.samples,
        memory=options.memory,
        threads=options.threads,
        seconds=options.seconds,
    )
    _told(options, found)


def _trials(options: argparse.Namespace) -> list[tuple[Any, dict[str, Any]]]:
    return [(_named(target), dict(map(read_change, given))) for target, *given in options.trial]


def _told(options: argparse.Namespace, found: Plan | Fitting) -> None:
    """Run what was planned, if that was asked for, and print the figures."""
    if options.carried_out:
        # what the trials print is not the answer
        with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
            found.run()
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)


def _sweep(options: argparse.Namespace) -> int:
    found = _named(options.function)
    given = {
        name: value
        for name in ("n", "at_once", "rotate", "name", "seed", "until")
        if (value := getattr(options, name)) is not None
    }
    if options.stream is not None:
        given["producer"] = options.stream
    if options.plan:
        given["plan"] = True
    if options.threads is not None:
        given["threads"] = options.threads if len(options.threads) > 1 else options.threads[0]
    rule = read_rule(options)
    return run_sweep(found, dict(options.grid), dict(options.sample), given, rule, json_lines=options.json)


def _results(options: argparse.Namespace) -> None:
    from tsnb.reports.costed import costed_table

    columns, rows = costed_table(
        options.name,
        sort=options.sort,
        until=dict(map(read_change, options.until)) if options.until else None,
        vcpu_price=options.vcpu_price,
        kwh_price=options.kwh_price,
        recording=options.recording,
    )
    if options.json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], default=str))
    else:
        print("\n".join(text_table([columns, *([str(cell) for cell in row] for row in rows)])))


def _doctor(_options: argparse.Namespace) -> int:
    from tsnb.checks.examining import doctor

    found = doctor()
    print(found)
    return 0 if found.works else 1


def _list(options: argparse.Namespace) -> None:
    found = registry.entries()
    if options.json:
        print(
            json.dumps([{"stream": entry.name, "pid": entry.pid, "origin": entry.origin} for entry in found])
        )
        return
    for entry in found:
        print(entry)
    if not found:  # not on stdout: a script that counts lines finds none
        print("no stream is running; tsnb serve MODULE:NAME --name NAME starts one", file=sys.stderr)


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
        answer(options, {"stopped": ran}, "stopped your MPS daemon" if ran else "no MPS daemon of yours runs")
    else:
        daemon, new = mps.start()
        text = f"your MPS daemon runs {'' if new else 'already '}(pid {daemon.pid})"
        answer(
            options,
            {"started": new, "pid": daemon.pid},
            f"{text}: trials that start from now on are attached to it; `tsnb mps status` tells which are",
        )


def _status(options: argparse.Namespace) -> None:
    from tsnb.telemetry.following import look
    from tsnb.telemetry.view import as_text

    if options.json:
        print(status(options.name).to_json())
        return
    name, view = look(options.name)
    lines = [as_text(view, f"stream {name}")]
    if view.latest is not None:
        lines += footnotes(view.latest)
    print("\n".join(lines))


def _balance(options: argparse.Namespace) -> None:
    print("\n".join(balanced(balance(options.name, options.mode, dict(map(read_weight, options.weight))))))


def _tune(options: argparse.Namespace) -> None:
    reading, changed = tune_as_typed(options, options.name)
    if options.json:
        told = {"asked": None} if reading.tuning is None else asdict(reading.tuning)
        print(json.dumps({"name": reading.name, "running": reading.workers, **told}, indent=1))
        return
    print("\n".join(tuned(reading)))
    if not changed:
        print(f"nothing was changed; to change it: tsnb tune {reading.name} --workers auto, or a number")


def _rounds(options: argparse.Namespace) -> None:
    reading = rounds_as_typed(options, options.name)
    said = {"name": reading.name, "found": reading.found, "rounds": reading.rounds}
    text = growth_text(reading) or "its data set does not grow, so it has no rounds"
    answer(options, said, f"{reading.name}: {text}")


def _top(options: argparse.Namespace) -> None:
    from tsnb.top import top

    top(options.name, once=options.once)


def _record(options: argparse.Namespace) -> None:
    recorder = record(options.name, options.file)
    print(
        f"recording {recorder.name!r} to {recorder.path}; Ctrl-C ends it, and so does the stream's end",
        flush=True,
    )
    try:
        recorder.wait()
    except KeyboardInterrupt:
        recorder.stop()
    print(f"recorded {recorder.readings} readings of {recorder.name!r} to {recorder.path}")


def _stop(options: argparse.Namespace) -> None:
    if "/" in (options.name or ""):
        stop_trial(options)
        return
    entry = registry.find(options.name)
    stop(entry.name)
    answer(options, {"stream": entry.name, "stopped": True}, f"stopped {entry.name!r}")
