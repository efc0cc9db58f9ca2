"""A trial's plan, settled before anything is started: its code, its parameters, our options, its name.

*Parameters* are the user's own (`lr=0.1`); *options* are ours. Both are plain values here: nothing in this module
starts anything; `check` looks at what the machine has.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tsnb.config import check_name
from tsnb.device_sharing.mps import with_mps
from tsnb.experiments.memory_queue import too_large
from tsnb.machine.placement import ANY_GPU, inside_name, place
from tsnb.option_kinds import COUNT, FLAG, SIZE, Kind, read_devices, whole
from tsnb.options import ENGINE, RESTART, RESTARTS, check_options, option, read_setting, runs_here
from tsnb.records.trackers import check_bridges
from tsnb.records.writes import own_number
from tsnb.text.masks import is_plain_word, masked
from tsnb.text.words import bytes_of

__all__ = [
    "FUNCTION",
    "LONGEST",
    "OPTION_NAMES",
    "PARAMETERS",
    "RESULT",
    "TrialOptions",
    "TrialPlan",
    "epochs_of",
    "name_of",
    "shown_value",
    "trial_name",
]

FUNCTION = "_tsnb_function"
PARAMETERS = "_tsnb_parameters"
RESULT = "result"
"""The variables of a trial that runs a function: it, its arguments, and what it returned."""


def _text(metavar: str, wanted: str = "text") -> Kind:
    return Kind(wanted, str, lambda value: isinstance(value, str), metavar)


def _is_nothing(size: Any) -> bool:
    """Tell whether a size is 0, or "0": bytes_of takes what is above that."""
    return size == "0" or (isinstance(size, (int, float)) and not isinstance(size, bool) and size == 0)


def read_words(text: str) -> tuple[str, ...]:
    """Read words with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


_PERCENT = whole("a share in percent, 1 to 100", 1, most=100, metavar="P")
_NEEDS = replace(
    SIZE,
    wanted=f"{SIZE.wanted}, or 0",
    read=lambda text: text if text == "0" else SIZE.read(text),
    fits=lambda value: _is_nothing(value) or SIZE.fits(value),
    plain=lambda value: 0 if _is_nothing(value) else SIZE.plain(value),
)
_THREADS = replace(
    COUNT,
    read=lambda text: tuple(map(int, text.split(","))) if "," in text else int(text),
    fits=lambda value: all(map(COUNT.fits, value)) if isinstance(value, tuple) else COUNT.fits(value),
    plain=lambda value: tuple(map(int, value)) if isinstance(value, tuple) else int(value),
)
"""Several numbers are for a planned sweep, which chooses one for each trial."""
_DEVICE = replace(_text("D"), read=read_devices, fits=lambda value: isinstance(value, (str, tuple)))
"""Several devices are for a planned sweep, which chooses one for each trial."""
_SEED = whole("a whole number, 0 or more", 0, metavar="S")
_SETTINGS = Kind("NAME=VALUE", read_setting, lambda _: True, "NAME=VALUE", told=True, repeats=True)
_TRACKERS = Kind("names of trackers", read_words, lambda _: True, "T")


