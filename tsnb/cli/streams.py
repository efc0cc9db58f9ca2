"""What the commands about one stream do: serve, list, status, top, balance, tune, rounds, record, stop."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from tsnb.cli.arguments import load, named
from tsnb.config import read_weight
from tsnb.discovery import registry
from tsnb.discovery.promises import FIRST, Promise
from tsnb.growing.selection import rounds_as_typed
from tsnb.hosting.served import RECONNECT_S, seed_of
from tsnb.hosting.stopping import stop
from tsnb.options import StreamOptions, options_from
from tsnb.show.words import balanced, footnotes, growth_text, tuned
from tsnb.steering import answer, stop_trial
from tsnb.stream.memory.nameless import make_nameless
from tsnb.telemetry.observer import balance, status
from tsnb.telemetry.recording import record
from tsnb.telemetry.tuning import tune_as_typed
from tsnb.text.printable import plain_warnings

if TYPE_CHECKING:
    from tsnb.serving.stream import Producer

__all__ = [
    "give_rounds",
    "list_streams",
    "record_readings",
    "serve_loader",
    "set_balance",
    "show_status",
    "show_top",
    "stop_named",
    "tune_workers",
]


def serve_loader(
    options: argparse.Namespace,
    guarded: Callable[[argparse.Namespace, Callable[[argparse.Namespace], int | None]], int],
) -> int:
    """Serve a loader until Ctrl-C or `tsnb stop`.

    Args:
        options: As parsed.
        guarded: Runs a command and returns its exit status: for a life that is started again after a crash.

    Raises:
        Exception: As `tsnb.serve` raises.
    """
    given = options_from(options)  # what does not go together is refused before anything is loaded
    if given.restart is None:
        _serve_here(options, given)
        return 0
    from tsnb.hosting.supervising import supervise

    spare_seed = secrets.randbelow(2**31)
    kept = None if given.cache is None else make_nameless()

    def life(first_epoch: int) -> int:
        if kept is not None:  # in a fork of its own, where it may take numpy
            from tsnb.caching.memory import adopt

            adopt(kept)
        return guarded(options, lambda _: _serve_here(options, given, spare_seed, first_epoch))

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
    # who attaches meanwhile waits
    with contextlib.closing(Promise(options.name, FIRST)), plain_warnings():
        producer = _begin(options, given, spare_seed, first_epoch)
    with producer:
        print(
            f"serving {producer.name!r} (pid {os.getpid()}); attach with "
            f'tsnb.attach("my-model", stream="{producer.name}"); stop with Ctrl-C or `tsnb stop {producer.name}`',
            flush=True,
        )
        producer.wait()


def _begin(
    options: argparse.Namespace, given: StreamOptions, spare_seed: int | None, first_epoch: int
) -> Producer:
    """Load what is to be served, and serve it; as `_serve_here`."""
    from tsnb.serving import serve  # needs torch: the other commands answer without it

    loader = load(options.loader)
    seed = seed_of(loader, options.seed, spare_seed)
    if seed != options.seed:
        print(f"sample order drawn from seed {seed}, so that it is the same after a crash", flush=True)
    waits_s = 0.0 if spare_seed is None else RECONNECT_S
    chosen = {f.name: getattr(given, f.name) for f in fields(given) if f.name not in ("detach", "restart")}
    then = None if given.then is None else named(given.then)
    return serve(
        loader,
        name=options.name,
        origin=f"tsnb serve {options.loader}",
        **{**chosen, "then": then, "seed": seed, "first_epoch": first_epoch, "reconnect_s": waits_s},
    )


def list_streams(options: argparse.Namespace) -> None:
    """Print what is served."""
    found = registry.entries()
    if options.json:
        print(
            json.dumps([{"stream": entry.name, "pid": entry.pid, "origin": entry.origin} for entry in found])
        )
        return
    for entry in found:
        print(registry.line(entry))
    if not found:  # not on stdout: a script that counts lines finds none
        print("no stream is running. To start one: tsnb serve MODULE:NAME --name NAME", file=sys.stderr)


def show_status(options: argparse.Namespace) -> None:
    """Print a stream and its consumers."""
    from tsnb.show.view_text import as_text
    from tsnb.telemetry.following import look

    if options.name is None and not registry.entries() and registry.away() is None and (duels := _duels()):
        _show_duels_alone(options, duels)
        return
    if options.json:
        reading = status(options.name)
        print(json.dumps({**json.loads(reading.to_json()), "duels": _duels()}))
        return
    name, view = look(options.name)
    lines = [as_text(view, f"stream {name}")]
    if view.latest is not None:
        lines += footnotes(view.latest)
    print("\n".join([*lines, *_duel_lines(_duels())]))


def _show_duels_alone(options: argparse.Namespace, duels: Sequence[Mapping[str, Any]]) -> None:
    """Print the project's duels while no stream runs: most end with their stream."""
    if options.json:
        print(json.dumps({"name": None, "consumers": [], "duels": duels}))
        return
    started = "To start one, run: tsnb serve MODULE:NAME --name NAME"
    print("\n".join([f"No stream is running. {started}", *_duel_lines(duels)]))


