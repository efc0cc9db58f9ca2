"""Every kind of thing that a batch may hold, as docs/batch-contents.md lists them: kept bit for bit, or refused."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the page's table."""

    what: str
    """As the page calls it."""
    note: str
    """What the page says of it."""
    make: Callable[[], list[Any]]
    """Makes one of each sort."""
    instead: Callable[[Any], Any] | None = None
    """Refused: does what the error says, so that the result is kept. None: kept."""
    expect: Callable[[Any], Any] | None = None
    """What arrives, where the row's note says that it is the same value in another form."""

    @property
    def cells(self) -> list[str]:
        """The row of the page's table."""
        return [self.what, "refused" if self.instead else "kept", self.note]


# -- classes ---------------------------------------------------------------------------------------------------


class Image2(torch.Tensor):
    """A tensor with a class, and attributes, of its own."""


class Wrapper(torch.Tensor):
    """A tensor that keeps its data elsewhere."""

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Volts(np.ndarray[Any, Any]):
    """An array with a class of its own."""

    unit: str


class Names(list[Any]):
    """A list with a class of its own."""


class Corner(tuple[Any, ...]):  # noqa: SLOT001  # it has attributes
    """A tuple with a class of its own."""


class Encoded(dict[str, Any]):
    """A dict with a class and an attribute of its own, and its own way to be read."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError("shared as it lies there, not as it shows itself")


class Pair(NamedTuple):
    left: Any
    right: Any

    def swapped(self) -> Pair:
        return Pair(self.right, self.left)


class Signed(collections.namedtuple("Signed", "x")):  # noqa: PYI024, SLOT002  # has attributes
    def __new__(cls, x: Any) -> Signed:
        raise AssertionError("made again without being called")


@dataclasses.dataclass
class Box:
    image: Any
    label: int = 3
    area: int = dataclasses.field(init=False, default=7)

    def __post_init__(self) -> None:
        self.seen = [self.label]


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    image: Any
    never: Any = dataclasses.field(init=False)


@dataclasses.dataclass(kw_only=True)
class Keyed:
    image: Any
    label: int


@attrs.define
class Grid:
    image: Any
    label: int = attrs.field(default=1, alias="lab")


@attrs.frozen(slots=False)
class Grid2:
    image: Any


class Custom:
    """What torch's documentation calls a custom batch type."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets

    def pin_memory(self) -> Custom:
        return self


class View(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, inner: dict[str, Any]) -> None:
        self.inner = inner

    def __getitem__(self, key: str) -> Any:
        return self.inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


class Phase(enum.Enum):
    TRAIN = "train"


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.Flag):
    A = 1
    B = 2


class Plain:
    """Nothing that a batch is known to be made of."""


class Word(str):  # noqa: SLOT000  # as people write them
    """A text with a class of its own."""


# -- the table -------------------------------------------------------------------------------------------------

DTYPES = (  # noqa: SIM905
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex32 complex64 "
    "complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
).split()


