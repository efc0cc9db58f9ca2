"""Taking batches apart and putting them together again."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import OrderedDict, UserDict
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.errors import BatchNotShareable, SharedBatchWarning
from tsnb.stream.protocol.tree import checked_words, flatten, leaf_paths, unflatten


class Array:
    """Stands for a tensor: all that the tree knows is that the caller calls it an array."""


def classify(node: Any) -> str | None:
    return "tensor" if isinstance(node, Array) else None


def there_and_back(tree: Any) -> Any:
    leaves, spec = flatten(tree, classify)
    return unflatten(json.loads(json.dumps(spec)), iter(leaves))


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Box:
    image: Any
    label: int
    area: int = dataclasses.field(init=False, default=7)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.text() | st.integers() | st.none()
trees = st.recursive(
    scalars | st.builds(Array),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Box, inner, st.integers())
    ),
    max_leaves=20,
)


@given(trees)
def test_any_nesting_comes_back_equal_and_of_the_same_types(tree: Any) -> None:
    """Structure, key order, tuple or list, class: all survive a spec that is plain JSON."""
    back = there_and_back(tree)
    assert back == tree
    assert repr(back) == repr(tree), "tuple for tuple, True for True"


@given(trees)
def test_every_leaf_has_a_path(tree: Any) -> None:
    """A message can always say which leaf it means."""
    leaves, spec = flatten(tree, classify)
    assert len(leaf_paths(spec)) == len(leaves)


def test_paths_are_written_as_the_user_would() -> None:
    """Paths can be pasted behind the batch."""
    _, spec = flatten({"a": [Array(), Pair(1, Array())], 2: Box(Array(), 5)}, classify)
    assert leaf_paths(spec) == [
        "batch['a'][0]",
        "batch['a'][1].left",
        "batch['a'][1].right",
        "batch[2].image",
        "batch[2].label",
        "batch[2].area",
    ]


def test_a_list_of_scalars_is_one_leaf() -> None:
    """The file names of a batch cost one entry, and can be cut like a tensor."""
    leaves, _ = flatten([["a", "b", "c"], (1, 2)], classify)
    assert leaves == [["a", "b", "c"], [1, 2]]


@pytest.mark.parametrize("mapping", [OrderedDict(b=1, a=2), UserDict(b=1, a=2)])
def test_other_mappings_come_back_in_their_order_with_their_class(mapping: Any) -> None:
    """A tokenizer's BatchEncoding is a UserDict."""
    back = there_and_back(mapping)
    assert list(back.items()) == [("b", 1), ("a", 2)]
    assert type(back) is type(mapping)


MODULE = """
import dataclasses, typing
@dataclasses.dataclass
class Late:
    x: object
    def twice(self): return self.x * 2
class LatePair(typing.NamedTuple):
    x: object
    def twice(self): return self.x * 2
class LateDict(dict):
    def twice(self): return self["x"] * 2
"""


def test_a_class_whose_module_is_imported_later_is_there_from_then_on() -> None:
    """Until then a look-alike and a warning, or for what has none an error that names place and class."""
    name = "tests_wire_late"
    specs: list[Any] = [["data", name, "Late", ["x"], ["v"]], ["named", name, "LatePair", ["x"], ["v"]]]
    for spec in specs:
        with pytest.warns(SharedBatchWarning, match=f"{name}.Late.*Import the class"):
            made = unflatten(spec, iter([4]))
        assert made.x == 4 and not hasattr(made, "twice")
    inside: Any = ["dict", ["k"], ["kin", name, "LateDict", None, [], ["dict", ["x"], ["v"]]]]
    with pytest.raises(
        BatchNotShareable, match=rf"batch\['k'\] is a {name}.LateDict.*`import {name}` before"
    ):
        unflatten(inside, iter([4]))
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(MODULE, vars(module))
        made = [unflatten(s, iter([4])) for s in specs] + [unflatten(inside, iter([4]))["k"]]
        assert [m.twice() for m in made] == [8, 8, 8]
        exec(MODULE, vars(module))  # as when a notebook's cell is run again
        again = [unflatten(s, iter([4])) for s in specs]
        assert [type(m) for m in again] == [vars(module)["Late"], vars(module)["LatePair"]]
    finally:
        del sys.modules[name]