@dataclass(frozen=True)
class TrialOptions:
    """How a trial is run, whatever its code."""

    stream: str | None = option(
        None, _text("P", "the name of a stream"), "stream that tsnb.attach() reads (default: the only one)"
    )
    batch_size: int | None = option(None, COUNT, "samples per batch of tsnb.attach() (default: the loader's)")
    device: str | None = option(
        None,
        _DEVICE,
        "the only device that the trial sees, where its batches go: cuda:1, gpu, mig:UUID or cpu; with "
        "--plan, several to pick one from",
    )
    mps_percent: int | None = option(
        None, _PERCENT, "share of the GPU's threads, in percent (needs NVIDIA's MPS)"
    )
    seed: int | None = option(None, _SEED, "seed for random, numpy and torch")
    threads: int | None = option(
        None,
        _THREADS,
        "torch threads (default: 1, or as the stream's balancer assigns); with --plan, several to pick the "
        "fastest from",
    )
    env: Mapping[str, str] = option(
        dict, _SETTINGS, "environment variable of its process (repeatable)", shown=False
    )
    after: str | None = option(
        None,
        _text("NAME", "the name of a trial, which must be done before this one starts"),
        "start when trial NAME is done (does not run if NAME ends in another way)",
    )
    needs: int | None = option(
        None,
        _NEEDS,
        "memory to wait for before the start; 0 starts at once (default: what the trial took before)",
    )
    restart: str | None = option(
        None,
        RESTART,
        "restart the trial when its process dies, from its last tsnb.checkpoint if any (at most three times "
        "without progress)",
    )
    detach: bool = option(
        False,
        FLAG,
        'keep the trial running when this notebook ends; another notebook finds it as tsnb.trials["NAME"]',
    )
    log_to: tuple[str, ...] = option(
        (), _TRACKERS, "also send logged numbers to tensorboard, mlflow, trackio or wandb (comma-separated)"
    )
    engine: str = option(
        "local",
        ENGINE,
        "ray: run the trial on a Ray cluster, this machine's or the one at ray://HOST:PORT; --device is then "
        "gpu or cpu, without --detach, --log-to and --mps-percent",
    )
    gate: Path | None = None
    """A file whose lock its first `attach` waits for (sweeps, so that all begin with the same batch)."""
    sweep: str = ""
    """The sweep that it belongs to."""
    in_turn: bool = False
    """Whether a plan starts it when it has its turn, as a sweep does with its own."""
    rotation: tuple[str, int, int] | None = None
    """With whom it takes turns on its stream: `config.AttachDefaults.rotation`."""

    def __post_init__(self) -> None:
        """Bring what one may as well write into the words above: all of it goes to another process as plain text."""
        plain = {
            "stream": _name_of(self.stream),
            "batch_size": _whole(self.batch_size),
            "device": _device(self.device),
            "seed": _whole(self.seed),
            "threads": _whole(self.threads),
            "mps_percent": _whole(self.mps_percent),
            "env": {name: str(value) for name, value in self.env.items()},
            "after": _name_of(self.after),
            "needs": _size(self.needs),
            "restart": _when(self.restart),
            "log_to": _listed(self.log_to),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def check(self, name: str) -> None:
        """Refuse invalid options.

        Args:
            name: The trial's name.

        Raises:
            ValueError: A number is too small, options do not go together, the device or engine does not exist, or an
                option does not work on a cluster.
            ExtraMissing: A tracker that its numbers are to go to is not installed.
        """
        check_name(name, "trial")
        check_options(self, f"trial {name!r}")
        if isinstance(self.threads, tuple):
            raise ValueError(
                f"Trial {name!r}: threads={self.threads} is invalid, because only a planned sweep picks from "
                "several numbers. Pass one number, or use tsnb.sweep(..., plan=True) or %%sweep --grid ... "
                "--plan."
            )
        if isinstance(self.device, tuple):
            raise ValueError(
                f"Trial {name!r}: device={self.device} is invalid, because only a planned sweep picks from "
                "several devices. Pass one device, or use tsnb.sweep(..., plan=True) or %%sweep --grid ... "
                "--plan."
            )
        if self.after == name:
            raise ValueError(f"Trial {name!r} cannot wait for itself. Name another trial in `after`")
        if self.needs is not None and (why := too_large(self.needs)):
            raise ValueError(f"Trial {name!r} {why}. Nothing was started.")
        if runs_here(self.engine):
            check_bridges(self.log_to)
            place(self.device, self.mps_percent, with_mps(self.env))
        else:
            self._check_for_cluster(name)

    def _check_for_cluster(self, name: str) -> None:
        here_only = {
            "detach": "its trials end with the process that started them",
            "mps_percent": "Ray gives whole GPUs",
            "needs": "tsnb does not measure the memory of other machines",
            "log_to": "trackers run on the notebook's machine (the project's records have its numbers)",
        }
        for what, why in here_only.items():
            if getattr(self, what):
                raise ValueError(
                    f"Trial {name!r}: {what} does not work with engine={self.engine!r}, because {why}. "
                    "Remove it."
                )
        if self.device not in (None, "cpu", *ANY_GPU):
            raise ValueError(
                f"Trial {name!r}: device={self.device!r} does not work with engine={self.engine!r}, because "
                "Ray chooses the device. Pass device='gpu' for one GPU of the cluster, or 'cpu'."
            )

    @property
    def given(self) -> dict[str, Any]:
        """Those that say something, for a look: what was left out is left out here too."""
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _UNSEEN}
        # not `in (None, False, ...)`: a seed of 0 equals False, and says something
        return {
            name: value
            for name, value in shown.items()
            if value is not None and value is not False and value not in ((), "local")
        }

    @property
    def attach(self) -> dict[str, Any]:
        """What the trial's kernel needs to know of them, as plain values."""
        return {
            "stream": self.stream,
            "batch_size": self.batch_size,
            "device": inside_name(self.device),
            "outside": self.device,
            "seed": self.seed,
            "threads": self.threads,
            "gate": None if self.gate is None else str(self.gate),
            "rotation": self.rotation,
            "log_to": list(self.log_to),
            "detach": self.detach,
            "in_turn": self.in_turn or bool(self.sweep),
        }


