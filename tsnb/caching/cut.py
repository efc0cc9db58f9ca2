"""Where the fixed part of a sample ends, and its random part begins.

A data set says so itself (`tsnb.data.cache(dataset, then=augment)`), or its `transform` is where: torchvision's data
sets and most of the users' own call it in `__getitem__`. There a `Tap` takes its place, on a copy of the dataset: it
calls the user's own function, and notes what went in. What came out is found again in the sample by identity; with a
hole in its place the sample is a *template*. So a sample that was cut is

    the template, and for each call which function, and the arguments before it was called

and is made again by calling the user's functions on copies of these arguments. `learning` proves for each that it gives
the same sample before it is relied on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset, Subset

from tsnb.caching.encoding import part
from tsnb.draws import Draws
from tsnb.machine.clocks import cost_clock

__all__ = [
    "Cached",
    "Call",
    "ExplicitCut",
    "TappedCut",
    "Unsplittable",
    "cache",
    "cut_of",
    "filled",
    "template_of",
]

NAMES = ("transform", "target_transform", "transforms")
"""What torchvision calls them, and most users."""


class Unsplittable(Exception):
    """A sample cannot be cut; says why."""


class Hole:
    """Stands in a template for what a call returned."""

    def __init__(self, call: int, place: int | None) -> None:
        self.call = call
        self.place = place  # in the tuple that it returned; None: all of it


class Call(NamedTuple):
    """One call of a function that may draw, as it went."""

    function: str
    """Which."""
    arguments: bytes
    """`encoding.part` of (args, kwargs), before the call; empty where they cannot be kept."""
    problem: str
    """Why they cannot."""
    returned: Any
    before: Draws
    after: Draws
    took_s: float
    """What it cost, and noting it."""


class Cached(Dataset[Any]):
    """A data set whose samples are `then(dataset[index])`; made by `tsnb.data.cache`.

    Attributes:
        dataset: The fixed part: a kept sample is taken in its place.
        then: The random part, drawn anew each time; None: none.
    """

    def __init__(self, dataset: Any, then: Callable[[Any], Any] | None = None) -> None:
        self.dataset = dataset
        self.then = then

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        found = self.dataset[index]
        return found if self.then is None else self.then(found)


def cache(dataset: Any, then: Callable[[Any], Any] | None = None) -> Cached:
    """Mark the part of a dataset that is the same in every epoch.

    The samples are `then(dataset[index])`, with a cache and without. With `tsnb.serve(..., cache="2GiB")` the
    results of `dataset[index]` are kept where that saves the most time. Without `cache=` nothing is kept.

    Example:
        >>> loader = DataLoader(tsnb.data.cache(dataset), batch_size=8, num_workers=1)

    Args:
        dataset: Map-style dataset without random parts. It is asked for one sample at a time.
        then: Function of its result, for example the augmentation. Defaults to None, the result itself.

    Returns:
        A dataset for a `DataLoader`.

    Raises:
        TypeError: If `dataset` is not a map-style dataset, or `then` cannot be called.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(
            "tsnb.data.cache needs a dataset with __getitem__ and __len__, got "
            f"{type(dataset).__name__}. Samples that can only be iterated cannot be cached by number."
        )
    if then is not None and not callable(then):
        raise TypeError(f"then= must be a function of one sample, got {type(then).__name__}.")
    return Cached(dataset, then)


class ExplicitCut:
    """The cut of a `Cached` data set."""

    def __init__(self, dataset: Cached) -> None:
        self._dataset = dataset

    def fetch(self, index: Any) -> tuple[Any, list[Call]]:
        """Prepare a sample; return it and the calls that may have drawn."""
        found = self._dataset.dataset[index]
        calls: list[Call] = []
        return _called(calls, "then", self._then, (found,), {}), calls

    def call(self, _function: str, args: Any, kwargs: Any) -> Any:
        """Call what may draw."""
        return self._then(*args, **kwargs)

    def _then(self, found: Any) -> Any:
        return found if self._dataset.then is None else self._dataset.then(found)


