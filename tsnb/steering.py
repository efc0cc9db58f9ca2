"""The verbs of the command line: what `tsnb pause STREAM/TRIAL` and its like do, for people and for programs.

| command | in effect | answered |
|---|---|---|
| `pause`, `resume` | at the trial's next batch | at once |
| `set` | at its next batch | when it has taken the values, or refused them |
| `clone` | at its next batch | when the clone trains |
| `extend` | at once, of one that is done | when it goes on |
| `interrupt` | at once, as Ctrl-C | when it was sent |
| `stop` | at its next step | when it has left the stream, or after `STOP_S` |
| `sweep` | at once | a line for each trial that ends, with `--json` |

They reach a trial through the stream that it takes, whichever notebook or script has started it, and its own notebook
and panel show what follows. `clone`, `extend` and `pause --release` need that notebook or script itself: they come by
its door (`kernels.door`). TRIAL is the name by which it has attached. `docs/automation.md` is the page for programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tsnb.discovery import registry
from tsnb.errors import TsnbError
from tsnb.experiments.verbs import VERBS, add_arguments, needed_words
from tsnb.extensions.live import set_live, shown_live
from tsnb.options import COMMAND, read_change, runs_here, settings_together
from tsnb.records.reading import ENDED
from tsnb.telemetry.observer import Observer, status
from tsnb.telemetry.readings import ConsumerReading
from tsnb.text.printable import one_line
from tsnb.text.words import did_you_mean, strict

if TYPE_CHECKING:
    from tsnb.experiments.trial import Trial
    from tsnb.sweeps.space_grammar import TypedRule
    from tsnb.sweeps.sweep import Sweep

__all__ = ["FORKS_S", "LOOK_S", "CommandParser", "add_verbs", "answer", "run_sweep", "stop_trial", "way_to"]

LOOK_S = 0.1
"""How often `sweep` and `duel` look which trials have ended."""
STOP_S = 10.0
"""How long `stop` waits for a trial to leave: it does at its next step, and a step may be long."""
FOUND_S = 5.0
"""How long a notebook may take to say which trials it has: milliseconds, unless it stands still."""
DONE_S = 120.0
"""How long one may take to clone a trial, which may be in a long step: it gives up sooner by itself."""
FORKS_S = 120.0
"""How long `sweep` and `duel` wait for the fork server, which imports torch: seconds, unless the machine is busy."""


class CommandParser(argparse.ArgumentParser):
    """Reads the words of one command; settings may stand behind options: `clone mnist/cnn --name hot lr=0.03`."""

    _as_json = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read them; a word that the command does not know is answered with its own usage, not that of all commands."""
        self._as_json = "--json" in (args or ()) and "--json" in self._option_string_actions
        found, unknown = super().parse_known_args(args and settings_together(self, args), namespace)
        if unknown:
            self.error(f"unrecognized arguments: {one_line(' '.join(unknown), 300)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with 2; with `--json` on stdout too, as a program reads no usage."""
        if self._as_json:
            print(json.dumps({"error": one_line(message, 2000)}))  # noqa: T201 (the answer to a command)
        super().error(message)


def answer(options: argparse.Namespace, facts: Mapping[str, Any], text: str) -> None:
    """Print what a command has done: the facts as one line of JSON with `--json`, else the text."""
    print(json.dumps(strict(facts)) if options.json else text)  # noqa: T201 (the answer to a command)


def add_verbs(commands: Any) -> None:
    """Add the verbs to the command line's parser.

    Args:
        commands: What `ArgumentParser.add_subparsers` has returned.
    """
    for name, run in _RUN.items():
        verb = VERBS[name]
        command = commands.add_parser(name, help=verb.command)
        many = verb.acts_on == "all"
        command.add_argument(
            "target",
            metavar="STREAM[/TRIAL]" if many else "STREAM/TRIAL",
            help="trial, or a stream for all of its trials" if many else "trial of a stream",
        )
        add_arguments(command, name, COMMAND)
        command.add_argument("--json", action="store_true", help="print the answer as JSON")
        command.set_defaults(run=run)


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
            left = reading is not None and trial.name not in reading.attached
    text = (
        f"Stopped {trial.name!r} of {stream!r}."
        if left
        else f"Asked {trial.name!r} of {stream!r} to stop. Its loop ends at its next step."
    )
    answer(options, {"stream": stream, "trial": trial.name, "left": left}, text)


def run_sweep(
    fn: Callable[..., Any],
    grid: Mapping[str, Any],
    space: Mapping[str, Any],
    given: Mapping[str, Any],
    rule: TypedRule | None = None,
    *,
    json_lines: bool,
) -> int:
    """Run a function as many trials and wait for their end, and their clones': `tsnb sweep MODULE:NAME`.

    What the trials print goes to the terminal; with JSON lines to stderr, so that stdout has nothing else.

    Args:
        fn: The function.
        grid: As `tsnb.sweep` takes it.
        space: As `tsnb.sweep` takes it.
        given: Its other options.
        rule: By what the trials are compared.
        json_lines: Whether to print a line of JSON at the start, for each trial that ends, and in the end for each that
            was not started.

    Returns:
        The exit status: 0 unless every trial failed, or none was started.
    """
    from tsnb.experiments.overview.board import trials  # kernels: the other commands answer without them
    from tsnb.experiments.plan import name_of
    from tsnb.kernels.hub import the_hub
    from tsnb.kernels.processes.forking import await_server
    from tsnb.sweeps.settled import FunctionCode
    from tsnb.sweeps.starting import rule_of, swept

    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr) if json_lines else contextlib.nullcontext():
        if runs_here(given.get("engine") or "local"):
            the_hub().call(
                await_server(the_hub(), FORKS_S)
            )  # a trial that is spawned instead cannot be cloned
        name = given.get("name") or name_of(fn)
        shared = {option: value for option, value in given.items() if option != "name"}
        started = swept(
            FunctionCode(fn), name, grid=grid or None, space=space or None, rule=rule_of(rule), **shared
        )
        told: dict[str, float] = {}  # when those had ended that were told: one that is extended ends again
        if json_lines:
            _line(
                out, {"sweep": started.name, "trials": {name: dict(p) for name, p in started.params.items()}}
            )
        try:
            over = False
            while not over:
                # looked at before they are told of: what ends meanwhile is told of in the next round
                over = started.over and not any(_lives(trial) for trial in trials.own)
                clones = {trial.name: trial for trial in trials.own if trial.name not in started}
                for name, trial in [*started.items(), *clones.items()]:
                    if trial.state in ENDED and told.get(name) != trial.life.ended_s:
                        told[name] = trial.life.ended_s
                        if json_lines:
                            _line(out, _ended(trial))
                over = over and set(started) <= set(told)
                time.sleep(0.0 if over else LOOK_S)
        except KeyboardInterrupt:
            started.stop()
            raise
        if json_lines:
            _tell_unstarted(out, started)
        else:
            print(started)  # noqa: T201 (the answer to a command)
    states = [trial.state for trial in started.values()]
    return int(all(state in ("failed", "crashed") for state in states))


