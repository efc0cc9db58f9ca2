"""Whether what arrived is what was sent: types, bits, strides, attributes, and which objects are one."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

import numpy as np
import torch

__all__ = ["differences"]


def differences(want: Any, got: Any) -> list[str]:
    """Return where two batches differ, and in what."""
    run = _Comparison()
    run.compare(want, got, "batch")
    return run.wrong


class _Comparison:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._twins: dict[int, tuple[int, Any, Any]] = {}

    def compare(self, want: Any, got: Any, path: str) -> None:
        if type(want) is not type(got):
            self._differ(path, type(want), type(got))
            return
        if isinstance(want, (torch.Tensor, np.ndarray, list, dict)):
            twin = self._twins.setdefault(id(want), (id(got), want, got))
            if twin[0] != id(got):
                self._differ(path, "one object", "two")
        kind = next((k for k in self._WAYS if isinstance(want, k)), object)
        self._WAYS[kind](self, want, got, path)
        here, there = _attributes(want), _attributes(got)
        if here.keys() != there.keys():
            self._differ(path, list(here), list(there))
        for name in here.keys() & there.keys():
            self.compare(here[name], there[name], f"{path}.{name}")

    def _tensors(self, want: torch.Tensor, got: torch.Tensor, path: str) -> None:
        kinds = [[str(x.dtype), tuple(x.shape), x.stride(), x.requires_grad, x.is_leaf] for x in (want, got)]
        if kinds[0] != kinds[1] or not torch.equal(_bits(want), _bits(got)):
            self._differ(path, (want, kinds[0]), (got, kinds[1]))

    def _arrays(self, want: Any, got: Any, path: str) -> None:
        kinds = [
            (x.dtype, x.dtype.isalignedstruct, x.dtype.type, x.shape, x.size and x.strides)
            for x in (want, got)
        ]
        if kinds[0] != kinds[1]:
            self._differ(path, *kinds)
        elif want.dtype.char in "gG":  # of its 16 bytes 6 are nobody's
            if not np.array_equal(want, got, equal_nan=True):
                self._differ(path, want, got)
        elif want.tobytes() != got.tobytes():
            self._differ(path, want, got)

    def _masked(self, want: Any, got: Any, path: str) -> None:
        for one, other in ((want.data, got.data), (_mask(want), _mask(got))):
            self.compare(one, other, path)
        kinds = [(x.hardmask, np.asarray(x.fill_value).tobytes()) for x in (want, got)]
        if kinds[0] != kinds[1]:
            self._differ(path, *kinds)

    def _dicts(self, want: Any, got: Any, path: str) -> None:
        held = [
            list((collections.OrderedDict if isinstance(x, collections.OrderedDict) else dict).items(x))
            for x in (want, got)
        ]
        keys = [[(type(key), key) for key, _ in pairs] for pairs in held]
        if keys[0] != keys[1] or getattr(want, "default_factory", None) is not getattr(
            got, "default_factory", None
        ):
            self._differ(path, want, got)
            return
        for (key, one), (_, other) in zip(*held, strict=True):
            self.compare(one, other, f"{path}[{key!r}]")

    def _sequences(self, want: Any, got: Any, path: str) -> None:
        if len(want) != len(got):
            self._differ(path, want, got)
            return
        for index, (one, other) in enumerate(zip(want, got, strict=True)):
            self.compare(one, other, f"{path}[{index}]")

    def _numbers(self, want: complex, got: complex, path: str) -> None:
        if any(struct.pack("<dd", x.real, x.imag) != struct.pack("<dd", got.real, got.imag) for x in (want,)):
            self._differ(path, want, got)

    def _moments(self, want: Any, got: Any, path: str) -> None:
        if want != got or repr(want) != repr(got):  # fold and zone too
            self._differ(path, want, got)

    def _decimals(self, want: Decimal, got: Decimal, path: str) -> None:
        if want.as_tuple() != got.as_tuple():
            self._differ(path, want, got)

    def _members(self, want: enum.Enum, got: enum.Enum, path: str) -> None:
        if want is not got:
            self._differ(path, want, got)

    def _others(self, want: Any, got: Any, path: str) -> None:
        if not _attributes(want) and want != got:
            self._differ(path, want, got)

    # fmt: off
    _WAYS: Any = {  # noqa: RUF012  # a table
        torch.Tensor: _tensors, np.ma.MaskedArray: _masked, np.ndarray: _arrays, np.generic: _arrays,
        enum.Enum: _members, dict: _dicts, list: _sequences, tuple: _sequences, float: _numbers,
        complex: _numbers, dt.datetime: _moments, dt.time: _moments, Decimal: _decimals, object: _others,
    }
    # fmt: on

    def _differ(self, path: str, want: Any, got: Any) -> None:
        self.wrong.append(f"{path}: {want!r:.200} became {got!r:.200}")


def _mask(array: Any) -> Any:
    return array.mask if array.mask is np.ma.nomask else np.asarray(array.mask)


_VALUES = (type, enum.Enum, np.ma.MaskedArray, np.memmap, torch.Size, Decimal, Fraction, PurePath, UUID)
"""Whose attributes are their value, or numpy's own."""


def _attributes(node: Any) -> dict[str, Any]:
    """Return an object's attributes, those in slots too."""
    if isinstance(node, _VALUES):
        return {}
    slots = [s for k in type(node).__mro__ for s in vars(k).get("__slots__", ()) if isinstance(s, str)]
    return {
        **{s: getattr(node, s) for s in slots if s[:2] != "__" and hasattr(node, s)},
        **getattr(node, "__dict__", {}),
    }


def _bits(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as bytes, in the order of its indices."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        plain = torch.empty(x.shape, dtype=x.dtype).copy_(x.detach().as_subclass(torch.Tensor))
        return plain.reshape(-1).view(torch.uint8) if x.numel() else torch.empty(0)
