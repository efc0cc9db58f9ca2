"""How objects that `pickling` has written are read in another kernel.

- A class that this process has already stays exactly as it is. cloudpickle would set it back to what it was when the
  sender got it: attributes, patched methods, registries.
- A function of the notebook finds the variables of the kernel where it arrives; what that lacks is added. What a
  notebook fetches is read *apart*: functions keep the variables of the trial that they come from (what they lacked
  there they find as the notebook has it now), and the notebook gets no new ones.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import cloudpickle

from tsnb.kernels.cargo import pickling

__all__ = ["unpack", "unpack_bytes"]


class _CargoUnpickler(pickle.Unpickler):
    """Reads what `pack` wrote, and leaves existing objects alone.

    Args:
        file: Where it was written.
        apart: The variables that functions of the other kernel see; None: those of this one.
    """

    def __init__(self, file: BinaryIO, apart: dict[str, Any] | None) -> None:
        super().__init__(file)
        self._apart = apart
        self._here: dict[int, type] = {}
        self._instead: dict[str, Callable[..., Any]] = {
            "_make_skeleton_class": self._make_class,
            "_make_skeleton_enum": self._make_enum,
            "_class_setstate": self._set_class,
        }
        self._settling: dict[str, Callable[..., Any]] = {"_settle_class": self._settle_class}
        if apart is not None:
            self._settling.update(_settle=self._settle_apart, _settle_name=lambda _obj, _named: None)

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle refers to. Called by pickle."""
        if module == "cloudpickle.cloudpickle" and name in self._instead:
            return self._instead[name]
        if module == pickling.__name__ and name == "_main_variables" and self._apart is not None:
            return self._variables
        if module == pickling.__name__ and name in self._settling:
            return self._settling[name]
        found = super().find_class(module, name)
        # a pickle within the pickle
        return self._within if found in (pickle.loads, unpack_bytes) else found

    def _variables(self) -> dict[str, Any]:
        assert self._apart is not None
        return self._apart

    def _settle_apart(self, function: types.FunctionType, state: tuple[Any, dict[str, Any]]) -> None:
        plain, slots = state
        known, here = self._variables(), pickling._main_variables()
        known.update(slots["__globals__"])
        for name in cloudpickle.cloudpickle._extract_code_globals(function.__code__):
            if name not in known and name in here:
                known[name] = here[name]
        cloudpickle.cloudpickle._function_setstate(function, (plain, {**slots, "__globals__": {}}))

    def _within(self, data: bytes, **how: Any) -> Any:
        if how:  # another library's
            return pickle.loads(data, **how)  # noqa: S301
        return _CargoUnpickler(io.BytesIO(data), self._apart).load()

    def _make_class(self, *parts: Any) -> type:
        return self._own(parts) or cloudpickle.cloudpickle._make_skeleton_class(*parts)

    def _make_enum(self, *parts: Any) -> type:
        return self._own(parts) or cloudpickle.cloudpickle._make_skeleton_enum(*parts)

    def _own(self, parts: Sequence[Any]) -> type | None:
        """Return the class that this process has, if it is one: cloudpickle knows each by a number."""
        *_, tracker_id, _extra = parts
        found: type | None = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker_id)
        if found is not None:
            self._here[id(found)] = found
        return found

    def _settle_class(self, made: type, state: tuple[Any, str, dict[str, Any]]) -> None:
        own, qualname, named = state
        if id(made) not in self._here:
            pickling._settle_class(made, (own, qualname, {}))
        if self._apart is None:
            pickling._settle_name(made, named)

    def _set_class(self, made: type, state: Any) -> None:
        if id(made) not in self._here:
            cloudpickle.cloudpickle._class_setstate(made, state)


def unpack(file: BinaryIO, *, apart: bool = False) -> Any:
    """Read one object that `pack` wrote.

    Args:
        file: Where it was written. Never anything that others can write.
        apart: Whether its functions keep variables of their own instead of those of this process.

    Raises:
        Exception: Whatever the object raises on arrival.
    """
    return _CargoUnpickler(file, {"__name__": "__main__"} if apart else None).load()


def unpack_bytes(data: bytes) -> Any:
    """Read one object that `pack` wrote into memory."""
    return unpack(io.BytesIO(data))
