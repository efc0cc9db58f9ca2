"""What the values of an option are: how they are typed, which will do, and what a message says of others."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from tsnb.text.words import bytes_of

__all__ = [
    "COUNT",
    "EPOCH",
    "EPOCH_COUNT",
    "FLAG",
    "SIZE",
    "TWO_OR_MORE",
    "Kind",
    "in_its_words",
    "is_number",
    "is_size",
    "is_whole",
    "one_of",
    "read_devices",
    "seconds",
    "share",
    "whole",
]


LEAST_BYTES = 1024
"""Of a size that is asked for: 3 is not three bytes, but 3 GiB whose unit was left out."""


@dataclass(frozen=True)
class Kind:
    """What an option's values are: how they are typed, and which will do."""

    wanted: str
    """What to give, as a message says it: "a number of batches, 1 or more"."""
    read: Callable[[str], Any]
    """Turns typed text into a value; raises ValueError where it cannot."""
    fits: Callable[[Any], bool]
    """Whether a value is within its bounds."""
    metavar: str = "N"
    """Stands for it in usage lines."""
    plain: Callable[[Any], Any] = lambda value: value
    """Turns a valid value into Python's own type: numpy's are accepted, but do not travel to a kernel."""
    told: bool = False
    """Whether `read` itself raises an error that says what is wrong with a text."""
    repeats: bool = False
    """Whether it may be typed several times: pairs of a name and a value, which make a mapping."""

    def typed(self, text: str) -> Any:
        """Return the value of what was typed. For argparse.

        Raises:
            ArgumentTypeError: It is not one, or out of bounds.
        """
        try:
            value = self.read(text)
            if self.fits(value):
                return value
            said = f"{text!r} is invalid. Pass {self.wanted}"
        except ValueError as error:
            said = str(error) if self.told else f"{text!r} is invalid. Pass {self.wanted}"
        raise argparse.ArgumentTypeError(said)

    def checked(self, name: str, value: Any) -> Any:
        """Return a value as Python's own type has it.

        Args:
            name: The keyword that it was given by.
            value: The value.

        Raises:
            ValueError: It is of another type, or out of bounds.
        """
        if not self.fits(value):
            raise ValueError(f"{name}={value!r} is invalid. Pass {self.wanted}.")
        return self.plain(value)


def in_its_words(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader as argparse takes it: what it says of a text stands in the error.

    Args:
        read: Turns typed text into a value; raises ValueError where it cannot.
    """
    return Kind("", read, lambda _: True, told=True).typed


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of any type. Booleans do not count."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_size(value: Any) -> bool:
    """Return whether a value is a size: a number of bytes, or a string with a unit. Booleans do not count."""
    if not isinstance(value, str) and not is_number(value):
        return False
    try:
        return LEAST_BYTES <= bytes_of(value) < 1 << 62
    except (ValueError, OverflowError):
        return False


def is_number(value: Any) -> bool:
    """Return whether a value is a number of any type. Booleans do not count."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole(wanted: str, least: int, *, most: int | None = None, metavar: str = "N") -> Kind:
    """Return the kind of whole numbers between two bounds."""

    def fits(value: Any) -> bool:
        return is_whole(value) and value >= least and (most is None or value <= most)

    return Kind(wanted, int, fits, metavar, int)


COUNT = whole("a whole number, 1 or more", 1)
TWO_OR_MORE = whole("a whole number, 2 or more", 2)
EPOCH = whole("an epoch: they count from 1, as in the panel", 1)
EPOCH_COUNT = whole("a whole number of epochs, 1 or more", 1)


def share(wanted: str, metavar: str = "2%") -> Kind:
    """Return the kind of shares, 0 to 1, which may be typed as percentages."""
    return Kind(wanted, _read_share, lambda value: is_number(value) and 0.0 <= value <= 1.0, metavar, float)


def _read_share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def read_devices(text: str) -> str | tuple[str, ...]:
    """Read a device, or several with commas between them, of which a planned sweep chooses one for each trial."""
    return tuple(word.strip() for word in text.split(",") if word.strip()) if "," in text else text


def seconds(wanted: str, fits: Callable[[Any], bool]) -> Kind:
    """Return the kind of seconds within bounds, which may be typed with an s behind them."""

    def fit(value: Any) -> bool:
        return is_number(value) and fits(value)

    return Kind(wanted, lambda text: float(text.removesuffix("s")), fit, "SECONDS", float)


def one_of(words: tuple[str, ...]) -> Kind:
    """Return the kind of words of which one is given."""
    return Kind(" or ".join(map(repr, words)), str, lambda value: value in words, "|".join(words))


SIZE = Kind(
    'a size with its unit, such as "512MiB" or "2GiB"',
    lambda text: int(bytes_of(text)),
    is_size,
    "2GiB",
    lambda value: int(bytes_of(value)),
)
FLAG = Kind("True or False", str, lambda _: True, "", bool)
"""On or off: typed without a value."""