def _whole(number: Any) -> Any:
    """Return a whole number as Python's own, numpy's too (`grid={"seed": np.arange(3)}`); anything else as it is."""
    try:
        return operator.index(number)
    except TypeError:
        return number


def _device(device: Any) -> Any:
    """Return a device's name, torch's own too; of several a tuple, for `check` to refuse."""
    several = isinstance(device, (list, tuple))
    return tuple(map(str, device)) if several else None if device is None else str(device)


def _size(size: Any) -> Any:
    """Return bytes: "2GiB" is what stands on a magic's line; what is no size is left for `check` to refuse."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(bytes_of(size))
    return size


def _when(restart: Any) -> Any:
    """Return when a trial is started again: True and False are words for it, too."""
    return (RESTARTS[0] if restart else None) if isinstance(restart, bool) else restart


def _name_of(named: Any) -> Any:
    """Return the name of a trial or producer that was given itself."""
    return getattr(named, "name", named)


def _listed(words: str | Iterable[str]) -> tuple[str, ...]:
    """Return words as a tuple: `log_to="tensorboard,mlflow"` is what stands on a magic's line."""
    return read_words(words if isinstance(words, str) else ",".join(words))


_OURS_ALONE = frozenset({"gate", "sweep", "in_turn", "rotation"})
"""Words that a user's function may have as parameters of its own."""
_UNSEEN = frozenset({"env"}) | _OURS_ALONE
OPTION_NAMES = frozenset(f.name for f in fields(TrialOptions)) - _OURS_ALONE
"""What counts as an option of ours among keywords."""


@dataclass(frozen=True)
class TrialPlan:
    """The code to run."""

    name: str
    """The trial's name, also that of its consumers."""
    source: str
    """What its kernel runs: the cell with the line numbers that the notebook shows (`orders.as_written`), or a call
    of the function that was shipped."""
    arrival: Mapping[str, Any]
    """What the kernel needs to take in the variables (`orders.to_arrive`)."""
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The user's parameters."""
    options: TrialOptions = field(default_factory=TrialOptions)
    """How it is run."""
    text: str = ""
    """The user's code as it is kept in the project's records."""
    naming: Callable[[Mapping[str, Any], TrialOptions], str] | None = None
    """Makes its name, where that was made from parameters and options; None: it was given."""
    signature: inspect.Signature | None = None
    """The function's, where it is one that is run: new parameters have to fit it."""
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What that function is called with: the parameters, and those options that it has as parameters too."""
    changes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments that are not as they were shipped (`Trial.rerun`)."""
    reads: frozenset[str] = frozenset()
    """The variables that a cell took along: a rerun may change them."""
    sets: frozenset[str] = frozenset()
    """Those that a cell sets itself."""

    @property
    def seed(self) -> int | None:
        """What its generators are seeded with: the option, else what the notebook has seeded its own with."""
        given = self.options.seed
        return self.arrival["notebook_seed"] if given is None else given

    def discard(self) -> None:
        """Let go of the shipped variables: the trial will not run again."""
        for cargo in (self.arrival["cargo"], self.arrival["changed"]):
            if cargo is not None:
                cargo.close()


