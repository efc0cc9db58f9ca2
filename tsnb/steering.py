"""The verbs of the command line: what `tsnb pause STREAM/TRIAL` and its like do, for people and for programs.

| command | in effect | answered |
|---|---|---|
| `pause`, `resume` | at the trial's next batch | at once |
| `set` | at its next batch | when it has taken the values, or refused them |
| `interrupt` | at once, as Ctrl-C | when it was sent |
| `stop` | at its next step | when it has left the stream, or after `STOP_S` |
| `sweep` | at once | a line for each trial that ends, with `--json` |

They reach a trial through the stream that it takes, whichever notebook or script has started it, and its own notebook
and panel show what follows. TRIAL is the name by which it has attached. `docs/agents.md` is the page for programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tsnb import registry
from tsnb.errors import RemoteProtocolError, TsnbError
from tsnb.options import read_change
from tsnb.printable import one_line
from tsnb.records.reading import ENDED
from tsnb.telemetry.observer import Observer, pause, status
from tsnb.telemetry.readings import ConsumerReading
from tsnb.words import did_you_mean

__all__ = ["add_verbs", "answer", "run_sweep", "stop_trial"]

LOOK_S = 0.1
"""How often `sweep` looks which trials have ended."""
STOP_S = 10.0
"""How long `stop` waits for a trial to leave: it does at its next step, and a step may be long."""


def answer(options: argparse.Namespace, facts: Mapping[str, Any], text: str) -> None:
    """Print what a command has done: the facts as one line of JSON with `--json`, else the text."""
    print(json.dumps(facts) if options.json else text)  # noqa: T201 (the answer to a command)


def add_verbs(commands: Any) -> None:
    """Add the verbs to the command line's parser.

    Args:
        commands: What `ArgumentParser.add_subparsers` has returned.
    """
    for name, run, help_text in (
        ("pause", _pause, "have a trial take no more batches from its next one on; the others go on"),
        ("resume", _pause, "let a paused trial go on where it was"),
        ("set", _set, "change live values of a trial (tsnb.live) from its next batch on"),
        ("interrupt", _interrupt, "interrupt a trial's code, as Ctrl-C does"),
    ):
        verb = commands.add_parser(name, help=help_text)
        if run is _pause:
            verb.add_argument("target", metavar="STREAM[/TRIAL]", help="without TRIAL: all of the stream's")
        else:
            verb.add_argument("target", metavar="STREAM/TRIAL")
        if run is _set:
            verb.add_argument(
                "changes",
                nargs="*",
                metavar="NAME=VALUE",
                help="such as lr=0.03; all of them together, or none; without: show the trial's live values",
            )
        verb.add_argument("--json", action="store_true", help="print the answer as JSON")
        verb.set_defaults(run=run)


def stop_trial(options: argparse.Namespace) -> None:
    """Ask a trial of a stream to end, and wait until it has left: `tsnb stop STREAM/TRIAL`."""
    stream, trial = _reached(options.name)
    observer = Observer(stream)
    deadline = time.monotonic() + STOP_S
    left = False
    with contextlib.closing(observer):
        observer.request_consumer_stop(trial.name)
        while not left and (wait_s := deadline - time.monotonic()) > 0:
            reading = observer.read(wait_s)
            left = reading is not None and trial.name not in {
                c.name for c in reading.consumers if c.state != "gone"
            }
    text = (
        f"stopped {trial.name!r} of {stream!r}"
        if left
        else f"{trial.name!r} of {stream!r} is asked to stop: its loop ends at its next step"
    )
    answer(options, {"stream": stream, "trial": trial.name, "left": left}, text)


def run_sweep(
    fn: Callable[..., Any],
    grid: Mapping[str, Any],
    space: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    json_lines: bool,
) -> int:
    """Run a function as many trials and wait for their end: `tsnb sweep MODULE:NAME`.

    What the trials print goes to the terminal; with JSON lines to stderr, so that stdout has nothing else.

    Args:
        fn: The function.
        grid: As `tsnb.sweep` takes it.
        space: Likewise.
        given: Its other options.
        json_lines: Whether to print a line of JSON at the start and for each trial that ends.

    Returns:
        The exit status: 0 unless every trial failed.
    """
    from tsnb.sweeps.starting import sweep  # kernels: the other commands answer without them

    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr) if json_lines else contextlib.nullcontext():
        started = sweep(fn, grid=grid or None, space=space or None, **given)
        told: set[str] = set()
        if json_lines:
            _line(
                out, {"sweep": started.name, "trials": {name: dict(p) for name, p in started.params.items()}}
            )
        try:
            while not started.over or told != set(started):
                for name, trial in started.items():
                    if name not in told and trial.state in ENDED:
                        told.add(name)
                        if json_lines:
                            failure = trial.life.failure.partition("\n")[0]
                            _line(
                                out,
                                {
                                    "trial": name,
                                    "state": trial.state,
                                    "metrics": finite(trial.metrics),
                                    **({"error": failure} if failure else {}),
                                },
                            )
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            started.stop()
            raise
        if not json_lines:
            print(started)  # noqa: T201 (the answer to a command)
    states = [trial.state for trial in started.values()]
    return 1 if states and all(state in ("failed", "lost") for state in states) else 0


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers as JSON has them: what is not finite is null."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def _line(out: Any, facts: Mapping[str, Any]) -> None:
    out.write(json.dumps(facts, default=str) + "\n")
    out.flush()


def _reached(target: str) -> tuple[str, ConsumerReading]:
    """Return what `STREAM/TRIAL` means: the stream's name, and its consumer.

    Raises:
        TsnbError: It names no trial, or none that is attached.
    """
    name, slash, trial = target.partition("/")
    if not slash or not trial:
        raise TsnbError(f"{target!r} names no trial: write STREAM/TRIAL, such as mnist/cnn")
    stream = registry.find(name or None).name
    there = {c.name: c for c in status(stream).consumers if c.state != "gone"}
    if trial not in there:
        attached = ", ".join(there) or "none"
        raise TsnbError(
            f"no trial named {trial!r} is attached to {stream!r}.{did_you_mean(trial, there)} Attached: {attached}"
        )
    return stream, there[trial]


def _pause(options: argparse.Namespace) -> None:
    name, _, trial = options.target.partition("/")
    stream = registry.find(name or None).name
    there = [c.name for c in status(stream).consumers if c.state != "gone"]
    ranks = [consumer for consumer in there if consumer.startswith(f"{trial}[")]  # of one job
    meant = there if not trial else ranks or [trial]
    if not meant:
        raise TsnbError(f"no trial is attached to {stream!r}")
    pause(stream, *meant, on=options.command == "pause")
    done = f"{options.command}d"
    answer(options, {"stream": stream, done: meant}, f"{done} {', '.join(meant)} of {stream!r}")


def _set(options: argparse.Namespace) -> None:
    changes = dict(read_change(text) for text in options.changes)
    stream, trial = _reached(options.target)
    with contextlib.closing(Observer(stream)) as observer:
        told = observer.set_live(trial.name, changes)
    if told.kind:
        raise (ValueError if told.kind == "ValueError" else TsnbError)(f"{trial.name!r}: {told.error}")
    live = _shown(told.values)
    if changes:
        said = ", ".join(f"{name}={live[name]['value']!r}" for name in changes if name in live)
        text = f"{trial.name!r} of {stream!r}: {said} from its next batch on"
    else:
        lines = [f"{name}={value['value']!r} ({value['wanted']})" for name, value in live.items()]
        text = "\n".join(lines) or f"{trial.name!r} of {stream!r} reads no live values"
    answer(options, {"stream": stream, "trial": trial.name, "live": live}, text)


def _shown(values: str) -> dict[str, dict[str, Any]]:
    """Return what a consumer has told of its live values.

    Raises:
        RemoteProtocolError: It is not that.
    """
    try:
        return {
            str(name): {"value": value["value"], "wanted": one_line(value["wanted"])}
            for name, value in json.loads(values).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RemoteProtocolError(f"live values that cannot be read: {values!r:.80}") from error


def _interrupt(options: argparse.Namespace) -> None:
    stream, trial = _reached(options.target)
    here = trial.pid > 0 and not registry.find(stream).elsewhere
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if here:
            os.kill(trial.pid, signal.SIGINT)
    if not here:
        raise TsnbError(
            f"{trial.name!r} runs in another container, so it cannot be interrupted from here: "
            f"tsnb stop {stream}/{trial.name} ends its loop"
        )
    answer(
        options,
        {"stream": stream, "trial": trial.name, "interrupted": True},
        f"interrupted {trial.name!r} of {stream!r}",
    )
