"""The public names of tsnb: complete, documented, typed."""

from __future__ import annotations

import inspect

import pytest

import tsnb
from tsnb import errors


def public_objects() -> list[str]:
    """Names that `from tsnb import *` gives."""
    return sorted(tsnb.__all__)


def test_all_is_what_dir_shows() -> None:
    """Tab completion offers exactly the public names, although they load lazily."""
    visible = {name for name in dir(tsnb) if not name.startswith("_")}
    assert set(tsnb.__all__) <= visible


@pytest.mark.parametrize("name", public_objects())
def test_every_public_name_is_documented(name: str) -> None:
    """A function, class or mapping that users reach has a docstring of its own."""
    found = getattr(tsnb, name)
    described = found if inspect.isroutine(found) or inspect.isclass(found) else type(found)
    text = inspect.getdoc(described)
    assert text, f"tsnb.{name} has no docstring"
    assert text[0].isupper() or text[0] in "`%", f"tsnb.{name}: {text.splitlines()[0]!r}"


@pytest.mark.parametrize(
    "name",
    [n for n in public_objects() if inspect.isfunction(getattr(tsnb, n)) and n != "load_ipython_extension"],
)
def test_every_parameter_of_a_public_function_is_explained(name: str) -> None:
    """Each parameter stands in the docstring, and is annotated, as the result is."""
    function = getattr(tsnb, name)
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    missing = [
        p for p in signature.parameters if f"{p}:" not in text and f"{p} (" not in text and p not in text
    ]
    assert not missing, f"tsnb.{name} does not explain {missing}"
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_every_error_of_ours_is_public_and_a_tsnb_error() -> None:
    """Users can catch each by its name in tsnb, or all of them as TsnbError."""
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.TsnbError)
        assert getattr(tsnb, name, None) is getattr(errors, name), f"tsnb.{name} is missing"


def test_the_error_tree_in_the_docstring_is_complete() -> None:
    """The tree drawn at the top of tsnb/errors.py names every class."""
    tree = errors.__doc__ or ""
    assert not [name for name in errors.__all__ if name not in tree]


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo fails as in any module, with the name in the message."""
    with pytest.raises(AttributeError, match="atach"):
        tsnb.atach  # noqa: B018  # the access is what is tested
