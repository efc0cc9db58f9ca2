"""What a notebook has done to modules and classes that it has imported, for its background kernels to do as well.

A module travels by its name, and a kernel imports it as its file says. So whatever the notebook has changed in it since
is looked for, and done there again:

| in the notebook | how it is found |
|---|---|
| `lib.SCALE = 10`, `lib.Net.bias = False`, `setattr(lib, "SCALE", 10)` | in the cells, or the script |
| `lib.TABLE["a"] = 1`, `lib.ITEMS.append(x)` | there |
| a function or class of its own, put there by a decorator or call (`@patch`) | in what those name |
| `import lib.extras`, for what the import does | in the cells |

What counts is the value of now.

A change is made when the kernel imports the module: at once, where it has it already. An import is made again in a
kernel that has imported something of its package, and one of the user's own modules always. A change that cannot travel
is named when the kernel is started, with the way out.

What belongs to a process (`sys`, `os`) is left alone, and so is what is carried in another way (`numerics`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from tsnb.kernels.cargo import edits
from tsnb.kernels.cargo.pickling import pack
from tsnb.kernels.cargo.shipping import CellLines, lines_of, remember
from tsnb.kernels.cargo.unpickling import unpack_bytes
from tsnb.private.files import MANY_BYTES, read_foreign
from tsnb.text.words import sentence

__all__ = [
    "CHANGES",
    "Change",
    "changes_here",
    "effects_here",
    "import_again",
    "lacking",
    "packed",
    "take_changes",
]

CHANGES = "_tsnb_changes"
"""The variable in which they travel."""

_OF_A_PROCESS = frozenset(
    ["__main__", "__mp_main__", "sys", "os", "builtins", "signal", "io", "threading", "asyncio", "gc"]
)
_OURS = frozenset({"tsnb", "IPython", "ipykernel", "pytest", "_pytest"})
_WITHOUT_EFFECTS = _OF_A_PROCESS | _OURS | sys.stdlib_module_names | {"torch", "numpy"}
"""Packages whose parts add nothing to other parts by being imported."""

MOST_ENTRIES = 10_000
"""Entries of one table that are looked at."""


class Change(NamedTuple):
    """One thing that is other in an imported module than its file says."""

    module: str
    """The module."""
    path: tuple[str, ...]
    """Attributes on the way to the object that was changed; none: the module itself."""
    kind: str
    """What of it: an "attribute", an "item", or all of its "content"."""
    key: Any
    """Which attribute or item."""
    value: Any
    """What it is now."""

    @property
    def name(self) -> str:
        """What a user calls it: "lib.SCALE"."""
        where = ".".join([self.module, *self.path])
        return {"attribute": f"{where}.{self.key}", "item": f"{where}[{self.key!r}]"}.get(self.kind, where)

    def make(self) -> None:
        """Make it in this process, where the module is imported."""
        owner: Any = sys.modules[self.module]
        for step in self.path:
            owner = getattr(owner, step)
        if self.kind == "attribute":
            setattr(owner, self.key, self.value)
        elif self.kind == "item":
            owner[self.key] = self.value
        elif owner != self.value:
            owner.clear()
            (owner.extend if isinstance(owner, list) else owner.update)(self.value)


# -- in the notebook ---------------------------------------------------------------------------------------------


def changes_here(variables: Mapping[str, Any]) -> list[Change]:
    """Return what was changed in imported modules.

    Args:
        variables: The notebook's, by name.
    """
    found = [*_written(variables), *_held(variables)]
    return list(
        {(change.module, change.path, change.kind, repr(change.key)): change for change in found}.values()
    )


def packed(changes: Iterable[Change], purpose: str) -> dict[str, Any]:
    """Return changes as the variable in which they travel, those left out that cannot, which is said.

    Args:
        changes: The changes.
        purpose: What they are for: "trial 'cnn'".
    """
    travelling: dict[str, list[tuple[bytes, dict[str, CellLines]]]] = {}
    left_out = []
    for change in changes:
        file = io.BytesIO()
        try:
            code_files = pack(change, file)
        except Exception:  # noqa: BLE001 (whatever a part of it raises that cannot travel)
            left_out.append(change.name)
            continue
        travelling.setdefault(change.module, []).append((file.getvalue(), lines_of(code_files)))
    if left_out:
        warnings.warn(
            f"{sentence(purpose)} starts without your change of {', '.join(left_out)}, which cannot be "
            "pickled. Make that change in a %%trial --setup cell, or for a stream in the "
            "%%tensorsocket start cell that builds its loader.",
            stacklevel=4,
        )
    return {CHANGES: travelling} if travelling else {}


def effects_here(variables: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the modules that the cells import, in order, and whether each is the user's own."""
    names = dict.fromkeys(name for source in _sources(variables) for name in edits.read(source).modules)
    return [
        (name, _is_own(sys.modules[name]))
        for name in names
        if name in sys.modules and name.partition(".")[0] not in _WITHOUT_EFFECTS
    ]


