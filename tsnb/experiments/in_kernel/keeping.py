"""What is kept of a trial when its process ends: a sweep's trial with its code, others once many have ended after it.

A sweep of fifty trials would leave fifty processes, each with variables of which few are ever asked for. So they
travel to the notebook, in an unnamed file, as they would have later one by one; then the process ends.

| of | is kept |
|---|---|
| a trial outside a sweep | all of its variables except modules and names that begin with `_` |
| a sweep's function | what it returned |
| a sweep's cell | what it assigned; of what it took along plain values, and models and optimizers (trained in place) |

What cannot travel is left out; asking for it says why. If all of it is more than `KEPT_BYTES`, the process
stays, and keeps everything.

A process that stays gives memory back to the system (`let_go`, `trim`): six trials that keep what training once needed
can be too many for a machine. Activations that were freed lie in malloc's heaps, and in torch's cache on a GPU, from
which the system gets little back unasked; what an exception has broken off lies in the locals of its frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tsnb.errors import NotShippable
from tsnb.experiments.plan import FUNCTION, RESULT
from tsnb.kernels.cargo.lane import give
from tsnb.kernels.cargo.obstacles import find_obstacle
from tsnb.kernels.cargo.pickling import trained_parts
from tsnb.kernels.cargo.shipping import ship
from tsnb.text.words import did_you_mean

__all__ = ["KEPT_BYTES", "LEFT_OUT", "TORN", "arrived", "deliver", "keep", "let_go", "torn_apart", "trim"]

KEPT_BYTES = 256 * 2**20
"""What fifty trials leave on the disk shall not fill it."""

LEFT_OUT = "_tsnb_left_out"
"""The kept variable that says why each one that cannot travel was left out, by name."""

TORN = "_tsnb_torn"
"""What comes with fetched variables: each that shares trained parameters with one that was fetched before, and that."""

COMPARING_S = 2.0
"""How long it may take to find that out."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))

_OF_IPYTHON = frozenset({"In", "Out", "exit", "get_ipython", "open", "quit"})

_arrived: dict[str, int] = {}


def arrived(variables: dict[str, Any]) -> None:
    """Remember what the code found, so that what it assigned can be told from it. Called before the code."""
    _arrived.update({name: id(value) for name, value in variables.items()})


def keep(everything: bool, number: int) -> None:
    """Send the variables to the notebook. An order: called in the kernel, once the code has ended.

    Args:
        everything: What it took along, too; else what `_worth_keeping` says.
        number: Under which number they are expected.

    Raises:
        NotShippable: They are too large: the process has to stay.
    """
    wanted = _all_of_them() if everything else _worth_keeping()
    left_out: dict[str, str] = {}
    purpose = "this trial"
    try:
        cargo = ship({**wanted, LEFT_OUT: left_out}, purpose, most_bytes=KEPT_BYTES)
    except NotShippable:
        left_out = {name: why for name, value in wanted.items() if (why := _obstacle(name, value))}
        if not left_out:
            raise
        wanted = {name: value for name, value in wanted.items() if name not in left_out}
        cargo = ship({**wanted, LEFT_OUT: left_out}, purpose, most_bytes=KEPT_BYTES)
    give(number, cargo)


def _all_of_them() -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(sys.modules["__main__"]).items()
        if not name.startswith("_") and name not in _OF_IPYTHON and not isinstance(value, ModuleType)
    }


def _worth_keeping() -> dict[str, Any]:
    variables = vars(sys.modules["__main__"])
    if FUNCTION in variables:
        return {RESULT: variables[RESULT]} if RESULT in variables else {}
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (_arrived.get(name) != id(value) or isinstance(value, _PLAIN) or _is_trained(value))
    }


def _is_trained(value: Any) -> bool:
    """Return whether code changes it without assigning it."""
    # where a thread of the trial imports torch just now, nothing has been made of it yet
    nn, optim = (sys.modules.get(f"torch.{part}") for part in ("nn", "optim"))
    return isinstance(value, (getattr(nn, "Module", ()), getattr(optim, "Optimizer", ())))


def torn_apart(
    wanted: Mapping[str, Any], variables: Mapping[str, Any], before: Iterable[str]
) -> dict[str, str]:
    """Return which variables share parameters with one that was fetched before them, and with which: it has copies.

    Args:
        wanted: Those that are fetched now, together.
        variables: All that there are.
        before: Those that were fetched before.
    """
    former = {name: variables[name] for name in before if name in variables and name not in wanted}
    until_s = time.monotonic() + COMPARING_S
    found = {}
    for name, value in wanted.items() if former else ():
        own = trained_parts(value, until_s)
        together = (
            other for other, value in former.items() if not own.isdisjoint(trained_parts(value, until_s))
        )
        if own and (other := next(together, None)):
            found[name] = other
    return found


def _obstacle(name: str, value: Any) -> str:
    found = find_obstacle(value, name)
    if found is None:
        return ""
    return f"{found.path} is a {type(found.part).__name__}, which cannot leave its process"


def let_go(error: BaseException | None) -> None:
    """Let go of the locals of all frames that an exception has ended, once it has been shown."""
    seen: set[int] = set()
    waiting = [error, getattr(sys, "last_exc", None), getattr(sys, "last_value", None)]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            each.__traceback__ = None  # a frame that was looked at has its locals a second time, which stay
            waiting += [each.__cause__, each.__context__]
    sys.last_traceback = None


def trim() -> None:
    """Collect garbage, and give memory that is free inside this process back to the system."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # a kernel that failed on the GPU has broken the process's context: every later call raises
        with contextlib.suppress(Exception):
            torch.cuda.empty_cache()
    # glibc has it, musl and others do not
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def deliver(names: Sequence[str], before: Sequence[str], number: int) -> None:
    """Send some of the trial's variables to the notebook, together: what they share they share there.

    Args:
        names: The variables.
        before: Those that it has fetched before.
        number: Under which number it is expected.

    Raises:
        KeyError: The trial has no variable of that name; suggests one.
        NotShippable: It cannot travel.
    """
    variables = vars(sys.modules["__main__"])
    for name in names:
        if name not in variables:
            own = [n for n in variables if not n.startswith("_")]
            hint = did_you_mean(name, own)
            raise KeyError(f"The trial has no variable {name!r}.{hint}")
    wanted = {name: variables[name] for name in names}
    torn = torn_apart(wanted, variables, before)
    give(number, ship({**wanted, TORN: torn}, "this trial"))