class TappedCut:
    """The cut of a data set with a `transform` that draws.

    Args:
        dataset: The user's; stays as it is.
    """

    def __init__(self, dataset: Any) -> None:
        self._calls: list[Call] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        self._dataset = self._tapped(dataset)

    def _tapped(self, dataset: Any) -> Any:
        mine = copy.copy(dataset)
        if type(dataset) is Subset and not _names(dataset):
            mine.dataset = self._tapped(dataset.dataset)
            return mine
        for name in _names(dataset):
            self._functions[name] = getattr(dataset, name)
            setattr(mine, name, Tap(name, self))
        return mine

    def fetch(self, index: Any) -> tuple[Any, list[Call]]:
        """Prepare a sample; return it and the calls that may have drawn."""
        calls = self._calls = []
        return self._dataset[index], calls

    def tapped(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the user's, and note it."""
        return _called(self._calls, name, self._functions[name], args, kwargs)

    def call(self, function: str, args: Any, kwargs: Any) -> Any:
        """Call a function of the user's."""
        return self._functions[function](*args, **kwargs)

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the user's."""
        return self._functions[name]


class Tap:
    """Takes the place of a data set's `transform`, and passes for it."""

    def __init__(self, name: str, cut: TappedCut) -> None:
        self._tsnb = name, cut

    @property  # type: ignore[misc]  # typeshed: it could be set
    def __class__(self) -> Any:
        name, cut = self._tsnb
        return type(cut.function(name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name, cut = self._tsnb
        return cut.tapped(name, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_tsnb":  # while being copied, before it is set
            raise AttributeError(name)
        which, cut = self._tsnb
        return getattr(cut.function(which), name)


def _called(
    calls: list[Call], name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    began, arguments, problem = cost_clock(), b"", ""
    try:
        arguments = part((args, kwargs))
    except Exception as error:  # noqa: BLE001  # whatever a class of the user's raises; the sample itself is well
        problem = f"{type(error).__name__}: {error}"
    before = Draws.now()
    returned = function(*args, **kwargs)
    calls.append(Call(name, arguments, problem, returned, before, Draws.now(), cost_clock() - began))
    return returned


def _names(dataset: Any) -> list[str]:
    """Return the functions of a data set that may be where it is cut."""
    own = getattr(dataset, "__dict__", {})
    return [name for name in NAMES if callable(own.get(name))]


def cut_of(dataset: Any) -> ExplicitCut | TappedCut | None:
    """Return where a data set is cut; None where nothing says so. Called in a worker."""
    if isinstance(dataset, Cached):
        return ExplicitCut(dataset)
    inner = dataset
    while type(inner) is Subset and not _names(inner):
        inner = inner.dataset
    if not _names(inner):
        return None
    try:
        return TappedCut(dataset)
    except Exception:  # noqa: BLE001  # a class of the user's that cannot be copied, or lets nothing be set
        return None


def template_of(sample: Any, calls: Sequence[Call]) -> Any:
    """Return a sample with holes for what the calls returned.

    Raises:
        Unsplittable: Something that was returned is not in it as it is, or in several places that may be others.
    """
    wanted: dict[int, Hole] = {}
    for number, call in enumerate(calls):
        parts = call.returned if isinstance(call.returned, tuple) else (call.returned,)
        whole = not isinstance(call.returned, tuple) or _holds(sample, call.returned)
        for place, value in enumerate((call.returned,) if whole else parts):
            wanted[id(value)] = Hole(number, None if whole else place)
    found: dict[int, int] = {}
    made = _replaced(sample, wanted, found)
    for key, hole in wanted.items():
        name = calls[hole.call].function
        if not found.get(key):
            raise Unsplittable(
                f"the result of `{name}` is not part of the sample, because the code changes it afterwards"
            )
        if found[key] > 1 and isinstance(
            calls[hole.call].returned, (int, float, str, bytes, bool, type(None))
        ):
            raise Unsplittable(
                f"the result of `{name}` ({calls[hole.call].returned!r}) occurs twice in the sample"
            )
    return made


def _holds(tree: Any, value: Any) -> bool:
    found: dict[int, int] = {}
    _replaced(tree, {id(value): Hole(0, None)}, found)
    return bool(found)


def _replaced(tree: Any, wanted: dict[int, Hole], found: dict[int, int]) -> Any:
    if id(tree) in wanted:
        found[id(tree)] = found.get(id(tree), 0) + 1
        return wanted[id(tree)]
    if type(tree) in (tuple, list):
        return type(tree)(_replaced(each, wanted, found) for each in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_replaced(each, wanted, found) for each in tree))
    if type(tree) is dict:
        return {key: _replaced(value, wanted, found) for key, value in tree.items()}
    return tree


def filled(template: Any, returned: Sequence[Any]) -> Any:
    """Return the sample: a template with what the calls have returned now."""
    if isinstance(template, Hole):
        value = returned[template.call]
        return value if template.place is None else value[template.place]
    if type(template) in (tuple, list):
        return type(template)(filled(each, returned) for each in template)
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return type(template)(*(filled(each, returned) for each in template))
    if type(template) is dict:
        return {key: filled(value, returned) for key, value in template.items()}
    return template
