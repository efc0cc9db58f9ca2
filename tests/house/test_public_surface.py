"""The public names of tsnb: complete, documented, typed."""

from __future__ import annotations

import inspect
import pickle

import cloudpickle
import pytest

import tsnb
from tsnb import errors

NAMES = sorted(tsnb.__all__)


def test_dir_shows_what_is_public() -> None:
    """Tab completion offers the public names, although they load lazily."""
    assert set(tsnb.__all__) <= set(dir(tsnb))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    """A function, class, module or mapping that users reach has a docstring of its own."""
    found = getattr(tsnb, name)
    has_its_own = inspect.isroutine(found) or inspect.isclass(found) or inspect.ismodule(found)
    text = inspect.getdoc(found if has_its_own else type(found))
    assert text, f"tsnb.{name} has no docstring"
    assert not text.startswith(f"{name}("), f"tsnb.{name} has the docstring that dataclass makes up"


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_public_function_is_explained(name: str) -> None:
    """Each parameter stands in the docstring's Args and is annotated, as the result is."""
    function = getattr(tsnb, name)
    if not inspect.isfunction(function):
        return
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    assert not [p for p in signature.parameters if f"{p}:" not in text], f"tsnb.{name} leaves some out"
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_every_error_is_a_tsnb_error() -> None:
    """Users can catch each by its name in tsnb.errors, or all of them as TsnbError."""
    kinds = {name: getattr(errors, name) for name in errors.__all__}
    assert all(issubclass(kind, (errors.TsnbError, Warning)) for kind in kinds.values()), kinds


def test_the_error_tree_in_the_docstring_is_complete() -> None:
    """The tree drawn at the top of tsnb/errors.py names every class."""
    assert not [name for name in errors.__all__ if name not in (errors.__doc__ or "")]


def test_the_package_travels_by_name() -> None:
    """A function that says `tsnb.log` can be shipped to a background kernel."""
    assert pickle.loads(cloudpickle.dumps(tsnb)) is tsnb


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo fails as in any module, with the name in the message."""
    with pytest.raises(AttributeError, match="atach"):
        getattr(tsnb, "atach")  # noqa: B009  # type checkers would refuse the plain spelling
