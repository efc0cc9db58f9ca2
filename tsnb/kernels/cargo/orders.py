"""What this process tells a background kernel to do, as code and plain settings; and an answer that is an error.

Orders carry no objects (those are shipped, see `shipping`) and leave no names in the kernel's variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from tsnb import errors
from tsnb.config import limit_met
from tsnb.errors import LoaderFailed
from tsnb.kernels.cargo.capture import Captured
from tsnb.kernels.cargo.imported import effects_here
from tsnb.kernels.cargo.numerics import numerics_here, seed_here
from tsnb.kernels.cargo.unnamed_file import Cargo
from tsnb.text.printable import block, one_line, uncoloured
from tsnb.text.words import sentence

__all__ = ["as_written", "call", "require", "thread_variables", "to_arrive"]


def call(module: str, function: str, *arguments: Any) -> str:
    """Return the code that calls a function of ours in a child.

    The values go as one text: IPython reads code token by token, and a trial's settings have hundreds.

    Args:
        module: Its module, as it is imported.
        function: Its name.
        *arguments: Plain values, dictionaries and lists of them.
    """
    given = f"*__import__('ast').literal_eval({repr(arguments)!r})" if arguments else ""
    return f"__import__('importlib').import_module({module!r}).{function}({given})"


def to_arrive(cargo: Cargo, captured: Captured) -> dict[str, Any]:
    """Return the settings that `in_kernel.arrival.arrive` takes, and `changed`, for `Trial.rerun` to fill in.

    Called on the user's thread: some of torch's settings are each thread's own.

    Args:
        cargo: The captured variables, as `shipping.ship` wrote them.
        captured: What the cell takes along.
    """
    return {
        "cargo": cargo,
        "changed": None,
        "modules": dict(captured.modules),
        "imports": list(captured.imports),
        "effects": effects_here(vars(sys.modules["__main__"])),
        "sys_path": _sys_path(),
        "numerics": numerics_here(),
        "notebook_seed": seed_here(),
        "setup": "",
    }


def _sys_path() -> list[str]:
    """Return where modules are found here, as a kernel needs it that starts in this directory.

    "" is the directory that one is in, there as here. What was imported from a directory that one was in then
    (`import mine`, then `%cd data`) is found where it was; so is what a path found that was relative to it.
    """
    plain = [os.path.abspath(p) if p else "" for p in sys.path]  # noqa: PTH100 (strings, links kept)
    if plain == sys.path and "" not in plain:
        return plain
    former = [root for root in _roots() if root not in plain and root != os.getcwd()]  # noqa: PTH109
    at = next(i for i, path in enumerate(sys.path) if path != plain[i] or not path)
    return [*plain[: at + 1], *former, *plain[at + 1 :]]


def _roots() -> list[str]:
    """Return the directories of the path, now or before, that modules were imported from by their plain names."""
    looked_in = {getattr(finder, "path", entry) for entry, finder in list(sys.path_importer_cache.items())}
    found: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if "." not in name and name != "__main__" and isinstance(file, str):
            where = os.path.dirname(file)  # noqa: PTH120 (as above)
            found[os.path.dirname(where) if hasattr(module, "__path__") else where] = None  # noqa: PTH120
    return [root for root in found if root in looked_in and root.startswith("/")]


def as_written(magic: str, cell: str) -> str:
    """Return a cell's code with the line numbers that the notebook shows: its first line is the magic's.

    Args:
        magic: That line, as far as it is worth showing in a traceback ("%%trial cnn").
        cell: What stands below it.
    """
    if cell.lstrip().startswith("%%"):  # a second cell magic has to come first
        return cell
    return f"# {magic}\n{cell}"


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that has numerical libraries compute on so many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def require(reply: Mapping[str, Any], what: str = "", ours: tuple[type[Exception], ...] = ()) -> None:
    """Raise what went wrong in the kernel.

    Args:
        reply: Its reply.
        what: What was being done, where it was the user's own code.
        ours: Errors of Python's that our own code raises there on purpose.

    Raises:
        TsnbError: The reply tells of an error: of the same class where it is one of ours, else LoaderFailed.
    """
    if reply["status"] == "ok":
        return
    name, message = one_line(reply.get("ename", "Error")), block(reply.get("evalue", ""))
    kind: Any = {error.__name__: error for error in ours}.get(name) or getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not what:
        raise kind(message)
    traceback = uncoloured(reply.get("traceback", ()))
    said = f"{sentence(what or 'the loader could not be served')}: {name}: {message}{limit_met(message)}"
    raise LoaderFailed(
        said, "" if what else block(traceback)
    )  # the cell's own traceback stands under it already