def _duel_lines(duels: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Return what is said of duels; of those that are over in short, as they may be of another day."""
    if not duels:
        return []
    from tsnb.reports.learned.duelled import duel_lines

    return duel_lines(duels, brief=True)


def _duels() -> list[dict[str, Any]]:
    """Return the newest duels of the project, as every screen has them."""
    from tsnb.records.project import project_directory

    file = project_directory(make=False) / "duels.jsonl"
    if not file.is_file():
        return []
    from tsnb.duels.ledger import Ledger

    return Ledger(file).told()


def set_balance(options: argparse.Namespace) -> None:
    """Change how a stream divides compute between its trials, and print it."""
    print("\n".join(balanced(balance(options.name, options.pacing, dict(map(read_weight, options.weight))))))


def tune_workers(options: argparse.Namespace) -> None:
    """Change the number of a loader's workers, or print what was measured of it."""
    reading, changed = tune_as_typed(options, options.name)
    if options.json:
        told = {"asked": None} if reading.tuning is None else asdict(reading.tuning)
        print(json.dumps({"name": reading.name, "running": reading.workers, **told}, indent=1))
        return
    print("\n".join(tuned(reading)))
    if not changed:
        print(f"nothing was changed. To change it: tsnb tune {reading.name} --workers auto, or a number")


def give_rounds(options: argparse.Namespace) -> None:
    """Have a stream give rounds of chosen samples, and print it."""
    reading = rounds_as_typed(options, options.name)
    said = {"name": reading.name, "found": reading.found, "rounds": reading.rounds}
    text = growth_text(reading) or "no rounds, because the data set does not grow"
    answer(options, said, f"{reading.name}: {text}")


def show_top(options: argparse.Namespace) -> None:
    """Watch a stream in the terminal."""
    from tsnb.top import top

    top(options.name, once=options.once)


def record_readings(options: argparse.Namespace) -> None:
    """Write a stream's readings to a file until it ends or Ctrl-C."""
    recorder = record(options.name, options.file)
    print(
        f"recording {recorder.name!r} to {recorder.path} until the stream ends or Ctrl-C",
        flush=True,
    )
    try:
        recorder.wait()
    except KeyboardInterrupt:
        recorder.stop()
    print(f"recorded {recorder.readings} readings of {recorder.name!r} to {recorder.path}")


def stop_named(options: argparse.Namespace) -> None:
    """Stop a stream, or one of its trials."""
    if "/" in (options.name or ""):
        stop_trial(options)
        return
    entry = registry.find(options.name)
    stop(entry.name)
    answer(options, {"stream": entry.name, "stopped": True}, f"stopped {entry.name!r}")
