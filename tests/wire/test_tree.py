"""Taking batches apart and putting them together again."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, UserDict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnb.errors import BatchNotShareable
from tsnb.wire.tree import flatten, leaf_paths, unflatten


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
def test_other_mappings_come_back_as_dicts_in_their_order(mapping: Any) -> None:
    """A tokenizer's BatchEncoding is a UserDict."""
    assert list(there_and_back(mapping).items()) == [("b", 1), ("a", 2)]


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
        ({"a": [1, {2}]}, r"batch\['a'\]\[1\] is a builtins.set"),
        ([lambda: 0], r"batch\[0\] is a builtins.function"),
        ({(1, 2): 3}, r"batch has a key of type tuple"),
    ],
)
def test_what_cannot_be_shared_is_named_with_its_place(tree: Any, where: str) -> None:
    """The message names the place and where to change it."""
    with pytest.raises(BatchNotShareable, match=where):
        flatten(tree, classify)
