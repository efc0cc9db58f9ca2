"""Samples as bytes: every kind comes back as it was, in memory of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from tsnb.caching.encoding import decode, digest, encode, join, part


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


class Marked(torch.Tensor):
    """As torchvision's `tv_tensors`."""


def back(record: bytes) -> list[Any]:
    return decode(np.frombuffer(record, np.uint8).copy())


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(7, dtype=torch.float32),
        torch.randn(3, 5).bfloat16(),
        torch.randn(4, 6).t(),
        torch.randn(3, 1).expand(3, 9),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(8, 8)[2:5, 1:3],
        torch.randn(2, 4).as_subclass(Marked),
        np.arange(6).reshape(2, 3)[:, ::-1],
        np.zeros((2, 3, 4), np.uint8).transpose(1, 2, 0),
        np.array(["ab", "c"]),
        np.float32(1.5),
        {"a": [1, None, "x"], "b": (b"raw", 2.5)},
        Pair(torch.zeros(2, 2), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_comes_back(value: Any) -> None:
    """Values, types, shapes and dtypes; and an equal sample has equal bytes, which is what proofs compare."""
    (found,) = back(encode(value))
    assert type(found) is type(value)
    if isinstance(value, torch.Tensor):
        assert found.dtype == value.dtype
        assert torch.equal(found, value)
        assert found.stride() == value.stride() or value.shape == (3, 2), (
            "but for a window on something larger"
        )
        assert torch.equal(found.resolve_conj(), value.resolve_conj())
    elif isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert np.array_equal(found, value)
    elif isinstance(value, Pair):
        assert torch.equal(found.image, value.image)
        assert found.label == value.label
    else:
        assert found == value
    assert encode(found) == encode(value)


def test_a_picture_comes_back_with_its_mode_and_palette() -> None:
    """PIL's pictures are what torchvision's transforms get."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8))
    for made in (picture, picture.convert("P"), picture.convert("L")):
        (found,) = back(encode(made))
        assert found.mode == made.mode
        assert found.tobytes() == made.tobytes()
        assert found.getpalette() == made.getpalette()


def test_what_was_taken_is_of_nobody_else() -> None:
    """A user may change a sample in place; parts keep to themselves, and one bit makes another digest."""
    value = torch.arange(4.0), np.zeros(3)
    record = join([part(value), part("second")])
    first, second = back(record)
    assert second == "second"
    first[0].mul_(2)
    first[1][0] = 9
    assert torch.equal(back(record)[0][0], torch.arange(4.0))
    assert digest(record) != digest(record[:-1] + bytes([record[-1] ^ 1]))
    with pytest.raises(Exception, match="pickle"):
        encode(lambda: None)