def _is_own(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    installed = tuple(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib"))
    return isinstance(file, str) and not file.startswith(installed)


def _sources(variables: Mapping[str, Any]) -> list[str]:
    """Return the code that made this process what it is: a notebook's cells, or a script."""
    cells = variables.get("In")
    if isinstance(cells, list):
        return [cell for cell in cells if isinstance(cell, str)]
    file = variables.get("__file__")
    with contextlib.suppress(OSError, ValueError):
        return (
            [read_foreign(file, MANY_BYTES).decode()]
            if isinstance(file, str) and file.endswith(".py")
            else []
        )
    return []


def _written(variables: Mapping[str, Any]) -> Iterator[Change]:
    """Give the changes that stand in the code."""
    reads = [edits.read(source) for source in _sources(variables)]
    imports = {name: where for read in reads for name, where in read.imports.items()}
    for target in dict.fromkeys(target for read in reads for target in read.targets if _is_hashable(target)):
        if target.root in imports:
            with contextlib.suppress(Exception):  # it is gone meanwhile, or a property of it raises
                yield from _now(target, *imports[target.root], variables)


def _is_hashable(target: edits.Target) -> bool:
    with contextlib.suppress(TypeError):
        return bool(hash(target)) or True
    return False


def _now(target: edits.Target, module: str, attribute: str, variables: Mapping[str, Any]) -> Iterator[Change]:
    """Give a change with the value that holds now, where its name still means what was imported."""
    owner: Any = sys.modules[module]
    path: tuple[str, ...] = ()
    steps = [*([attribute] if attribute else []), *target.path]
    for number in range(len(steps) + 1):
        if number == bool(attribute) and variables.get(target.root, owner) is not owner:
            return
        if number < len(steps):
            owner, path = getattr(owner, steps[number]), (*path, steps[number])
        if isinstance(owner, types.ModuleType) and sys.modules.get(owner.__name__) is owner:
            module, path = owner.__name__, ()
    if not _is_carried(module) or (isinstance(owner, type) and owner.__module__ == "__main__"):
        return
    if target.kind == "attribute":
        value = vars(owner)[target.key] if isinstance(owner, type) else getattr(owner, target.key)
    elif target.kind == "item":
        value = owner[target.key]
    elif type(owner) in (dict, list, set):
        value = owner.copy()
    else:
        return
    yield Change(module, path, target.kind, target.key, value)


def _is_carried(module: str) -> bool:
    return module.partition(".")[0] not in _OF_A_PROCESS | _OURS and not module.startswith("torch.backends")


def _held(variables: Mapping[str, Any]) -> Iterator[Change]:
    """Give the functions and classes of the notebook that imported modules and classes hold."""
    named: dict[str, None] = {}
    reads = [edits.read(source) for source in _sources(variables)]
    imports = {name: where for read in reads for name, where in read.imports.items()}
    for name in dict.fromkeys(name for read in reads for name in _placing(read, variables)):
        value = variables.get(name)
        if isinstance(value, types.ModuleType):
            named[value.__name__] = None
        else:
            kinds = value.__mro__ if isinstance(value, type) else (type(value), value)
            named |= {str(getattr(kind, "__module__", "")): None for kind in kinds}
            named[imports.get(name, ("", ""))[0]] = None
    for name in named:
        module = sys.modules.get(name)
        if module is not None and name.partition(".")[0] not in _WITHOUT_EFFECTS:
            yield from _held_by(name, vars(module))


def _placing(read: edits.Code, variables: Mapping[str, Any]) -> Iterator[str]:
    """Give the names that may have put something of the notebook elsewhere: decorators, calls that are given it."""
    yield from read.decorators
    for called, *given in read.calls:
        if any(_is_of_notebook(variables.get(name)) for name in given):
            yield from (called, *given)


def _held_by(module: str, attributes: Mapping[str, Any]) -> Iterator[Change]:
    for name, value in list(attributes.items()):
        if _is_of_notebook(value):
            yield Change(module, (), "attribute", name, value)
        elif isinstance(value, type):
            if (
                value.__module__ in sys.modules
                and value.__module__ != "__main__"
                and _is_carried(value.__module__)
            ):
                for key, member in list(vars(value).items()):
                    if _is_of_notebook(member) or any(map(_is_of_notebook, _parts(member))):
                        path = tuple(value.__qualname__.split("."))
                        yield Change(value.__module__, path, "attribute", key, member)
        else:
            yield from _registered(module, (name,), value)
            for key, part in list(vars(value).items() if type(value).__dictoffset__ else ()):
                yield from _registered(module, (name, key), part)


def _registered(module: str, path: tuple[str, ...], table: Any) -> Iterator[Change]:
    """Give what is the notebook's of a table by name, and a list whole in which something is."""
    if type(table) is dict and len(table) <= MOST_ENTRIES:
        for key, value in list(table.items()):
            if _is_of_notebook(value):
                yield Change(module, path, "item", key, value)
    elif type(table) is list and len(table) <= MOST_ENTRIES and any(map(_is_of_notebook, table)):
        yield Change(module, path, "content", None, list(table))


def _parts(member: Any) -> Sequence[Any]:
    """Return what a descriptor wraps."""
    if isinstance(member, (types.FunctionType, type)):
        return ()
    inner = [getattr(member, name, None) for name in ("__func__", "fget", "func")]
    return [*inner, *getattr(member, "__dict__", {}).values()]


def _is_of_notebook(value: Any) -> bool:
    kind = type(value)  # isinstance would ask the object, and some warn of that
    if kind is types.FunctionType:
        return value.__module__ == "__main__" or value.__globals__ is vars(sys.modules["__main__"])
    return issubclass(kind, type) and value.__module__ == "__main__"


# -- in the kernel -----------------------------------------------------------------------------------------------


def import_again(effects: Iterable[Sequence[Any]]) -> None:
    """Import what the notebook has imported, if something of its package is there already, or it is the user's own.

    Args:
        effects: What `effects_here` returned there.
    """
    for name, own in effects:
        if own or name.partition(".")[0] in sys.modules:
            with contextlib.suppress(Exception):  # code that needs it will say what is wrong
                importlib.import_module(name)


def take_changes(travelled: Mapping[str, Sequence[tuple[bytes, Mapping[str, Any]]]]) -> None:
    """Make the changes, each when its module is there.

    Args:
        travelled: The variable in which they came.
    """
    waiting = _Waiting({name: parts for name, parts in travelled.items() if name not in sys.modules})
    for name in travelled.keys() - waiting.changes.keys():
        _make(name, travelled[name])
    if waiting.changes:
        sys.meta_path.insert(0, waiting)


def lacking(error: BaseException | None) -> str:
    """Return what to do about an error where an imported class or module lacks something here; "" of all others."""
    obj, name = getattr(error, "obj", None), getattr(error, "name", None)
    if not isinstance(error, AttributeError) or obj is None:
        return ""
    kind = obj if isinstance(obj, type) else type(obj)
    module = obj.__name__ if isinstance(obj, types.ModuleType) else kind.__module__
    if module.partition(".")[0] in _WITHOUT_EFFECTS:
        return ""
    return (
        f"note: {module} is imported again in a trial. If an import or a change in your notebook sets "
        f"{name!r} in it, put that line into a %%trial --setup cell."
    )


def _make(module: str, parts: Sequence[tuple[bytes, Mapping[str, Any]]]) -> None:
    for data, lines in parts:
        remember(lines)
        try:
            unpack_bytes(data).make()
        except Exception as error:  # noqa: BLE001 (whatever the user's objects raise): the code goes on without it
            print(f"the notebook's change of {module} could not be applied here: {error}", file=sys.stderr)  # noqa: T201


class _Waiting(MetaPathFinder):
    """Makes changes in modules as soon as they have been imported.

    Args:
        changes: By module.
    """

    def __init__(self, changes: dict[str, Sequence[tuple[bytes, Mapping[str, Any]]]]) -> None:
        self.changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as all others do, and have its changes made. Called by the import system."""
        parts = self.changes.pop(fullname, None)
        if parts is None:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        loader: Any = spec and spec.loader
        if loader is not None and not isinstance(loader, type):
            run = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                _make(fullname, parts)

            loader.exec_module = exec_module
        return spec
