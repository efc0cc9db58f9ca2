"""How a stream is served, and the kit by which an option is said once, for every surface that takes it.

| surface | takes | from here |
|---|---|---|
| `tsnb.serve` | keywords | the check; its signature is its own, for editors; a test holds it equal to these |
| `%tensorsocket start`, `tsnb serve` | words | the parser, units and bounds, the help |
| a background kernel | the dataclass | all of it |

A trial's options are made in the same way (`experiments.plan.TrialOptions`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tsnb.config import PACINGS, check_balance, read_weight
from tsnb.option_kinds import FLAG, SIZE, Kind, is_size, is_whole, one_of, seconds, share, whole
from tsnb.text.words import bytes_of

__all__ = [
    "AUTO",
    "COMMAND",
    "ENGINE",
    "NOTEBOOK",
    "RESTART",
    "RESTARTS",
    "StreamOptions",
    "TuneOptions",
    "add_options",
    "check_in_step",
    "check_options",
    "option",
    "options_from",
    "read_change",
    "read_setting",
    "runs_here",
    "settings_together",
    "typed",
]

RESTARTS = ("on-crash",)
"""When a producer or a trial may be restarted automatically."""

AUTO = "auto"
"""As a number of workers: found while trials go on, and followed."""

_SETTING = re.compile(r"[^\W\d]\w*=")

NOTEBOOK, COMMAND = "notebook", "command"
"""The surfaces where options are typed: `%tensorsocket start` and `tsnb serve`."""


def read_setting(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`.

    Raises:
        ValueError: It is not written so.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not a setting. Write NAME=VALUE")
    return name, value


def read_change(text: str) -> tuple[str, Any]:
    """Read `NAME=VALUE`, the value as Python has it (0.1, True, [1, 2]); anything else is text.

    Raises:
        ValueError: It is not written so.
    """
    name, value = read_setting(text)
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    return name, value


def settings_together(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return a command's words with the settings (`NAME=VALUE`) before its options, where argparse finds all of them.

    `cnn --name hot lr=0.03` is what one types. A command without settings keeps its words.

    Args:
        parser: The command's.
        words: What was typed behind the command.
    """
    if not words or words[0].startswith("-") or all(action.dest != "changes" for action in parser._actions):
        return list(words)
    first = next((k for k, word in enumerate(words) if word.startswith("--")), len(words))
    late = [k for k in range(first, len(words)) if _SETTING.match(words[k])]
    rest = [word for k, word in enumerate(words) if k >= first and k not in late]
    return [*words[:first], *(words[k] for k in late), *rest]


WINDOW = 8
"""Batches that the fastest trial may be ahead of the slowest, unless a number was given."""
WINDOW_BYTES = 1 << 30
"""Memory for the lag of a trial that stops, unless a number or a size was given."""
_WINDOW = Kind(
    'a number of batches, 1 or more, or a size with its unit, such as "512MiB"',
    lambda text: int(text) if text.lstrip("+-").isdigit() else text,
    lambda value: is_size(value) if isinstance(value, str) else is_whole(value) and value >= 1,
    "N|SIZE",
    lambda value: value if isinstance(value, str) else int(value),
)
_BAND = share("a share of an epoch, 0 to 1 (0.02 is 2%)")
_LONGEST_S = 1e8
"""Three years are for ever: consumers are told of it, and a message holds no infinity."""
_PATIENCE = replace(
    seconds("a number of seconds, more than 0", lambda value: value > 0),
    plain=lambda value: min(float(value), _LONGEST_S),
)
_SEED = whole("a whole number, 0 or more", 0, metavar="S")
MOST_WORKERS = 1024
"""A typing error, or a packet of another process, starts no more than these."""
_WORKERS = Kind(
    f'a number of processes, 0 to {MOST_WORKERS}, or "auto"',
    lambda text: text if text == AUTO else int(text),
    lambda value: value == AUTO if isinstance(value, str) else is_whole(value) and 0 <= value <= MOST_WORKERS,
    "N|auto",
    lambda value: value if value == AUTO else int(value),
)
_BYTES = Kind(
    'a number of bytes, 1 or more, or a size with its unit, such as "512MiB"',
    lambda text: int(bytes_of(text)),
    lambda value: is_size(value) or (is_whole(value) and value >= 1),
    "512MiB",
    lambda value: int(bytes_of(value)),
)
_RECONNECT = replace(
    seconds("a number of seconds, 0 or more", lambda value: 0 <= value < float("inf")),
    plain=lambda value: min(float(value), _LONGEST_S),
)
_EPOCH = whole("an epoch number, 0 or more", 0, most=(1 << 31) - 1)
_THEN = Kind("a name", str, lambda value: isinstance(value, str) and bool(value), "NAME", told=True)
ENGINE = Kind(
    '"local", "ray" or "ray://HOST:PORT"',
    str,
    lambda value: isinstance(value, str) and (value in ("local", "ray") or value.startswith("ray://")),
    "local|ray|ray://HOST:PORT",
)


