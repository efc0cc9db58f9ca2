"""A notebook's variables without a notebook, an outlet that remembers, and an end to what a test started."""

from __future__ import annotations

import gc
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from tsnb.experiments import trials
from tsnb.hosting import producer_kernels
from tsnb.kernels.cargo.unnamed_file import _Hold


class Notebook:
    """Stands for `__main__`, as a notebook's cells see it."""

    def __init__(self, module: types.ModuleType) -> None:
        self.variables = vars(module)

    def run(self, code: str) -> dict[str, Any]:
        exec(compile(code, "<cell>", "exec"), self.variables)
        return self.variables


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """Return fresh notebook variables; what is defined there travels by value."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return Notebook(module)


class Page:
    """An outlet that keeps what was shown, with the time of arrival."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, str, dict[str, Any]]] = []

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        self.shown.append((time.monotonic(), kind, content))

    @property
    def text(self) -> str:
        return "".join(content["text"] for _, kind, content in self.shown if kind == "stream")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [content for _, what, content in self.shown if what == kind]


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """End this test's trials and producers with it."""
    yield
    trials.clear()
    for kernel in producer_kernels.values():
        kernel.stop()


def cargoes() -> list[object]:
    """Return what this process has shipped and not let go of."""
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is _Hold]


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until