def _tell_unstarted(out: Any, sweep: Sweep) -> None:
    """Print a line for each trial that was not started: a program may wait for one of each."""
    for name, why in sweep.not_started.items():
        _line(out, {"trial": name, "state": "not started", "metrics": {}, "why": why})


def _lives(trial: Trial) -> bool:
    return trial.state not in ENDED


def _ended(trial: Trial) -> dict[str, Any]:
    """Return how a trial of a sweep, or a clone of one, has ended."""
    failure = trial.life.failure.partition("\n")[0]
    return {
        "trial": trial.name,
        "state": trial.state,
        "metrics": trial.metrics,
        **({"parent": trial.parent.name} if trial.parent is not None else {}),
        **({"stopped" if trial.state == "stopped" else "error": failure} if failure else {}),
    }


def _line(out: Any, facts: Mapping[str, Any]) -> None:
    print(json.dumps(strict(facts), default=str), file=out, flush=True)


def _reached(target: str) -> tuple[str, ConsumerReading]:
    """Return what `STREAM/TRIAL` means: the stream's name, and its consumer.

    Raises:
        TsnbError: It names no trial, or none that is attached.
    """
    name, slash, trial = target.partition("/")
    if not slash or not trial:
        raise TsnbError(f"{target!r} is not a trial. Write STREAM/TRIAL, such as mnist/cnn")
    stream = registry.find(name or None).name
    there = status(stream).attached
    if trial not in there:
        attached = ", ".join(there) or "none"
        raise TsnbError(
            f"No trial named {trial!r} is attached to {stream!r}.{did_you_mean(trial, there)} "
            f"Attached: {attached}"
        )
    return stream, there[trial]