def test_a_class_of_a_spawned_workers_script_is_found_in_the_script() -> None:
    """There the script's own module is called __mp_main__."""
    made = dataclasses.make_dataclass("Own", ["x"])
    made.__module__ = "__mp_main__"
    assert flatten(made(1), classify)[1][:3] == ["data", "__main__", "Own"]
    kin = type("OwnDict", (dict,), {"__module__": "__mp_main__"})
    assert flatten(kin(x=1), classify)[1][:3] == ["kin", "__main__", "OwnDict"]


def test_a_class_that_nobody_can_find_is_refused() -> None:
    """It was made inside a function."""

    class Inside(dict[str, Any]):
        pass

    with pytest.raises(
        BatchNotShareable, match=r"batch\[0\] is a .*Inside, a class that other processes cannot find"
    ):
        flatten([Inside()], classify)


@pytest.mark.parametrize(
    "spec",
    [
        ["same", 0],
        ["list", ["same", 0], ["a", "tensor"]],
        ["list", ["a", "tensor"], ["same", True]],
        ["c", 1.5],
        ["c", []],
        ["kin", "m", "C", None, ["__class__"], ["c", None], ["c", 1]],
        ["kin", "m", "C", None, ["x"], ["c", None]],
        ["kin", "m", "C", 1, [], ["c", None]],
        ["kin", 1, "C", None, [], ["c", None]],
        ["enum", "m", "C", ["a", "tensor"]],
        ["enum", "m", "C"],
        ["made", "tensor", "m", [], ["a", "tensor"]],
        ["made", "tensor", [], ["__class__"], ["a", "tensor"], ["c", 1]],
        ["made", "tensor", [], []],
    ],
)
def test_a_spec_that_nobody_would_send_is_refused(spec: Any) -> None:
    """References forward, attributes that are not a user's, heads without children."""
    with pytest.raises(ValueError, match=r"."):
        checked_words(spec)


@pytest.mark.parametrize(
    "spec",
    [
        ["kin", "subprocess", "Popen", None, ["args"], ["c", None], ["c", "x"]],
        ["kin", "tempfile", "TemporaryDirectory", None, ["name"], ["c", None], ["c", "x"]],
        ["kin", "collections", "OrderedDict", None, [], ["list", ["a", "numpy"]]],
        ["kin", "collections", "UserDict", None, [], ["dict", ["x"], ["a", "numpy"]]],
        ["kin", "os", "stat_result", None, [], ["vt"]],
        ["kin", "collections", "defaultdict", "system", [], ["dict", [], *[]]],
        ["data", "subprocess", "Popen", ["args"], ["a", "numpy"]],
        ["enum", "collections", "OrderedDict", ["v"]],
    ],
)
def test_a_class_is_made_of_its_own_content_alone(spec: Any) -> None:
    """A name that comes from outside makes no object of a class that no batch is made of."""
    checked_words(spec)
    try:
        made = unflatten(spec, iter([[1, 2]]))
    except (ValueError, TypeError, LookupError):
        return
    assert type(made).__module__ == "types", "a look-alike with fields and nothing else"


def test_one_object_that_stands_twice_is_one() -> None:
    """Arrays and containers; what is equal only stays two."""
    array, inner = Array(), {"x": 1}
    back = there_and_back([array, inner, (array, inner), Array(), {"x": 1}])
    assert back[0] is back[2][0] and back[1] is back[2][1]
    assert back[3] is not back[0] and back[4] is not back[1]


def test_a_class_that_this_process_does_not_have_is_replaced_by_a_likeness() -> None:
    """Nothing is imported because a message names it."""
    spec = ["named", "no_such_module", "Gone", ["x", "y"], ["v"], ["v"]]
    made = unflatten(spec, iter([1, 2]))
    assert (made.x, made.y, type(made).__name__) == (1, 2, "Gone")
    made = unflatten(["data", "no_such_module", "Outer.Lost", ["x"], ["v"]], iter([3]))
    assert (made.x, type(made).__name__) == (3, "Lost")


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ({"a": [1, object()]}, r"batch\['a'\]\[1\] is a builtins.object"),
        ({"a": [1, {(2, 3)}]}, r"batch\['a'\]\[1\] holds a tuple"),
        ([lambda: 0], r"batch\[0\] is a builtins.function"),
        ({(1, 2): 3}, r"batch has a key of type tuple"),
    ],
)
def test_what_cannot_be_shared_is_named_with_its_place(tree: Any, where: str) -> None:
    """The message names the place and where to change it."""
    with pytest.raises(BatchNotShareable, match=where):
        flatten(tree, classify)
