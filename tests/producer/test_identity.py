"""What tells one order from another: equal in every process for the same code and values, and not after an edit."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from itertools import islice
from typing import Any

import pytest
import torch

import tsnb
from tests.producer.sources import Stand
from tsnb.errors import ProducerGone
from tsnb.stream.loader.identity import identity

BEGIN = """
import functools, threading, re, random, pathlib, collections
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset
class Rows(Dataset):
    def __init__(self, rows=range(12)): self.rows = list(rows)
    def __len__(self): return len(self.rows)
    def __getitem__(self, index): return self.rows[index]
names = {"a", "b", "c", "d", "e"}
lock, table = threading.Lock(), {"x": np.arange(5.0), "y": torch.ones(3)}
"""
EDITS: dict[str, tuple[str, str, str]] = {
    "a function's code": (
        "def make(epoch): return [[i] for i in range(9)]",
        "range(9)",
        "reversed(range(9))",
    ),
    "a number that it has": ("def make(epoch): return [[i * 2] for i in range(9)]", "* 2", "* 3"),
    "a global of it": (
        "step = 1\ndef make(epoch): return [[i] for i in range(9)[::step]]",
        "step = 1",
        "step = -1",
    ),
    "a function that it calls": (
        "def order(n): return range(n)\ndef make(epoch): return [[i] for i in order(9)]",
        "return range(n)",
        "return sorted(range(n), key=lambda i: -i)",
    ),
    "a default": ("def make(epoch, n=range(9)): return [[i] for i in n]", "n=range(9)", "n=range(8, -1, -1)"),
    "a closure": (
        "def outer(n):\n    def make(epoch): return [[i] for i in n]\n    return make\nmake = outer([1, 2, 3])",
        "[1, 2, 3]",
        "[3, 2, 1]",
    ),
    "a partial": (
        "def of(n, epoch): return [[i] for i in n]\nmake = functools.partial(of, (1, 2))",
        "(1, 2)",
        "(2, 1)",
    ),
    "a method's object": (
        (
            "class Maker:\n    def __init__(self, n): self.n = n\n    def make(self, epoch): return self.n\n"
            "make = Maker([[1], [2]]).make"
        ),
        "[[1], [2]]",
        "[[2], [1]]",
    ),
    "a generator's seed": (
        "rng = np.random.default_rng(1)\ndef make(epoch): return [[i] for i in rng.permutation(9)]",
        "default_rng(1)",
        "default_rng(2)",
    ),
    "torch's generator": (
        "rng = torch.Generator().manual_seed(1)\ndef make(epoch): return torch.randperm(9, generator=rng)[:, None]",
        "manual_seed(1)",
        "manual_seed(2)",
    ),
    "a random.Random": (
        "rng = random.Random(1)\ndef make(epoch): return rng.sample(range(9), 9)",
        "Random(1)",
        "Random(2)",
    ),
    "a pattern": ("wanted = re.compile('a')\ndef make(epoch): return [wanted.findall('ab')]", "'a'", "'b'"),
    "a list of batches": ("make = [[1], [2], [3]]", "[1], [2]", "[2], [1]"),
    "tensors of a list": ("make = [torch.arange(4), torch.arange(4) + 4]", "+ 4", "+ 5"),
    "a sequence's code": (
        (
            "class Seq:\n    def __len__(self): return 3\n    def __getitem__(self, i):\n"
            "        if i > 2: raise IndexError\n        return [i]\nmake = Seq()"
        ),
        "return [i]",
        "return [2 - i]",
    ),
    "one that is told the epoch": (
        (
            "class Told:\n    def set_epoch(self, epoch): self.epoch = epoch\n"
            "    def __iter__(self): return iter([[1], [2]])\nmake = Told()"
        ),
        "iter([[1], [2]])",
        "iter([[2], [1]])",
    ),
    "a sampler's code": (
        (
            "class Own(Sampler):\n    def __init__(self, data): self.data, self.generator = data, None\n"
            "    def __len__(self): return 12\n    def __iter__(self): return iter(range(12))\n"
            "data = Rows()\nmake = DataLoader(data, 4, sampler=Own(data))\nseed = 1"
        ),
        "iter(range(12))",
        "iter(range(11, -1, -1))",
    ),
    "a sampler's attribute": (
        (
            "class Own(Sampler):\n    def __init__(self, start): self.start, self.generator = start, None\n"
            "    def __len__(self): return 6\n    def __iter__(self): return iter(range(self.start, self.start + 6))\n"
            "make = DataLoader(Rows(), 4, sampler=Own(0))\nseed = 1"
        ),
        "Own(0)",
        "Own(6)",
    ),
    "a batch sampler's code": (
        (
            "class Own:\n    def __len__(self): return 3\n    def set_epoch(self, epoch): self.epoch = epoch\n"
            "    def __iter__(self): return iter([[0, 1], [2, 3], [4, 5]])\n"
            "make = DataLoader(Rows(), batch_sampler=Own())\nseed = 1"
        ),
        "[[0, 1], [2, 3]",
        "[[2, 3], [0, 1]",
    ),
    "an IterableDataset's code": (
        (
            "class Flow(IterableDataset):\n    def __iter__(self): return iter(range(12))\n"
            "make = DataLoader(Flow(), 4, num_workers=1)\nseed = 1"
        ),
        "iter(range(12))",
        "iter(range(11, -1, -1))",
    ),
    "a dataset's rows": ("make = DataLoader(Rows(range(12)), 4)", "range(12)", "range(11, -1, -1)"),
    "a list of batches of indices, the last one shorter": (
        "make = DataLoader(Rows(), batch_sampler=[[0, 1, 2], [3, 4, 5], [6, 7]])",
        "[[0, 1, 2], [3, 4, 5]",
        "[[3, 4, 5], [0, 1, 2]",
    ),
    "rows of a table of pandas": (
        (
            "import pandas\nmake = DataLoader(Rows(), 4)\nmake.dataset.table = pandas.DataFrame("
            "{'path': [f'{i}.png' for i in range(12)], 'label': range(12)}).sort_values('path')"
        ),
        "sort_values('path')",
        "sort_values('label')",
    ),
    "rows of a table of pandas that hold lists": (
        (
            "import pandas\nmake = DataLoader(Rows(), 4)\n"
            "make.dataset.table = pandas.DataFrame({'words': [[i, i + 1] for i in range(12)]})[::1]"
        ),
        "[::1]",
        "[::-1]",
    ),
    "records": (
        (
            "make = DataLoader(Rows(), 4)\nmake.dataset.table = "
            "[{'path': pathlib.Path(f'{i}.png'), 'box': (1, i), 'label': np.int64(i)} for i in range(12)][::1]"
        ),
        "[::1]",
        "[::-1]",
    ),
    "rows of a matrix": (
        "make = DataLoader(Rows(), 4)\nmake.dataset.table = torch.arange(24).view(12, 2)",
        "torch.arange(24)",
        "torch.arange(24).flip(0)",
    ),
    "a list of tensors and their labels": (
        "make = DataLoader(Rows(), 4)\nmake.dataset.table = [(torch.full((3, 4), i), i) for i in range(12)][::1]",
        "[::1]",
        "[::-1]",
    ),
    "a plain list's samples": ("make = DataLoader([1, 2, 3, 4], 2)", "[1, 2, 3, 4]", "[4, 3, 2, 1]"),
    "labels beside images": (
        "make = DataLoader(TensorDataset(torch.zeros(4, 2), torch.arange(4)), 2)",
        "torch.arange(4)",
        "torch.arange(4).flip(0)",
    ),
}


def order_of(code: str) -> str:
    """Return the order's identity as another process has it, with other addresses and another order of sets."""
    script = (
        f"{BEGIN}\n{code}\nfrom tests.producer.sources import Stand\n"
        "with Stand(make, globals().get('seed'), fit=False) as stand: print(stand.source.order)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip()


def here(code: str) -> str:
    """Return the same, in this process."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{BEGIN}\n{code}", names)
    with Stand(names["make"], names.get("seed"), fit=False) as stand:
        return str(stand.source.order)


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_that_may_change_the_order_makes_it_another_one(what: str) -> None:
    """And the same code once more has the same."""
    code, old, new = EDITS[what]
    assert old in code
    assert here(code) == here(code) != ""
    assert here(code.replace(old, new)) not in ("", here(code))


@pytest.mark.slow
def test_the_same_code_and_values_are_the_same_in_every_process() -> None:
    """Sets, locks, patterns, classes and nested functions among them."""
    code = (
        "class Maker:\n    kinds = {'x', 'y', 'z'}\n    def __init__(self): self.names, self.lock = names, lock\n"
        "    def make(self, epoch):\n        def inner(i): return table['x'][i], re.compile('a+'), self.kinds\n"
        "        return [inner(i) for i in range(3)]\nmake = Maker().make"
    )
    assert order_of(code) == order_of(code) != ""


def test_to_have_been_copied_makes_no_class_another_one() -> None:
    """Python notes at a class what it has found out when it copies one of its objects."""

    class Rows:
        def __init__(self) -> None:
            self.number = 5

        def __call__(self, epoch: int) -> int:
            return epoch + self.number

    before = identity(Rows())
    copy.copy(Rows())
    assert "__slotnames__" in vars(Rows)
    assert identity(Rows()) == before


def test_what_cannot_be_described_is_like_nothing() -> None:
    """An open file, a running generator."""
    for code in ("lines = open('/dev/null')", "lines = (i for i in range(9))", "lines = iter([1, 2])"):
        make = f"{code}\ndef make(epoch): return [[line] for line in lines]"
        assert here(make) != here(make)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def __getitem__(self, i): return i", "def __getitem__(self, i): return i * 2"),
        ("scale = 1", "scale = 2"),
    ],
)
def test_another_augmentation_is_no_other_order(before: str, after: str) -> None:
    """Of a DataLoader with torch's own samplers: running trials go on with it."""
    code = (
        "class Own(Dataset):\n    scale = 1\n    def __len__(self): return 12\n    def __getitem__(self, i): return i\n"
        "make = DataLoader(Own(), 4, shuffle=True)\nseed = 1"
    )
    assert here(code) == here(code.replace(before, after)) != ""


def test_rows_that_are_no_plain_values_do_not_count() -> None:
    """An image that is opened has another address in each process; a running trial goes on."""
    code = (
        "class Opened: pass\nmake = DataLoader(Rows(), 4)\n"
        "make.dataset.images = [Opened() for _ in range(12)]\nmake.dataset.cache = [None] * 12"
    )
    assert here(code) == here(code) != ""


ODD_TENSORS = [
    torch.ones(3, 4)[:, ::2][:, :1],
    torch.ones(4)[::2],
    torch.ones(4)[::2][:1],
    torch.ones(()),
    torch.ones(2, 0)[:, ::2],
    torch.arange(4.0).expand(3, 4),
    torch.complex(torch.zeros(3), torch.ones(3)).conj(),
    torch.ones(4, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("tensor", ODD_TENSORS, ids=lambda tensor: f"{tuple(tensor.shape)}, {tensor.dtype}")
def test_a_tensor_counts_by_its_values_however_it_lies_in_memory(tensor: torch.Tensor) -> None:
    """A column of a batch is no contiguous memory; its copy is, and stands for the same order."""
    assert identity([tensor]) == identity([tensor.clone(memory_format=torch.contiguous_format)])
    assert not tensor.numel() or identity([tensor]) != identity([tensor + 1])


def test_what_raises_while_it_is_described_is_served_and_is_like_nothing() -> None:
    """It is the user's own class: no reason to serve nothing."""

    class Closed:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise OSError("it is closed")

    closed = Closed()
    assert identity(closed) != identity(closed)


def test_values_that_hold_each_other_and_large_tables() -> None:
    """A circle ends; two elements of a large array that are exchanged, in every piece of it, are seen."""
    import numpy as np

    circle: list[Any] = [1]
    circle.append(circle)
    assert identity(circle) == identity(circle)
    large = np.arange(1 << 26, dtype=np.int64)  # 512 MiB
    assert identity(large) == identity(large.copy()) != identity(large[::-1])


@pytest.mark.parametrize("edited", [False, True])
def test_one_in_mid_epoch_goes_on_with_the_same_function_and_not_with_an_edited_one(edited: bool) -> None:
    """The stream is stopped to be served again: the rest of the epoch, or `ProducerGone` and then a whole one."""
    code = "def make(epoch): return [[i] for i in range(12)]"
    again = code.replace("range(12)", "reversed(range(12))") if edited else code
    names: dict[str, Any] = {}
    exec(code, names)
    tsnb.serve(names["make"], name="s", reconnect_s=60.0)
    consumer = tsnb.attach("c", stream="s")
    loop = iter(consumer)
    first = [row for (row,) in islice(loop, 5)]
    tsnb.streams.stop("s", 30.0, reconnect_s=60.0)
    exec(again, names)
    with tsnb.serve(names["make"], name="s", reconnect_s=60.0), consumer:
        if edited:
            with pytest.raises(ProducerGone, match="cannot repeat the rest of pass 1"):
                list(loop)  # what had been granted comes first
            assert [row for (row,) in consumer] == [*range(11, -1, -1)]
        else:
            assert first + [row for (row,) in loop] == [*range(12)]
