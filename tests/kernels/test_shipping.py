"""Objects on their way to another kernel, and why some cannot go."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch.utils.data import DataLoader

from tests import forking
from tsnb.errors import NotShippable, TsnbError
from tsnb.kernels.cargo import obstacles as obstacles_module
from tsnb.kernels.cargo import pickling, shipping
from tsnb.kernels.cargo.shipping import fetch, ship
from tsnb.kernels.cargo.unnamed_file import SMALL_BYTES, spill_directory
from tsnb.machine.memory import Free

MIB = 1 << 20
Held = Callable[[], set[str]]


@pytest.fixture
def post(tmp_path: Path) -> Any:
    """Return a function that ships variables and fetches them again."""

    def send(**variables: Any) -> dict[str, Any]:
        cargo = ship(variables, "trial 'cnn'")
        return fetch(cargo)

    return send


def _nameless() -> set[str]:
    """Return the files without a name that this process has open."""
    links = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            links.add(os.readlink(path))
    return {link for link in links if "tsnb-cargo" in link or link.endswith(" (deleted)")}


@pytest.fixture
def held() -> Callable[[], set[str]]:
    """Return a function that tells what was shipped in this test and not let go of."""
    before = _nameless()
    return lambda: _nameless() - before


@pytest.mark.parametrize("size", [10, 4 * SMALL_BYTES])
def test_what_is_shipped_has_no_name_and_goes_with_the_last_who_wants_it(
    size: int, tmp_path: Path, held: Held
) -> None:
    """Nobody can find it, exchange it or change it; each reader begins at its start; no end leaves it behind."""
    cargo = ship({"x": bytes(size)}, "a test")
    again = cargo.again()
    assert bool(held()) == (size > SMALL_BYTES), "hundreds of small ones take no descriptor"
    with cargo.descriptor() as descriptor:
        status = os.fstat(descriptor)
        assert (status.st_nlink, status.st_uid) == (0, os.getuid())
        copies = os.dup(descriptor), os.dup(descriptor)
    for copy in copies:
        assert fetch(copy) == {"x": bytes(size)}
        if size < SMALL_BYTES:
            with pytest.raises(PermissionError):  # sealed
                os.write(copy, b"other")
        os.close(copy)
    cargo.close()
    with pytest.raises(TsnbError, match="copied variables no longer exist"):
        cargo.again()
    assert fetch(again) == {"x": bytes(size)}
    again.close()
    assert not held()


@pytest.mark.parametrize("what", ["named", "link", "pipe", "another user's"])
def test_what_anybody_could_have_put_there_is_not_unpickled(what: str, tmp_path: Path) -> None:
    """A descriptor is looked at before it is read: a file of this user's that no name leads to, or nothing."""
    path = tmp_path / "planted"
    path.write_bytes(pickle.dumps({"x": 1}))
    if what == "link":
        os.link(path, tmp_path / "other")
    descriptor = os.pipe()[0] if what == "pipe" else os.open(path, os.O_RDONLY)
    if what != "named":
        path.unlink()
    if what == "another user's":
        if os.getuid() != 0:
            pytest.skip("only root can give a file to another user")
        os.chown(descriptor, 65534, 65534)
    with pytest.raises(TsnbError, match="not a private file"):
        fetch(descriptor)
    os.close(descriptor)


def test_much_goes_to_a_disk_and_not_to_the_runtime_directory_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A runtime directory is a small file system in memory on most machines: three trials would fill it."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no file system in memory is known here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        monkeypatch.setenv("TSNB_RUNTIME_DIR", f"{memory}/run")
        found = spill_directory()
        assert found is not None
        assert found.stat().st_dev != Path(memory).stat().st_dev


def test_objects_that_belong_together_stay_together(post: Any) -> None:
    """Two variables that share an object share its copy."""
    shared = [1]
    arrived = post(a={"of": shared}, b={"of": shared})
    assert arrived["a"]["of"] is arrived["b"]["of"] is not shared


def test_a_running_loader_travels_without_its_iterator(post: Any) -> None:
    """Also deep inside an object; the notebook's own goes on."""
    data: Any = torch.arange(6)
    loader: Any = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
    running = iter(loader)
    next(running)
    arrived = post(parts={"train": [loader]})["parts"]["train"][0]
    assert arrived._iterator is None
    assert loader._iterator is running
    assert len(list(running)) == 2
    del running
    loader._iterator = None  # ends the worker