def runs_here(engine: str) -> bool:
    """Tell whether an engine is this machine alone, and no cluster."""
    return engine == "local"


_PACING = Kind(" or ".join(map(repr, PACINGS)), str, lambda value: isinstance(value, str), "|".join(PACINGS))
_WEIGHTS = Kind("NAME=NUMBER", read_weight, lambda _: True, "TRIAL=2", told=True, repeats=True)
RESTART = one_of(RESTARTS)
"""When a process that has died is started again."""


@dataclass(frozen=True)
class _Option:
    kind: Kind
    help: str
    flag: str
    surfaces: tuple[str, ...]


def option(
    default: Any,
    kind: Kind,
    text: str,
    flag: str = "",
    surfaces: tuple[str, ...] = (NOTEBOOK, COMMAND),
    *,
    shown: bool = True,
) -> Any:
    """Return a dataclass's field that is an option.

    Args:
        default: Its default; `dict` for an empty mapping.
        kind: What its values are.
        text: One line of help; ends with the default where that is not plain.
        flag: How it is typed; left out: as the field is called.
        surfaces: Where it is typed.
        shown: Whether it stands in the dataclass's `repr`; what may hold secrets does not.
    """
    metadata = {"option": _Option(kind, text, flag, surfaces)}
    return (
        field(default_factory=dict, metadata=metadata, repr=shown)
        if default is dict
        else field(default=default, metadata=metadata, repr=shown)
    )


@dataclass(frozen=True)
class StreamOptions:
    """How a loader is served; see `tsnb.serve` for what each means.

    Raises:
        ValueError: A value is out of bounds, the pacing or engine is unknown, or two options do not go together.
    """

    window: int | str | None = option(
        None,
        _WINDOW,
        "batches that the fastest trial may be ahead of the slowest, or memory for the lag of a trial that "
        "validates or saves (default: 8 batches, and 1GiB while one stops)",
    )
    late_join: float = option(
        0.02, _BAND, "share of an epoch in which a late trial can still join it from the start (default: 2%)"
    )
    stall_timeout_s: float = option(
        30.0, _PATIENCE, "seconds to wait for a stalled trial (default: 30)", "--stall-timeout"
    )
    seed: int | None = option(
        None, _SEED, "makes the sample order reproducible: a function of seed and epoch"
    )
    workers: int | str | None = option(
        None,
        _WORKERS,
        "number of loader processes; auto finds it (default: the loader's num_workers)",
    )
    memory: int | str | None = option(
        None, SIZE, "with --workers auto: memory limit for all workers together (default: what is free)"
    )
    cache: int | str | None = option(
        None,
        SIZE,
        "memory for prepared samples, per machine (default: no cache)",
    )
    max_batch_bytes: int | str | None = option(
        None, _BYTES, "size limit of a batch, in bytes or with a unit (default: what fits into memory)"
    )
    then: str | None = option(
        None, _THEN, "frozen part of a network, or a function of a batch, computed once for all trials"
    )
    inputs: bool = option(
        False, FLAG, "with --then: also keep the inputs, for trials that attach with inputs=True"
    )
    reconnect_s: float = option(
        0.0, _RECONNECT, "seconds that trials wait for the stream to start again", surfaces=()
    )
    first_epoch: int = option(0, _EPOCH, "number of the first epoch", surfaces=())
    engine: str = option(
        "local",
        ENGINE,
        "ray: serve trials on every machine of a Ray cluster, this one's or the one at ray://HOST:PORT",
    )
    pacing: str = option(
        "together",
        _PACING,
        "how trials share compute: together (in step), weights or free (default: together)",
    )
    weights: Mapping[str, float] = option(
        dict, _WEIGHTS, "with --pacing weights: a trial's share of the compute (repeatable)", "--weight"
    )
    rebalance: bool = option(False, FLAG, "move cores and threads to the slowest trial")
    guard: bool = option(
        False, FLAG, "check in every trial for batches changed in place (reads each batch two more times)"
    )
    detach: bool = option(False, FLAG, "keep serving when this notebook's kernel ends", surfaces=(NOTEBOOK,))
    restart: str | None = option(
        None,
        RESTART,
        "restart the stream when its process dies, and resume trials where they were (a DataLoader without "
        "--seed gets one)",
    )

    @property
    def window_batches(self) -> int:
        """Batches that the fastest trial may be ahead of the slowest, while none stops."""
        return self.window if isinstance(self.window, int) else WINDOW

    @property
    def window_bytes(self) -> int | None:
        """Memory for the lag of a trial that stops; None: that counts as any lag does."""
        if isinstance(self.window, int):
            return None
        return WINDOW_BYTES if self.window is None else int(bytes_of(self.window))

    def __post_init__(self) -> None:
        check_options(self)
        pacing, weights = check_balance(self.pacing, self.weights)
        object.__setattr__(self, "pacing", pacing)
        object.__setattr__(self, "weights", weights)
        _check_memory(self.workers, self.memory)
        if self.inputs and self.then is None:
            raise ValueError(
                "inputs=True keeps the inputs beside the features of then=. Pass then= as well, or leave out inputs=."
            )
        if not runs_here(self.engine):
            if self.inputs:
                raise ValueError(
                    "inputs=True works on this machine only. Leave it out, or serve without engine=."
                )
            check_in_step(self.pacing, rebalance=self.rebalance)
            if self.restart is not None:
                raise ValueError(
                    "restart= works on this machine only, because trials on other machines would not "
                    "wait for the restarted stream. Leave out restart= or engine=."
                )
        if self.restart is not None and self.detach:
            raise ValueError(
                "A detached stream outlives this notebook, so the notebook cannot restart it. Leave "
                "out detach or restart. For both, serve it in a terminal: tsnb serve MODULE:NAME "
                "--name NAME --restart on-crash."
            )