MOST_EPOCHS = 1 << 31


def epochs_of(fn: Callable[..., Any] | None, params: Mapping[str, Any]) -> int | None:
    """Return how many epochs a trial takes, as far as its parameter `epochs` says: given, or the function's default.

    Args:
        fn: What it runs; None: a cell.
        params: Its parameters; a cell's variables.

    Returns:
        None where it has no such parameter, or one that is not a whole number from 1 up.
    """
    number = params.get("epochs")
    if "epochs" not in params and fn is not None:
        with contextlib.suppress(TypeError, ValueError):  # built-in functions have no signature
            parameter = inspect.signature(fn).parameters.get("epochs")
            number = None if parameter is None else parameter.default
    with contextlib.suppress(TypeError):
        whole = operator.index(number)  # type: ignore[arg-type]  # what is not a number is refused here
        return whole if not isinstance(number, bool) and 0 < whole < MOST_EPOCHS else None
    return None


LONGEST = 64
"""Characters of a name, as `config.check_name` has it."""


def name_of(fn: Callable[..., Any]) -> str:
    """Return what trials and sweeps of a function are called: of a partial as its function, of an object as its class.

    A lambda's is "lambda": what Python calls it could name nothing.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    return _clean(str(getattr(fn, "__name__", type(fn).__name__)))[:LONGEST].rstrip("-._") or "trial"


def trial_name(stem: str, params: Mapping[str, Any]) -> str:
    """Return a name made of a stem and those parameters that read well in one: "train-lr0.1-augment-True".

    The same stem and values give the same name. Values that are neither numbers nor plain words (a dataset, a path)
    are left out, and so are secrets (`tsnb.text.masks`). Where text was left out, the name ends with a mark of it.

    Args:
        stem: What it begins with: the function's name.
        params: Parameters by name, in the order in which they are to stand.
    """
    shown = [(name, shown_value(value, name)) for name, value in params.items()]
    words = [f"{name}{_dash(text)}{text}" for name, text in shown if text]
    full = _clean("-".join([_clean(stem) or "trial", *words]))
    # secrets are not part of the mark: by it they could be guessed
    left_out = [
        (name, value) for name, value in params.items() if _is_long(value) and masked(value, name) is value
    ]
    if len(full) <= LONGEST and not left_out:
        return full
    mark = hashlib.sha256(repr((stem, shown, left_out)).encode()).hexdigest()[:6]
    return f"{full[: LONGEST - 7].rstrip('-._')}-{mark}"


def shown_value(value: Any, name: str = "") -> str:
    """Return a parameter in the form used in names: numbers short but exact to four digits, plain words; else nothing.

    Args:
        value: Its value.
        name: Its name: a secret never becomes part of a trial's name, however plain it looks.
    """
    if isinstance(value, (bool, int)) or value is None:
        return str(value)
    if isinstance(value, str):
        return value if is_plain_word(value) and masked(value, name) == value else ""
    if isinstance(value, float):
        value = float(value)  # numpy's own float64 has another repr
        return min(repr(value), f"{value:.4g}", key=len) if len(repr(value)) > 8 else repr(value)
    number = own_number(value)  # such as one of `grid={"width": np.array([32, 64])}`
    return "" if number is value else shown_value(number, name)


def _is_long(value: Any) -> bool:
    """Tell whether a value is text that no name has room for; two trials that differ in it have different names."""
    return isinstance(value, str) and bool(_clean(value)) and not is_plain_word(value)


def _dash(text: str) -> str:
    """A number stands at its parameter's name (lr0.1), a word behind a dash (optimizer-adam)."""
    return "" if text[:1].isdigit() else "-"


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