def _pause(options: argparse.Namespace) -> None:
    if options.command == "pause" and options.release:
        _release(options)
        return
    name, _, trial = options.target.partition("/")
    with contextlib.closing(Observer(name or None)) as observer:
        stream, there = observer.name, list(observer.now().attached)
        ranks = [consumer for consumer in there if consumer.startswith(f"{trial}[")]  # of one job
        meant = there if not trial else ranks or [trial]
        if not meant:
            raise TsnbError(f"No trial is attached to {stream!r}")
        observer.pause(*meant, on=options.command == "pause")
    done = f"{options.command}d"
    answer(options, {"stream": stream, done: meant}, f"{done} {', '.join(meant)} of {stream!r}")


def _release(options: argparse.Namespace) -> None:
    """Pause a trial, and have it give GPU memory back: the notebook or script that has started it can ask for that."""
    stream, trial = _reached(options.target)
    asked = {"stream": stream, "trial": trial.name, "pid": trial.pid}
    wish = {**asked, "verb": "pause", "release": True}
    _asked_of_its_notebook(asked, wish, "paused with --release")
    text = (
        f"Paused {trial.name} of {stream!r}. It releases the GPU memory of its checkpoint at its next batch."
    )
    answer(options, {"stream": stream, "paused": [trial.name], "release": True}, text)


def _set(options: argparse.Namespace) -> None:
    changes = dict(read_change(text) for text in options.changes)
    stream, trial = _reached(options.target)
    with contextlib.closing(Observer(stream)) as observer:
        told = set_live(observer, trial.name, changes)
    if told.kind:
        raise (ValueError if told.kind == "ValueError" else TsnbError)(f"{trial.name!r}: {told.error}")
    live = shown_live(told.values)
    if changes:
        said = ", ".join(f"{name}={live[name]['value']!r}" for name in changes if name in live)
        text = f"{trial.name!r} of {stream!r}: {said} from its next batch on"
    else:
        lines = [f"{name}={value['value']!r} ({value['wanted']})" for name, value in live.items()]
        text = "\n".join(lines) or f"{trial.name!r} of {stream!r} reads no live hyperparameters."
    answer(options, {"stream": stream, "trial": trial.name, "live": live}, text)


def _clone(options: argparse.Namespace) -> None:
    changes = dict(read_change(text) for text in options.changes)
    if options.at is None:
        stream, trial = _reached(options.target)
        asked = {"stream": stream, "trial": trial.name, "pid": trial.pid}
    else:
        asked = _named(options.target)
    wish = {**asked, "verb": "clone", "new": options.new, "changes": changes, "at": options.at}
    done = _asked_of_its_notebook(asked, wish, "cloned")
    said = "".join(f", {name}={value!r}" for name, value in changes.items())
    text = (
        f"{done['clone']!r} of {asked['stream']!r} is a clone of {done['trial']!r}{said} (pid {done['pid']})"
    )
    answer(options, {"stream": asked["stream"], **done}, text)