def test_a_notebook_function_uses_the_variables_of_where_it_arrives(
    notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that assigns `model` and calls the notebook's `train` trains its own model."""
    box = notebook.run("model, rate = 'notebook', 3\ndef train(): return model, rate")
    packed = _pack({"train": box["train"]})
    there = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", there)
    train = pickle.loads(packed)["train"]
    assert train.__globals__ is vars(there)
    assert train() == ("notebook", 3)
    vars(there)["model"] = "trial"
    assert train() == ("trial", 3)


OWN = """
import abc, collections, dataclasses, enum, functools
class CFG:
    lr = 0.1
    def rate(self): return self.lr
class Colour(enum.Enum):
    RED = 1
    @property
    def loud(self): return self.name.upper()
class Base(abc.ABC):
    made = []
    def __init_subclass__(cls): Base.made.append(cls.__name__)
class Other: pass
class Child(Base): pass
class Meta(type):
    made = []
    def __init__(cls, name, bases, variables): Meta.made.append(name)
class Made(metaclass=Meta): pass
@dataclasses.dataclass
class Point:
    x: int = 1
class Pair(collections.namedtuple("Pair", "a b")): pass
class Slotted:
    __slots__ = ("value",)
"""

CHANGED = """
CFG.lr = 0.5
CFG.rate = lambda self: "patched"
CFG.added = 1
Colour.loud = "quiet"
Base.register(Other)
Base.made.append("mine")
Meta.made.append("mine")
Point.x = 7
Pair.sum = lambda self: self.a + self.b
del CFG.gone
"""


@pytest.mark.parametrize("apart", [False, True])
def test_what_comes_back_leaves_classes_of_the_notebook_as_they_are_now(
    notebook: Any, tmp_path: Path, apart: bool
) -> None:
    """Attributes, patched methods, enums, registries: nothing is set back to what it was at the start."""
    box = notebook.run(OWN + "CFG.gone = 1\nslotted = Slotted()\nslotted.value = 3")
    kinds = [kind for kind in box.values() if isinstance(kind, type)]
    cargo = ship(
        {
            "cfg": box["CFG"](), "red": box["Colour"].RED, "child": box["Child"](), "made": box["Made"](),
            "point": box["Point"](2), "pair": box["Pair"](1, 2), "slotted": box["slotted"], "kinds": kinds,
            "deep": pickle.loads, "inner": Inner(box["CFG"]()),
        },
        "a test",
    )  # fmt: skip
    notebook.run(CHANGED)
    before = {kind: dict(vars(kind)) for kind in kinds}
    arrived = fetch(cargo, apart=apart)
    assert arrived["kinds"] == kinds
    for kind in kinds:
        now = {name: value for name, value in vars(kind).items() if name != "_abc_impl"}
        assert now == {name: value for name, value in before[kind].items() if name != "_abc_impl"}
    assert box["Base"].made == ["Child", "mine"]
    assert box["Meta"].made == ["Made", "mine"]
    assert issubclass(box["Other"], box["Base"])
    assert arrived["cfg"].rate() == arrived["inner"].part.rate() == "patched"
    assert arrived["red"] is box["Colour"].RED
    assert arrived["pair"].sum() == 3
    assert (arrived["point"].x, arrived["slotted"].value) == (2, 3)


class Inner:
    """Something that pickles a part of itself on its own, as some libraries' wrappers do."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __reduce__(self) -> Any:
        return _inner, (_Bytes(_pack({"part": self.part})),)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return pickle.loads, (self.data,)


def _inner(parts: dict[str, Any]) -> Inner:
    return Inner(parts["part"])


def test_a_class_that_is_new_here_arrives_whole(
    notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a trial has defined, derived from one of the notebook's: with its attributes and its methods' names."""
    box = notebook.run("class Base:\n    def hello(self): return 'base'\nfactor = 3\n")
    there = notebook.run(
        "class Net(Base):\n    w = 2\n    def grown(self): return self.w * factor\n"
        "    def hello(self): return 'net ' + super().hello()\nnet = Net()"
    )
    cargo = ship({"net": there.pop("net")}, "a test")
    del there["Net"]
    for known, empty in (("ID", weakref.WeakValueDictionary()), ("CLASS", weakref.WeakKeyDictionary())):
        # as in another process
        monkeypatch.setattr(cloudpickle.cloudpickle, f"_DYNAMIC_CLASS_TRACKER_BY_{known}", empty)
    box["factor"] = 1000
    arrived = fetch(cargo, apart=True)["net"]
    assert arrived.grown() == 6, "its methods read what they read in the trial"
    assert arrived.hello() == "net base"


def test_what_a_notebook_fetches_brings_its_own_variables(notebook: Any, tmp_path: Path) -> None:
    """A function that comes back computes what it computed in the trial, and the notebook gets no new names."""
    box = notebook.run("scale = 1\nhelper = lambda x: x * scale\ndef grow(x): return helper(x)")
    cargo = ship({"grow": box["grow"]}, "a test")
    notebook.run("scale = 10\ndel helper, grow")
    names = set(box)
    grow = fetch(cargo, apart=True)["grow"]
    assert grow(2) == 2
    assert set(box) == names
    assert box["scale"] == 10


BY_NAME = """
import functools, typing
@functools.lru_cache(maxsize=4)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
@functools.singledispatch
def show(x): return "any"
@show.register
def _(x: int): return "int " + show("a")
UserId = typing.NewType("UserId", int)
P = typing.ParamSpec("P")
class Kinds:
    made = 0
    @functools.singledispatchmethod
    def kind(self, x): return "any"
    @kind.register
    def _(self, x: int): return "int"
    @functools.lru_cache
    def kept(self, x): return x
    @functools.cached_property
    def once(self):
        Kinds.made += 1
        return Kinds.made
kinds = Kinds()
part = functools.partial(show, 1)
def count(n):
    yield from range(n)
"""

THERE = """
import pickle, sys
box = pickle.load(open(sys.argv[1], "rb"))
globals().update(box)
kinds = box["kinds"]
print([fib(5), fib.cache_parameters()["maxsize"], fib.__name__, show(1), show([]), UserId(3), UserId.__name__,
       P.__name__, kinds.kind(1), kinds.kind("a"), kinds.kept(3), kinds.once, kinds.once, part(), list(count(2))])
"""


def test_what_pickle_finds_by_name_only_travels_by_value(notebook: Any, tmp_path: Path) -> None:
    """Caches, dispatchers, new types: in another process, where `__main__` has none of them."""
    box = notebook.run(BY_NAME)
    kept = {name: box[name] for name in ("fib", "show", "UserId", "P", "kinds", "part", "count")}
    (tmp_path / "box").write_bytes(_pack(kept))
    done = subprocess.run(
        [sys.executable, "-c", THERE, tmp_path / "box"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "[5, 4, 'fib', 'int any', 'any', 3, 'UserId', 'P', 'int', 'any', 3, 1, 1, 'int any', [0, 1]]"
    )


def test_what_arrives_changes_no_variable_of_the_receiver(notebook: Any) -> None:
    """Globals that a function read where it comes from are added only where the receiver has none of the name."""
    box = notebook.run("scale = 1\ndef grow(x): return x * scale")
    packed = _pack({"grow": box["grow"]})
    box["scale"] = 10
    assert pickle.loads(packed)["grow"](2) == 20
    assert box["scale"] == 10


def _pack(variables: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pickling.pack(variables, file)
    return file.getvalue()


def test_a_notebook_class_comes_back_as_itself(notebook: Any, post: Any) -> None:
    """`isinstance` holds for what a trial gives back."""
    box = notebook.run("class Net:\n    def __init__(self): self.w = 3")
    assert type(post(net=box["Net"]())["net"]) is box["Net"]


def test_a_large_variable_is_named(post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit a warning says which variable, and how large."""
    monkeypatch.setattr(shipping, "LARGE_BYTES", 1000)
    with pytest.warns(UserWarning, match=r"Trial 'cnn' copies .* MB, most of it in 'images'"):
        post(images=torch.zeros(10_000), small=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        post(small=1)


def test_what_does_not_fit_is_refused_before_it_fills_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    """The largest variable is named with its size, the room that there is, and what to do; no file is left."""
    monkeypatch.setattr(shipping, "free_memory", lambda: Free(20 * MIB, "of this test's memory"))
    for images in (torch.zeros(4 * MIB), torch.zeros(4 * MIB).numpy(), bytes(16 * MIB)):
        with pytest.raises(NotShippable) as caught:
            ship({"small": [1] * 1000, "images": images, "other": 2}, "trial 'cnn'")
        message = str(caught.value)
        assert "Trial 'cnn' cannot copy 'images': it takes more than 10 MB" in message
        assert "10 MB are available for a copy (half of what is free of this test's memory)" in message
        assert "Load it from its file in the cell itself" in message
        assert not held()
    ship({"images": torch.zeros(MIB)}, "trial 'cnn'")


def test_many_that_are_too_much_together_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is too large by itself; the largest is named."""
    monkeypatch.setattr(shipping, "free_memory", lambda: Free(20 * MIB, "of this test's memory"))
    parts = {f"part{n}": torch.zeros(MIB + n * 1000) for n in range(4)}
    with pytest.raises(NotShippable, match="cannot copy 'part3': it takes 4 MB"):
        ship(parts, "trial 'cnn'")


@pytest.mark.parametrize(
    ("number", "mend"),
    [(errno.ENOSPC, "Free some space there"), (errno.EDQUOT, "Your disk quota there is used up")],
)
def test_a_full_file_system_is_told_and_left_as_it_was(
    number: int, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    """It filled up after the look, or a quota did: what was free of the disk by then is beside the point."""

    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shipping, "pack", full)
    with pytest.raises(NotShippable, match=rf"cannot copy 'x'.*{os.strerror(number)}\)\. {mend}"):
        ship({"x": 1}, "trial 'cnn'")
    assert not held()


def test_room_is_the_least_of_disk_and_half_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is in memory twice while it arrives, and something is left for others on the file system."""
    monkeypatch.setattr(shipping, "free_memory", lambda: Free(1 << 60, "of a large machine"))
    monkeypatch.setattr(shipping, "spill_directory", lambda: tmp_path)
    found = shipping._room()
    assert found.where == f"on the file system of {tmp_path}"
    assert found.size == pytest.approx(shutil.disk_usage(tmp_path).free - shipping.SPARE_BYTES, rel=0.1)
    monkeypatch.setattr(shipping, "free_memory", lambda: Free(1 << 20, "of a small one"))
    assert shipping._room().size == 1 << 19


@pytest.mark.parametrize("kind", ["numbers", "bytes"])
def test_an_interrupt_ends_the_packing_of_something_huge(tmp_path: Path, kind: str, held: Held) -> None:
    """The cell's stop button works while its variables are written; no file is left."""
    huge: Any = list(range(20_000_000)) if kind == "numbers" else bytes(600 * MIB)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    began = time.monotonic()

    def ship_again_and_again() -> None:
        while time.monotonic() - began < 30:  # a quick machine may have written it before the interrupt
            ship({"huge": huge}, "trial 'cnn'")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KeyboardInterrupt):
            ship_again_and_again()
    timer.join()
    assert not held()


def test_looking_for_what_cannot_travel_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In something large the walk gives up: then the error itself is told."""
    monkeypatch.setattr(obstacles_module, "LOOKING_S", 0.0)
    with pytest.raises(NotShippable, match=r"cannot copy its variables data: .*pickle"):
        ship({"data": Holder(threading.Lock())}, "trial 'cnn'")


class Holder:
    """Something with a part that cannot travel, deep inside."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, part: Any) -> None:
        self.harmless = [1, 2]
        self.cache = {"open": (part,)}


def iter_nothing() -> Iterator[int]:
    yield from ()


def obstacles() -> list[tuple[str, Any, str]]:
    return [
        ("an open file", open(__file__), "Keep its path"),
        ("an open file", open(__file__, "rb"), "Keep its path"),
        ("a lock", threading.Lock(), "__getstate__"),
        ("a lock", threading.Condition(), "__getstate__"),
        ("a generator", iter_nothing(), "__iter__"),
        ("a socket", socket.socket(), "Keep its address"),
        ("a database connection", sqlite3.connect(":memory:"), "Keep the database's path"),
    ]


def test_what_cannot_travel_is_named_with_its_path_and_the_fix(tmp_path: Path, held: Held) -> None:
    """The message has the variable, the attribute path, what it is, and what to do; no file is left."""
    for what, part, fix in obstacles():
        with pytest.raises(NotShippable) as caught:
            ship({"fine": 1, "data": Holder(part)}, "trial 'cnn'")
        message = str(caught.value)
        inner = "data.cache['open'][0]"
        assert message.startswith(f"Trial 'cnn' cannot copy 'data': {inner}"), message
        assert what in message
        assert fix in message
        assert not held()
        if hasattr(part, "close"):
            part.close()


def test_what_a_function_closes_over_is_followed(tmp_path: Path, notebook: Any) -> None:
    """Cells and globals of a function lead to the culprit as attributes do."""
    box = notebook.run("import threading\nlock = threading.Lock()\ndef use(): return lock")
    with pytest.raises(NotShippable, match="use -> lock is a lock"):
        ship({"use": box["use"]}, "trial 'cnn'")


def test_an_unknown_kind_of_obstacle_is_named_by_its_class(tmp_path: Path) -> None:
    """What no rule knows is still pointed at."""

    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("I stay")

    holder = Holder(Stubborn())
    with pytest.raises(NotShippable, match=r"data.cache\['open'\]\[0\] is a .*Stubborn"):
        ship({"data": holder}, "trial 'cnn'")


WHILE_A_THREAD_IMPORTS = """
import sys, threading, time
from tsnb.kernels.cargo.numerics import numerics_here
thread = threading.Thread(target=__import__, args=("numpy",))
thread.start()
while "numpy" not in sys.modules: time.sleep(0)
assert sys.modules["numpy"].__spec__._initializing, "it came too late to see anything"
print(numerics_here().get("numpy"))
"""


def test_settings_are_read_of_a_package_that_a_thread_has_begun_to_import() -> None:
    """A thread of the notebook may import numpy while a cell starts a trial: the start waits for it."""
    done = subprocess.run(
        [sys.executable, "-c", WHILE_A_THREAD_IMPORTS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


SET_AND_READ = """
import sys, torch
from tsnb.kernels.cargo.numerics import numerics_here, take_on
exec(sys.argv[1])
print(repr(numerics_here().get("torch", {})))
"""

TAKEN = """
import sys, torch
from tsnb.kernels.cargo.numerics import numerics_here, take_on
take_on({"torch": eval(sys.argv[1])}, trial=True)
print(repr(numerics_here().get("torch", {})))
"""

SETTINGS = {
    "nothing": "",
    "an old setter": "torch.set_float32_matmul_precision('high'); torch.set_default_dtype(torch.float64)",
    "a new setter": (
        "torch.set_default_dtype(torch.float64); torch.use_deterministic_algorithms(True)\n"
        "if hasattr(torch.backends, 'fp32_precision'): torch.backends.cuda.matmul.fp32_precision = 'tf32'"
    ),
    "one of all backends": (
        "torch.backends.cudnn.benchmark = True\n"
        "if hasattr(torch.backends, 'fp32_precision'): torch.backends.fp32_precision = 'tf32'"
    ),
    "what only a GPU uses": (
        "torch.backends.cudnn.enabled = False; torch.backends.cuda.enable_flash_sdp(False)\n"
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("code", SETTINGS.values(), ids=list(SETTINGS))
def test_torchs_settings_are_carried_each_by_itself(code: str) -> None:
    """`fp32_precision` makes torch's older getters raise, which must not lose the default dtype and all others."""

    def run(program: str, argument: str) -> tuple[dict[str, Any], str]:
        settings, _, besides = forking.output_of(program, argument).partition("\n")
        return eval(settings), besides

    wanted, _ = run(SET_AND_READ, code)
    assert bool(wanted) == bool(code)
    assert "unread" not in wanted
    assert ("dtype" in wanted) == ("float64" in code)
    assert run(TAKEN, repr(wanted)) == (wanted, "")


def test_a_setting_that_cannot_be_carried_is_named_and_keeps_none_of_the_others() -> None:
    """One that this torch lacks, and one that the notebook's torch did not tell."""
    settings = {"dtype": "no_such", "grad": False, "unread": ["cudnn_tf32"]}
    said = forking.output_of(TAKEN, repr(settings))
    assert said.endswith("\n{'grad': False}\n")
    assert (
        "some settings of torch in the notebook do not apply here: cudnn.allow_tf32 (could not be read"
        in said
    )
    assert "the default dtype (module 'torch' has no attribute 'no_such')" in said


FEW_DESCRIPTORS = """
import resource, sys
from tsnb.kernels.cargo.shipping import fetch, ship
from tsnb.kernels.cargo.unnamed_file import MOST_OPEN, Cargo

resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN + 40,) * 2)
size = 1 << 19
cargoes = [ship({"x": bytes([number % 256]) * size}, "many") for number in range(3 * MOST_OPEN)]
for number, cargo in enumerate(cargoes):
    assert fetch(cargo) == {"x": bytes([number % 256]) * size}
    if number % 16 == 0:
        with cargo.descriptor() as sent, cargo.descriptor() as again:
            assert sent == again
            assert fetch(sent) == fetch(cargo)
"""


def test_the_bytes_of_many_trials_take_few_descriptors() -> None:
    """They are read and sent again although far fewer files may be open."""
    ran = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
