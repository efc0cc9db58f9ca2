"""Objects on their way to another kernel, and why some cannot go."""

from __future__ import annotations

import io
import pickle
import socket
import sqlite3
import stat
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tsnb.errors import NotShippable
from tsnb.kernels import pickling, shipping
from tsnb.kernels.shipping import fetch, ship


@pytest.fixture
def post(tmp_path: Path) -> Any:
    """Return a function that ships variables and fetches them again."""

    def send(**variables: Any) -> dict[str, Any]:
        ship(variables, tmp_path / "box", "trial 'cnn'")
        return fetch(tmp_path / "box")

    return send


def test_the_file_is_private_and_goes_with_the_fetch(tmp_path: Path) -> None:
    """Nobody else can read or put there what will be unpickled, and nothing is left."""
    path = tmp_path / "box"
    ship({"x": 1}, path, "a test")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        ship({"x": 2}, path, "a test")
    assert fetch(path) == {"x": 1}
    assert not path.exists()


def test_objects_that_belong_together_stay_together(post: Any) -> None:
    """Two variables that share an object share its copy."""
    shared = [1]
    arrived = post(a={"of": shared}, b={"of": shared})
    assert arrived["a"]["of"] is arrived["b"]["of"] is not shared


def test_a_running_loader_travels_without_its_iterator(post: Any) -> None:
    """Also deep inside an object; the notebook's own goes on."""
    data: Any = torch.arange(6)
    loader: Any = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
    running = iter(loader)
    next(running)
    arrived = post(parts={"train": [loader]})["parts"]["train"][0]
    assert arrived._iterator is None
    assert loader._iterator is running
    assert len(list(running)) == 2
    del running
    loader._iterator = None  # ends the worker


def test_a_notebook_function_uses_the_variables_of_where_it_arrives(
    notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that assigns `model` and calls the notebook's `train` trains its own model."""
    box = notebook.run("model, rate = 'notebook', 3\ndef train(): return model, rate")
    packed = _pack({"train": box["train"]})
    there = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", there)
    train = pickle.loads(packed)["train"]
    assert train.__globals__ is vars(there)
    assert train() == ("notebook", 3)
    vars(there)["model"] = "trial"
    assert train() == ("trial", 3)


def test_what_comes_back_changes_no_variable_of_the_notebook(notebook: Any) -> None:
    """Globals that a pulled function read there are added only where the notebook has none of the name."""
    box = notebook.run("scale = 1\ndef grow(x): return x * scale")
    packed = _pack({"grow": box["grow"]})
    box["scale"] = 10
    assert pickle.loads(packed)["grow"](2) == 20
    assert box["scale"] == 10


def _pack(variables: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pickling.pack(variables, pickling.Sink(file))
    return file.getvalue()


def test_a_notebook_class_comes_back_as_itself(notebook: Any, post: Any) -> None:
    """`isinstance` holds for what a trial gives back."""
    box = notebook.run("class Net:\n    def __init__(self): self.w = 3")
    assert type(post(net=box["Net"]())["net"]) is box["Net"]


def test_a_large_variable_is_named(post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit a warning says which variable, and how large."""
    monkeypatch.setattr(shipping, "LARGE_BYTES", 1000)
    with pytest.warns(UserWarning, match=r"trial 'cnn' takes a copy of .* MB along, most of it in 'images'"):
        post(images=torch.zeros(10_000), small=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        post(small=1)


class Holder:
    """Something with a part that cannot travel, deep inside."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, part: Any) -> None:
        self.harmless = [1, 2]
        self.cache = {"open": (part,)}


def iter_nothing() -> Iterator[int]:
    yield from ()


def obstacles() -> list[tuple[str, Any, str]]:
    return [
        ("an open file", open(__file__), "Keep its path"),
        ("an open file", open(__file__, "rb"), "Keep its path"),
        ("a lock", threading.Lock(), "__getstate__"),
        ("a lock", threading.Condition(), "__getstate__"),
        ("a generator", iter_nothing(), "__iter__"),
        ("a socket", socket.socket(), "Keep its address"),
        ("a database connection", sqlite3.connect(":memory:"), "Keep the database's path"),
    ]


def test_what_cannot_travel_is_named_with_its_path_and_the_fix(tmp_path: Path) -> None:
    """The message has the variable, the attribute path, what it is, and what to do; no file is left."""
    for what, part, fix in obstacles():
        with pytest.raises(NotShippable) as caught:
            ship({"fine": 1, "data": Holder(part)}, tmp_path / "box", "trial 'cnn'")
        message = str(caught.value)
        inner = "data.cache['open'][0]"
        assert message.startswith(f"trial 'cnn' cannot take 'data' along: {inner}"), message
        assert what in message
        assert fix in message
        assert not (tmp_path / "box").exists()
        if hasattr(part, "close"):
            part.close()


def test_what_a_function_closes_over_is_followed(tmp_path: Path, notebook: Any) -> None:
    """Cells and globals of a function lead to the culprit as attributes do."""
    box = notebook.run("import threading\nlock = threading.Lock()\ndef use(): return lock")
    with pytest.raises(NotShippable, match="use -> lock is a lock"):
        ship({"use": box["use"]}, tmp_path / "box", "trial 'cnn'")


def test_an_unknown_kind_of_obstacle_is_named_by_its_class(tmp_path: Path) -> None:
    """What no rule knows is still pointed at."""

    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("I stay")

    holder = Holder(Stubborn())
    with pytest.raises(NotShippable, match=r"data.cache\['open'\]\[0\] is a .*Stubborn"):
        ship({"data": holder}, tmp_path / "box", "trial 'cnn'")
