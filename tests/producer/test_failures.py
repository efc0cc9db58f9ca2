"""Whatever a loader raises arrives as `LoaderFailed` with its traceback, and the stream lives on."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.errors import LoaderFailed
from tsnb.stream.producer.failures import forget, message_of, shortened, text_of


class Mute(Exception):
    """Raises when it is printed."""

    def __str__(self) -> str:
        raise ValueError("not for you")

    __repr__ = __str__


class Exits(Exception):
    """Wants to end the process that prints it."""

    def __str__(self) -> str:
        raise SystemExit("out")


class Pretends(Exception):
    """Does not let itself be asked for its class."""

    @property  # type: ignore[misc]  # typeshed: it could be set
    def __class__(self) -> Any:
        raise RuntimeError("who asks?")


class Text(str):
    """Text that raises when it is used."""

    __slots__ = ()

    def strip(self, *_: Any) -> str:
        raise RuntimeError("no")

    splitlines = __add__ = strip  # type: ignore[assignment]


class SaysText(Exception):
    """Its text is of a class of its own."""

    def __str__(self) -> str:
        return Text("words")


class Wants(Exception):
    """Cannot be made of one argument."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(one, two)


class Untrue(Exception):
    """Is not true."""

    def __bool__(self) -> bool:
        raise RuntimeError("neither")


def ring() -> Exception:
    """Return an error whose cause's cause is itself."""
    one, two = ValueError("one"), Untrue("two")
    one.__cause__, two.__cause__ = two, one
    return one


def chain() -> Exception:
    """Return an error with very many causes."""
    error = first = ValueError("the last word")
    for number in range(5000):
        error.__context__ = ValueError(number)
        error = error.__context__
    return first


def local() -> Exception:
    """Return an error of a class that cannot be pickled."""

    class Local(Exception):
        pass

    return Local("of a local class")


def group() -> BaseException:
    """Return several at once."""
    if sys.version_info < (3, 11):
        return ValueError("several at once")
    made: type[BaseException] = vars(builtins)[
        "BaseExceptionGroup"
    ]  # not there for all Pythons that we lint for
    return made("several at once", [ValueError("a"), KeyboardInterrupt("b"), Mute("c")])


SHAPES: dict[str, tuple[Callable[[], BaseException], str]] = {
    "mute": (lambda: Mute("told"), "Mute"),
    "exits": (lambda: Exits("told"), "Exits"),
    "pretends": (lambda: Pretends("told"), "told"),
    "text": (lambda: SaysText("told"), "words"),
    "wants": (lambda: Wants(1, 2), "Wants"),
    "ring": (ring, "one"),
    "chain": (chain, "the last word"),
    "local": (local, "of a local class"),
    "group": (group, "several at once"),
    "huge": (lambda: ValueError("x" * (1 << 24)), "xxx"),
    "surrogates": (lambda: ValueError("\ud800 and \x00"), "\\ud800"),
    "base": (lambda: BaseException("told"), "told"),
    "interrupt": (lambda: KeyboardInterrupt("told"), "told"),
}


class Raises(Dataset[Any]):
    """Sample 10 raises."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 10:
            make, _ = SHAPES[self.shape]
            raise make()
        return torch.tensor(index)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_of_any_shape_is_told_with_its_traceback_and_the_stream_lives_on(shape: str) -> None:
    """Twice: the second time from the same loading thread."""
    with tsnb.serve(DataLoader(Raises(shape), 4), name="s", late_join=1.0) as producer:
        for _ in range(2):
            got: list[int] = []
            with pytest.raises(LoaderFailed, match="at batch 2 of pass") as raised:
                got.extend(int(x) for batch in tsnb.attach("c") for x in batch)
            assert got == list(range(8))
            told = raised.value
            assert SHAPES[shape][1] in told.summary + told.loader_traceback
            assert "__getitem__" in told.loader_traceback or shape in ("chain", "huge")
            str(told).encode()
        assert producer.status().state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "method"), [("mute", "fork"), ("wants", "fork"), ("local", "fork"), ("local", "spawn")]
)
def test_an_error_of_any_shape_comes_out_of_a_worker(shape: str, method: str) -> None:
    """Classes that cannot be pickled, too: torch's queue would lose the error, and wait for ever."""
    loader = DataLoader(Raises(shape), 4, num_workers=1, multiprocessing_context=method, timeout=30)
    with (
        tsnb.serve(loader, name="s", late_join=1.0),
        pytest.raises(LoaderFailed, match="at batch 2 of pass 1") as raised,
    ):
        list(tsnb.attach("c"))
    assert "__getitem__" in raised.value.loader_traceback


def _lambdas(samples: list[Any]) -> Any:
    return {"numbers": torch.stack(samples), "how": lambda: 0}


def test_a_batch_that_no_queue_takes_is_an_error_at_the_first_one() -> None:
    """A worker's first batches take the DataLoader's own way, whose thread would lose it."""
    loader = DataLoader(Raises("mute"), 4, num_workers=1, collate_fn=_lambdas, timeout=30)
    with pytest.raises(LoaderFailed, match="at batch 0 of pass 1") as raised:
        tsnb.serve(loader, name="s")
    assert "batch['how'] is a builtins.function" in str(raised.value)


def test_an_error_from_a_generators_end_does_not_end_the_loading_thread() -> None:
    """The epoch that was left is closed, which raises what no `except Exception` catches."""

    def clings(_epoch: int) -> Any:
        try:
            for _ in range(1000):
                yield torch.zeros(2)
        finally:
            raise SystemExit("cannot let go")

    with tsnb.serve(clings, name="s", window=2):
        for _ in range(3):
            for _batch in tsnb.attach("c"):
                break


def test_the_text_is_bounded_and_plain() -> None:
    """Of the end, which tells most; and every error is let go of."""
    for make, _ in SHAPES.values():
        error = make()
        assert type(text_of(error)) is type(message_of(error)) is str
        assert len(message_of(error)) <= 500
        forget(error)
    assert len(shortened("中" * (1 << 24))) < 100_000


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError(), AssertionError("")])
def test_an_error_that_says_nothing_is_not_said_to_raise(error: BaseException) -> None:
    """`assert x` says nothing, and neither does Ctrl-C: that is no fault of their str()."""
    assert message_of(error) == "(no message)"
