"""What libraries find in a background kernel that a plain process would not have: spawned workers, progress bars.

Processes that a trial starts by spawn or forkserver need to find something, and may not leave anything behind. A
DataLoader's workers get their dataset by pickle there, which finds a class of `__main__` by name only, and the
worker's `__main__` is another one. So whatever multiprocessing pickles goes by value where it is defined in
`__main__`, as it came here. Forked workers have this process's own `__main__`: between them and it, a class is the
one of that name, as it is in a notebook.

Such processes share named semaphores, which Python's resource tracker removes when all of them have gone. A trial's
process group is killed as a whole, so the tracker must not be in it, or the names would stay in /dev/shm.

Progress bars are text: a widget of the kernel's own would open out of sight. `tqdm.auto` takes `tqdm.notebook`
wherever it runs in a kernel, so that module is another one here: the names of the real one, and behind them the bars
for terminals.
"""

from __future__ import annotations

import importlib
import io
import secrets
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import util
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

from tsnb.kernels.cargo.pickling import Sink, pack
from tsnb.kernels.cargo.unpickling import unpack_bytes
from tsnb.native.start_line import closed

__all__ = ["keep_tracker_apart", "let_main_travel", "text_bars"]

_family = ""
"""Names this process and those forked from it; empty in a spawned one."""


def let_main_travel() -> None:
    """Have multiprocessing take what `__main__` defines along by value, from now on."""
    global _family
    _family = secrets.token_hex(8)
    setattr(ForkingPickler, "reducer_override", _by_value)  # noqa: B010 (typeshed has it as a method)


def _by_value(_pickler: Any, obj: Any) -> Any:
    """Reduce a class or function of `__main__` to a copy of it; leave all else to pickle."""
    if not isinstance(obj, (type, types.FunctionType)) or getattr(obj, "__module__", "") != "__main__":
        return NotImplemented
    file = io.BytesIO()
    pack(obj, Sink(file))
    return _arrived, (_family, obj.__qualname__, file.getvalue())


def _arrived(family: str, qualname: str, data: bytes) -> Any:
    """Return the class or function that `_by_value` has reduced. Called by pickle, in the receiving process."""
    found: Any = sys.modules["__main__"] if family == _family else None
    for name in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found if isinstance(found, (type, types.FunctionType)) else unpack_bytes(data)


_spawn = util.spawnv_passfds


def keep_tracker_apart() -> None:
    """Have the resource tracker, when one is started, leave this process's group. It ends with its users anyway."""
    util.spawnv_passfds = _spawn_apart


def _spawn_apart(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Start a process as multiprocessing does, the tracker in a group of its own, none in the working directory."""
    *words, code = args
    if isinstance(code, str) and "from multiprocessing.resource_tracker" in code:
        code = f"import os; os.setpgid(0, 0); {code}"
    return _spawn(path, closed([*words, code]), passfds)


_NOTEBOOK = "tqdm.notebook"
_CHOOSERS = ("tqdm.auto", "tqdm.autonotebook")
"""They look once, when they are imported."""


class _TextBars(MetaPathFinder, Loader):
    """Finds `tqdm.notebook`, and fills it from `tqdm.std`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for that one module. Called by the import system."""
        return ModuleSpec(fullname, self) if fullname == _NOTEBOOK else None

    def exec_module(self, module: ModuleType) -> None:
        """Give it what the real one has. Called by the import system, only where tqdm is installed."""
        std = importlib.import_module("tqdm.std")
        words = {"tqdm": std.tqdm, "trange": std.trange, "tqdm_notebook": std.tqdm, "tnrange": std.trange}
        vars(module).update(words, IProgress=object, WARN_NOIPYW="")


def text_bars() -> None:
    """Have `tqdm.auto` and `tqdm.notebook` draw text. Called once, before anything of the user's is imported."""
    for name in (_NOTEBOOK, *_CHOOSERS):
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _TextBars())