def of_dtype(name: str) -> torch.Tensor:
    """Return a tensor of all sorts of bits."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.tensor([True, False, True])
    return torch.arange(256, dtype=torch.uint8).view(dtype).clone()


def image() -> torch.Tensor:
    """Return a batch of images: [2, 3, 4, 5]."""
    return torch.arange(120.0).view(2, 3, 4, 5)


def shared(x: Any) -> Any:
    return x.share_memory_()


def with_attributes() -> torch.Tensor:
    made = image().as_subclass(Image2)
    made.boxes, made.path = torch.ones(2), "a.png"  # type: ignore[attr-defined]
    return made


def twice() -> Any:
    x, y = image(), np.arange(3)
    names = [y, x]
    return {"a": x, "b": (x, y), "c": names, "d": names}


def circle() -> Any:
    made: list[Any] = [image()]
    made.append(made)
    return made


def record(aligned: bool = False) -> np.ndarray[Any, Any]:
    made = np.zeros(3, np.dtype([("a", "u1"), ("b", ">f8", (2,)), ("c", [("d", "M8[s]")])], align=aligned))
    made["b"] = 1.5
    return made


def masked() -> list[Any]:
    ma: Any = np.ma
    made = ma.array([1.0, np.nan, 3.0], mask=[0, 1, 0], fill_value=-9.0)
    hard = ma.array(np.arange(6).reshape(2, 3), mask=[[0, 0, 1]] * 2, hard_mask=True)
    return [made, hard, ma.array([1, 2]), ma.array(record(), mask=[(0, 1, (0,))] * 3)]


def with_gradient() -> list[torch.Tensor]:
    used: Any = torch.ones(2, requires_grad=True)
    used.sum().backward()
    return [torch.ones(2, requires_grad=True) * 2, used]


def unit(volts: np.ndarray[Any, Any]) -> Any:
    made = volts.view(Volts)
    made.unit = "mV"
    return made


def kin() -> list[Any]:
    encoded = Encoded(ids=image(), mask=np.ones(2))
    encoded.tokenizer = None  # type: ignore[attr-defined]
    corner, signed = Corner([1, image()]), tuple.__new__(Signed, [image()])
    corner.name = signed.name = "c"  # type: ignore[attr-defined]
    return [encoded, Names(["a", "b"]), Names([image(), "b"]), corner, signed]


def ordered() -> Any:
    made = collections.OrderedDict(a=1, b=image())
    made.move_to_end("a")
    return made


def users() -> list[Any]:
    from transformers import BatchEncoding
    from transformers.modeling_outputs import BaseModelOutput

    return [
        collections.UserDict(b=image(), a=1), collections.UserList([image(), 2]), View({"x": image()}),
        BatchEncoding({"input_ids": torch.ones(2, 3)}), BaseModelOutput(last_hidden_state=image()),
    ]  # fmt: skip


NAN = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]

ROWS = [
    Row("tensor: bool, all ints, float8 to float64, bfloat16, complex", "bit for bit, NaNs included",
        lambda: [of_dtype(name) for name in DTYPES]),
    Row("tensor without dimensions or without elements", "",
        lambda: [torch.tensor(3), torch.ones(2, 0, 3), torch.ones(3, 0, 2).transpose(0, 2)]),
    Row("tensor in `channels_last`, transposed, with one image or channel", "keeps its strides",
        lambda: [image().contiguous(memory_format=torch.channels_last), image().transpose(0, 2), image().mT,
                 image()[:1].contiguous(memory_format=torch.channels_last),
                 image()[:, :1].contiguous(memory_format=torch.channels_last)]),
    Row("expanded tensor, or view that overlaps itself", "keeps its strides and uses no extra memory",
        lambda: [torch.ones(3, 1).expand(3, 1000), torch.arange(9).unfold(0, 4, 1)]),
    Row("tensor view with gaps: `x[:, ::2]`", "the gaps are removed, as by `clone()`",
        lambda: [image()[:, ::2], image()[..., 0], image().contiguous(memory_format=torch.channels_last)[:, 1:]],
        expect=lambda x: x.clone()),
    Row("lazily conjugated or negated tensor", "tsnb computes the values",
        lambda: [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag],
        expect=lambda x: x.resolve_conj().resolve_neg()),
    Row("tensor in shared memory", "moves to the stream's shared memory", lambda: [shared(image())]),
    Row("tensor with `requires_grad`, `Parameter`", "a leaf with `requires_grad` in each trial",
        lambda: [torch.ones(2, requires_grad=True), torch.nn.Parameter(image()),
                 torch.nn.Parameter(image(), requires_grad=False), torch.nn.Buffer(image())]),
    Row("tensor with `.grad` or an autograd history", "use `x.detach()`", with_gradient, instead=torch.Tensor.detach),
    Row("tensor subclass, or tensor with extra attributes", "keeps both",
        lambda: [image().as_subclass(Image2), with_attributes()]),
    Row("tensor wrapper with `__torch_dispatch__`", "yield the tensors inside it",
        lambda: [torch.Tensor._make_subclass(Wrapper, image())], instead=lambda x: image()),
    Row("quantized tensor", "use `x.dequantize()` or `x.int_repr()`",
        lambda: [torch.quantize_per_tensor(image(), 0.1, 0, torch.quint8)],
        instead=lambda x: [x.dequantize(), x.int_repr()]),
    Row("nested tensor", "use `list(x.unbind())` or `torch.nested.to_padded_tensor(x, 0.0)`",
        lambda: [torch.nested.nested_tensor([torch.ones(n, 2) for n in (1, 3)], layout=layout)
                 for layout in (torch.strided, torch.jagged)],
        instead=lambda x: [list(x.unbind()), torch.nested.to_padded_tensor(x, 0.0)]),
    Row("sparse tensor: COO, CSR, CSC, BSR", "use `x.to_dense()`, or its indices and values",
        lambda: [torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_csc(),
                 torch.eye(4).to_sparse_bsr((2, 2)), torch.eye(4).to_mkldnn()],
        instead=lambda x: x.to_dense()),
    Row("tensor on `meta`, or of dtype `bits8`", "yield real data, or `x.view(torch.uint8)`",
        lambda: [torch.ones(2, device="meta"), torch.ones(2, dtype=torch.uint8).view(torch.bits8)],
        instead=lambda x: torch.ones(2) if x.is_meta else x.view(torch.uint8)),
    Row("tensor, array or container that occurs twice", "remains one object", lambda: [twice()]),
    Row("NumPy array: numbers, strings, bytes, dates, big-endian, `void`", "read-only unless `private=True`",
        lambda: [np.arange(3, dtype=">i2"), np.array(["a", "bcd", ""]), np.array([b"a", b"bc"]),
                 np.array(["2020-01-01", "NaT"], "M8[ms]"), np.array([3], "m8[25us]"), np.zeros(2, "V3"),
                 np.array([1.5], "g"), np.array([1j], ">c16"), np.array(3.5), np.ones((2, 0, 3))]),
    Row("NumPy array: Fortran order, transposed, reversed, broadcast", "keeps its strides",
        lambda: [np.asfortranarray(np.ones((3, 4))), np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
                 np.arange(24).reshape(2, 3, 4)[::-1, :, ::-1], np.broadcast_to(np.arange(3), (4, 3)),
                 np.lib.stride_tricks.sliding_window_view(np.arange(9), 4)]),
    Row("NumPy array view with gaps", 'the gaps are removed, as by `copy(order="K")`',
        lambda: [np.arange(24).reshape(4, 6)[:, ::2], np.arange(24).reshape(4, 6)[::-2]],
        expect=lambda x: x.copy(order="K")),
    Row("structured NumPy array, `recarray`", "keeps its alignment",
        lambda: [record(), record(aligned=True), record().view(np.recarray), record()[0],
                 np.zeros(2, [(("a title", "a"), "i4")])]),
    Row("masked NumPy array", "keeps mask, masked values, `fill_value` and `hard_mask`", masked),
    Row("NumPy subclass: `matrix`, `memmap`", "keeps its class and attributes, but not a memmap's file",
        lambda: [np.matrix([[1, 2]]), np.arange(3).view(np.memmap), unit(np.ones(2))]),
    Row("NumPy scalar", "", lambda: [np.float32(1 / 3), np.str_("é"), np.bytes_(b"a"), np.datetime64("2020", "Y"),
                                     np.bool_(True), np.float64("nan"), np.void(b"ab")]),
    Row("NumPy array of objects, or of `StringDType`", "use numbers, or a list of strings",
        lambda: [np.array([None, "a"], object), np.array(["a", "b"], np.dtypes.StringDType())],
        instead=lambda x: x.tolist()),
    Row("dict, list, tuple in any nesting", "keeps the order of keys",
        lambda: [{"b": [image(), ()], 1: {}, None: (image(), "x"), 0.5: [], False: ["a", 1, None]}]),
    Row("`OrderedDict`, `Counter`, `defaultdict` with a built-in type", "",
        lambda: [ordered(), collections.Counter("aab"), collections.defaultdict(list, a=[image()]),
                 collections.defaultdict(None, {1: 2})]),
    Row("`defaultdict` with a function", "use `dict(batch)`",
        lambda: [collections.defaultdict(lambda: 0, a=image())], instead=dict),
    Row("subclass of dict, list or tuple", "keeps its class and attributes", kin),
    Row("`UserDict`, Hugging Face `BatchEncoding` and `ModelOutput`, `UserList`, any other `Mapping`",
        "keeps its class and attributes", users),
    Row("`MappingProxyType`, or a tuple as key", "use `dict(batch)`, with strings or numbers as keys",
        lambda: [MappingProxyType({"a": image()}), {(1, 2): image()}],
        instead=lambda x: {str(key): value for key, value in x.items()}),
    Row("named tuple, `torch.Size`, `torch.return_types`", "keeps its class",
        lambda: [Pair(image(), [1, "a"]), torch.Size([2, 3]), torch.max(torch.eye(3), 0)]),
    Row("dataclass: frozen, slots, `kw_only`, `init=False`, extra attributes", "none of its code runs",
        lambda: [Box(image()), Frozen(image()), Slotted(image()), Keyed(image=image(), label=2)]),
    Row("attrs class, a batch class with `pin_memory()`", "keeps its class and attributes",
        lambda: [Grid(image()), Grid2(image()), Custom(image(), [1, 2])]),
    Row("object of a class that is not in this table", "convert it in the `collate_fn`, or register its class",
        lambda: [Plain(), Image.new("L", (2, 2)), lambda: 0, (x for x in "ab")],
        instead=lambda x: np.asarray(x) if isinstance(x, Image.Image) else [0]),
    Row("batch that contains itself", "remove the circular reference", lambda: [circle()], instead=lambda x: x[:1]),
    Row("string, bytes, `bytearray`, None, bool, int, float, complex", "integers of any size, every bit of a NaN",
        lambda: ["é\ud800\0", "", b"\xff", bytearray(b"a"), None, True, 1, 10**5000, -(1 << 4096), 1e-320, -0.0, NAN,
                 float("inf"), complex(-0.0, NAN), ["a", b"b", 1, True, None, 2.5, 10**5000, NAN], ("NaN", 1)]),
    Row("subclass of a string or number", "use `str(x)` or `int(x)`", lambda: [Word("a")], instead=str),
    Row("`Decimal`, `Fraction`, `UUID`, path, `range`", "",
        lambda: [Decimal("-0.10"), Decimal("sNaN12"), Fraction(1, 10**5000), uuid.UUID(int=7), Path("a/b"),
                 PurePosixPath("/"), range(3, 10**5000, 2), [Path("a"), Path("b")]]),
    Row("`date`, `time`, `datetime`, `timedelta`", "also in UTC or with a fixed UTC offset",
        lambda: [dt.date(2020, 2, 29), dt.time(1, 2, fold=1), dt.timedelta(-1, 5, 7),
                 dt.datetime(2020, 1, 1, 2, fold=1),  # noqa: DTZ001
                 dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
                 dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))]),
    Row("`datetime` in a named time zone", "use `x.astimezone(datetime.timezone.utc)`",
        lambda: [dt.datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))],
        instead=lambda x: x.astimezone(dt.timezone.utc)),
    Row("set, frozenset or slice of values", "", lambda: [{1, "a", None}, frozenset([2.5]), slice(1, None, -1), set()]),
    Row("set or slice of containers or arrays", "use a list", lambda: [{(1, 2)}, slice(image(), None)],
        instead=lambda x: list(x) if isinstance(x, set) else [x.start, x.stop]),
    Row("enum member", "the same member", lambda: [Phase.TRAIN, Level.LOW, [Phase.TRAIN] * 2, Bits.B]),
    Row("combination of enum flags", "use `x.value`", lambda: [Bits.A | Bits.B], instead=lambda x: x.value),
]  # fmt: skip
KEPT = [row for row in ROWS if row.instead is None]
REFUSED = [row for row in ROWS if row.instead is not None]


# -- one batch of everything -----------------------------------------------------------------------------------


def everything() -> dict[str, list[Any]]:
    """Return one batch that holds all that is kept."""
    torch.manual_seed(0)
    return {row.what: row.make() for row in KEPT}


def expected() -> dict[str, list[Any]]:
    """Return what is to arrive of it."""
    return {row.what: [row.expect(x) if row.expect else x for x in row.make()] for row in KEPT}


class Batches(Dataset[Any]):
    """Each sample is a batch of everything: for `batch_size=None`, or `collate_fn=first`."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return everything()


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def first(batch: Any) -> Any:
    """Collate one sample."""
    return batch[0]