@dataclass(frozen=True)
class TuneOptions:
    """How the workers of a loader that is being served are changed; see `Producer.tune`.

    Raises:
        ValueError: A value is out of bounds, or memory was given with a number.
    """

    workers: int | str = option(
        AUTO,
        _WORKERS,
        "number of loader processes; auto finds it (default: auto if NAME is given, else no change)",
    )
    memory: int | str | None = option(
        None, SIZE, "with auto: memory limit for all workers together (default: as before, else what is free)"
    )
    settle_s: float = option(
        0.0, _RECONNECT, "with auto: seconds to wait until the number has settled (default: 0)", "--settle"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.workers == 0:
            raise ValueError(
                "workers=0 is invalid, because a stream that is being served keeps at least one "
                'worker. Pass 1 or more, or "auto".'
            )
        _check_memory(self.workers, self.memory)


def _check_memory(workers: int | str | None, memory: int | str | None) -> None:
    if memory is not None and workers != AUTO:
        raise ValueError(
            'memory= limits what workers="auto" may use. Add workers="auto", or leave out memory=.'
        )


def check_in_step(pacing: str = "together", *, rebalance: bool = False) -> None:
    """Refuse options that would give one machine of a cluster's stream a pace of its own.

    The slowest machine keeps the others in step, and a machine's cores are divided by a process that knows all its
    trials.

    Raises:
        ValueError: Another pacing than "together" was chosen, or cores are to be moved.
    """
    if pacing != "together" or rebalance:
        what = "rebalance=" if rebalance else f"pacing {pacing!r}"
        raise ValueError(
            f"{what} works on one machine only, because a cluster stream keeps all its machines in "
            "step. Leave it out, or serve without engine=."
        )


def _options(of: Any) -> Iterator[tuple[str, _Option]]:
    """Yield the options of a dataclass, or of one of its instances: name and description."""
    for each in fields(of):
        if "option" in each.metadata:
            yield each.name, each.metadata["option"]


def _flag(name: str, each: _Option) -> str:
    return each.flag or f"--{name.replace('_', '-')}"


def add_options(parser: argparse.ArgumentParser, of: Any, surface: str) -> None:
    """Have a parser take the options of a dataclass.

    Args:
        parser: Where they are typed.
        of: The dataclass.
        surface: Which surface that is: "notebook" or "command".
    """
    defaults = of()
    for name, each in _options(of):
        if surface not in each.surfaces:
            continue
        more: dict[str, Any] = {"dest": name, "help": each.help.replace("%", "%%")}
        if each.kind is FLAG:
            parser.add_argument(_flag(name, each), action="store_true", **more)
            continue
        more |= {"type": each.kind.typed, "metavar": each.kind.metavar}
        if each.kind.repeats:
            parser.add_argument(_flag(name, each), action="append", default=[], **more)
        else:
            parser.add_argument(_flag(name, each), default=getattr(defaults, name), **more)


def typed(given: argparse.Namespace, of: Any) -> dict[str, Any]:
    """Return the options of a dataclass that were typed, or could have been, by name."""
    repeated = {name for name, each in _options(of) if each.kind.repeats}
    found = {name: getattr(given, name) for name, _ in _options(of) if hasattr(given, name)}
    return {name: dict(value) if name in repeated else value for name, value in found.items()}


def options_from(given: argparse.Namespace) -> StreamOptions:
    """Return the options of a stream that were typed.

    Raises:
        ValueError: They do not go together.
    """
    return StreamOptions(**typed(given, StreamOptions))


def check_options(of: Any, what: str = "") -> None:
    """Check the values of a dataclass's options, except those that are None, and make them Python's own types.

    Args:
        of: The dataclass's instance.
        what: What the options belong to, for the message: "trial 'cnn'".

    Raises:
        ValueError: One is of another type, or out of bounds.
    """
    for name, each in _options(of):
        value = getattr(of, name)
        if value is not None:
            object.__setattr__(of, name, each.kind.checked(f"{what}: {name}" if what else name, value))
