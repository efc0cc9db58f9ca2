"""Setting up a background kernel so that a cell finds there what it would find in the notebook.

Called in the child, on its main thread, before anything of the user's.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import random
import sys
from collections.abc import Mapping
from types import MethodType
from typing import Any

from tsnb.kernels.cargo.imported import CHANGES, import_again, take_changes
from tsnb.kernels.cargo.lane import take
from tsnb.kernels.cargo.numerics import take_on
from tsnb.kernels.cargo.shipping import fetch, title_of
from tsnb.kernels.in_kernel.surroundings import keep_tracker_apart, let_main_travel, text_bars
from tsnb.native.forks import guard

__all__ = ["arrive", "fetch_sent", "name_tracebacks", "report_crashes", "seed_everything", "use_threads"]


def arrive(settings: Mapping[str, Any], title: tuple[str, str]) -> dict[str, Any]:
    """Take in what was shipped, and return this kernel's variables.

    Args:
        settings: `sys_path`, `imports`, `effects`, `modules`, `numerics`, `notebook_seed` and `cargo` as
            `orders.to_arrive` makes them, the last one sent (`lane`): the number under which it was.
        title: What a traceback calls the cell ("Trial", "cnn").

    Raises:
        Exception: Whatever arriving objects raise, a module that is missing here, say.
    """
    text_bars()
    # in the notebook's order: what it has put before an installed package comes before that here, too
    sys.path[:] = dict.fromkeys([*settings["sys_path"], *sys.path])
    if settings["notebook_seed"] is not None:
        seed_everything(settings["notebook_seed"])
    variables = vars(sys.modules["__main__"])
    for name in settings["imports"]:
        importlib.import_module(name)
    variables.update({word: importlib.import_module(name) for word, name in settings["modules"].items()})
    arrived = fetch_sent(settings["cargo"])
    changes = arrived.pop(CHANGES, {})
    variables.update(arrived)
    import_again(settings["effects"])
    take_changes(changes)
    take_on(settings["numerics"], trial=title[0] == "Trial", device=settings.get("device"))
    variables.setdefault("tsnb", importlib.import_module("tsnb"))
    let_main_travel()
    keep_tracker_apart()
    name_tracebacks(title)
    report_crashes()
    guard()  # last: all that imports have to do at a fork is within it
    return variables


def fetch_sent(number: int) -> dict[str, Any]:
    """Return variables that the hub has sent under a number.

    Raises:
        Exception: Whatever arriving objects raise.
    """
    descriptor = take(number)
    try:
        return fetch(descriptor)
    finally:
        os.close(descriptor)


def name_tracebacks(title: tuple[str, str]) -> None:
    """Have tracebacks say "Trial cnn, line 3" of this kernel's cell; "Cell In[5]" is one of the notebook's."""
    from IPython.core.getipython import get_ipython

    compiler: Any = get_ipython().compile  # type: ignore[union-attr]
    if not hasattr(compiler, "format_code_name"):  # IPython 7 has no titles, and shows a cell's file
        return
    original = compiler.format_code_name

    def format_code_name(_: Any, name: str) -> tuple[str, str] | None:
        return title if original(name) is not None else title_of(name)

    compiler.format_code_name = MethodType(format_code_name, compiler)


def report_crashes() -> None:
    """Have a crash in compiled code leave its traceback in the log, past ipykernel's redirections."""
    descriptor = getattr(sys.stderr, "_original_stdstream_copy", None)
    if isinstance(descriptor, int):
        with contextlib.suppress(OSError, ValueError):
            faulthandler.enable(descriptor, all_threads=False)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators (all devices)."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the user's code may draw from the old generator)
    torch.manual_seed(seed)


def use_threads(threads: int) -> None:
    """Have torch compute on so many threads; its environment variable was set before the start."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