def way_to(name: str, verb: str) -> str:
    """Return how to reach a trial that another notebook or script has started; empty if no stream has one of that name.

    Args:
        name: What was asked for, and this notebook does not have.
        verb: The command of `%trials`.
    """
    if verb not in VERBS or not VERBS[verb].command:
        return ""
    with contextlib.suppress(TsnbError, OSError):
        for stream in [entry.name for entry in registry.entries()]:
            with contextlib.suppress(TsnbError, OSError):
                if name in status(stream).attached:
                    return (
                        f" A trial of that name is attached to {stream!r}, but another notebook or script started it. "
                        f"In a terminal, run: tsnb {verb} {stream}/{name}{needed_words(verb)}"
                    )
    return ""


def _named(target: str) -> dict[str, Any]:
    """Return which trial `STREAM/TRIAL` names, whether it is attached or not.

    Raises:
        TsnbError: It names none.
    """
    stream, slash, name = target.partition("/")
    if not slash or not name or not stream:
        raise TsnbError(f"{target!r} is not a trial. Write STREAM/TRIAL, such as mnist/cnn")
    return {"stream": stream, "trial": name}


def _extend(options: argparse.Namespace) -> None:
    asked = _named(options.target)
    stream, name = asked["stream"], asked["trial"]
    done = _asked_of_its_notebook(asked, {**asked, "verb": "extend", "epochs": options.epochs}, "extended")
    answer(options, {"stream": stream, **done}, f"{name!r} of {stream!r} continues for {options.epochs} more")


def _asked_of_its_notebook(asked: Mapping[str, Any], wish: Mapping[str, Any], done: str) -> dict[str, Any]:
    """Have the notebook or script that has started a trial do something to it; return its answer.

    Args:
        asked: Which trial: `stream`, `trial`, and `pid` where it runs.
        wish: What it is asked.
        done: What is to be done to the trial, as a participle.

    Raises:
        TsnbError: No such process has the trial, several have one of that name, or it cannot be done; says why.
    """
    from tsnb.kernels.door import call, doors  # the other commands answer without kernels

    there, silent = [], 0
    for door in doors():
        try:
            reply = call(door, {"verb": "find", **asked}, FOUND_S)
        except (TsnbError, TimeoutError, OSError):
            silent += 1
            continue
        if reply is not None and reply.facts.get("trials"):
            there.append(reply)
    label = f"{asked['trial']!r} of {asked['stream']!r}"
    if not there:
        if silent:
            raise TsnbError(
                f"{label} cannot be {done}, because one of your notebooks or scripts does not answer. Try "
                "again when it is idle"
            )
        raise TsnbError(
            f"{label} cannot be {done}, because the notebook or script that started it has ended. Only "
            "that process can do this"
        )
    if len(there) > 1:
        origins = _listed([f"{reply.facts.get('origin')} (pid {reply.facts.get('pid')})" for reply in there])
        raise TsnbError(f"Several processes have a trial {label}: {origins}. Each of them can have it {done}")
    reply = call(there[0].door, wish, DONE_S)
    if reply is None:
        raise TsnbError(f"The notebook or script of trial {label} has just ended")
    if "error" in reply.facts:
        raise TsnbError(one_line(reply.facts["error"], 2000))
    return reply.facts


def _listed(words: Sequence[str]) -> str:
    return one_line(", ".join(words), 500)


def _interrupt(options: argparse.Namespace) -> None:
    stream, trial = _reached(options.target)
    here = trial.pid > 0 and not registry.find(stream).elsewhere
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if here:
            os.kill(trial.pid, signal.SIGINT)
    if not here:
        raise TsnbError(
            f"{trial.name!r} runs in another container and cannot be interrupted from here. To end its "
            f"loop, run: tsnb stop {stream}/{trial.name}"
        )
    answer(
        options,
        {"stream": stream, "trial": trial.name, "interrupted": True},
        f"Interrupted {trial.name!r} of {stream!r}.",
    )


_RUN = {
    "pause": _pause,
    "resume": _pause,
    "set": _set,
    "clone": _clone,
    "extend": _extend,
    "interrupt": _interrupt,
}
"""What runs each verb's command; `stop` is a stream's command too (`cli.streams`)."""
