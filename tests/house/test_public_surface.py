"""The public names of tsnb: complete, documented, typed."""

from __future__ import annotations

import ast
import doctest
import functools
import gc
import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb import errors

NAMESPACES = ("data", "records", "search", "streams")
NAMES = sorted(
    [*tsnb.__all__, *(f"{part}.{name}" for part in NAMESPACES for name in getattr(tsnb, part).__all__)]
)
MOST_NAMES = 30
"""At the top: what fits in a head. More goes into a namespace, or into what is there."""


def named(path: str) -> Any:
    """Return what a user writes as `tsnb.` and this."""
    return functools.reduce(getattr, path.split("."), tsnb)


def test_the_top_fits_in_a_head() -> None:
    """And each namespace is there at once, with its names and no others."""
    assert len(tsnb.__all__) <= MOST_NAMES
    for part in NAMESPACES:
        shown = subprocess.run(
            [sys.executable, "-c", f"import tsnb; print(*dir(tsnb.{part}))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert shown == sorted(getattr(tsnb, part).__all__)


def test_a_stream_and_a_trial_are_named_by_one_word() -> None:
    """`stream=` and `trial=` wherever one is named; `name=` is of what a call makes."""
    makers = {"attach", "duel", "live", "log_artifact", "run", "serve", "sweep"}
    for path in NAMES:
        found = named(path)
        if inspect.isfunction(found):
            parameters = set(inspect.signature(found).parameters)
            assert not parameters & {"producer", "until", "patience_s", "devices"}, path
            assert "name" not in parameters or path in makers, path


def test_the_name_of_a_stream_may_stand_behind_its_loader() -> None:
    """`tsnb.serve(loader, "digits")` is what most people write first."""
    with tsnb.serve([torch.zeros(2)], "second"):
        assert [entry.name for entry in tsnb.streams.list()] == ["second"]


def test_dir_shows_what_is_public() -> None:
    """Tab completion offers the public names, although they load lazily."""
    assert set(tsnb.__all__) <= set(dir(tsnb))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    """A function, class, module or mapping that users reach has a docstring of its own."""
    found = named(name)
    has_its_own = inspect.isroutine(found) or inspect.isclass(found) or inspect.ismodule(found)
    text = inspect.getdoc(found if has_its_own else type(found))
    assert text, f"tsnb.{name} has no docstring"
    assert not text.startswith(f"{name}("), f"tsnb.{name} has the docstring that dataclass makes up"


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_public_function_is_explained(name: str) -> None:
    """Each parameter stands in the docstring's Args and is annotated, as the result is."""
    function = named(name)
    if not inspect.isfunction(function):
        return
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    assert not [p for p in signature.parameters if f"{p}:" not in text], f"tsnb.{name} leaves some out"
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


CLASSES = {
    "Consumer": (
        "epoch batch_size dataset sampler batch_sampler name stream set_epoch state_dict load_state_dict "
        "as_dataloader stats report weights close closed"
    ),
    "Sweep": ("over not_started plan stopped_early wait stop pause resume set best scores score results"),
    "Trial": (
        "state waits_for state_text params options report attached started_s successor pid restarts eta "
        "duration_s listen wait stop pause resume interrupt live changes set parent clone why_not_cloned "
        "why_not_released why_not_extended logs log_since follow pull result extend rerun"
    ),
    "streams.Producer": "order status balance rebalance tune probes wait stop",
}
"""What a user calls of each class: the rest of a consumer is for tsnb's own modules."""

DESCRIBED = sorted([*NAMES, *(f"{of}.{name}" for of, names in CLASSES.items() for name in names.split())])

LONGEST_FIRST_LINE = 72

ONE_SCREEN = 48
"""Lines of the longest docstrings: what `tsnb.serve?` may fill."""

EMPTY = re.compile(
    r"^\s+\**\w+: (?:(?:That|Those|The same|Likewise|As above|As that|It|Its name)\.|.*\b[Ll]eft out:)",
    re.MULTILINE,
)
"""Args that say nothing by themselves, or give the default in another word than the rest."""

NO_EXAMPLE = {"data", "errors", "records", "search", "streams"}
"""Modules: their names have the examples."""

OF_ENDED = {
    *("Trial.wait", "Trial.pull"),
    *("Sweep.wait", "Sweep.best", "Sweep.scores", "Sweep.score", "Sweep.results", "Sweep.stop"),
}
"""Examples whose trial or sweep has ended; those of all others still go on."""

NOT_RUN = {"Trial.pull": "takes a variable of a cell, which needs a notebook"}
"""Examples that cannot run here, with the reason."""


def text_of(path: str) -> str:
    """Return the docstring of what a user writes as `tsnb.` and this."""
    found = named(path)
    shown = isinstance(found, property) or inspect.isroutine(found) or inspect.isclass(found)
    return inspect.getdoc(found if shown or inspect.ismodule(found) else type(found)) or ""


def section(text: str, name: str) -> str:
    """Return one section of a docstring."""
    found = re.search(rf"^{name}:\n((?:(?:[ ].*)?\n)*(?:[ ].*)?)", text, re.MULTILINE)
    return found.group(1) if found else ""


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_docstring_says_what_the_caller_gets(name: str) -> None:
    """A short first line; arguments that say what they are and what they default to; one screen in all."""
    text = text_of(name)
    assert text, name
    lines = text.splitlines()
    assert len(lines[0]) <= LONGEST_FIRST_LINE, lines[0]
    assert len(lines) <= ONE_SCREEN, f"{len(lines)} lines"
    arguments = section(text, "Args")
    assert not EMPTY.search(arguments), EMPTY.search(arguments)
    found = named(name)
    if not inspect.isfunction(found):
        return
    for parameter in inspect.signature(found).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            entry = re.search(rf"^    {parameter.name}: (.*(?:\n {{5,}}.*)*)", arguments, re.MULTILINE)
            assert entry and re.search(r"efaults\s+to", entry.group(1)), (
                f"{parameter.name} does not end with its default"
            )
    assert not re.search(r"^    [\w, ]+: (?!If )", section(text, "Raises"), re.MULTILINE), "no condition"


def train(lr: float = 0.1, epochs: int = 1, fold: Any = None) -> float:
    """A training of almost nothing, which the examples run."""
    import time

    rate, loss = tsnb.live("lr", lr), 1.0
    net = torch.nn.Linear(1, 1)
    tsnb.checkpoint(net=net, every_s=0)
    for _epoch in tsnb.epochs(epochs):
        for _images, labels in tsnb.attach(fold=fold):
            time.sleep(0.005)
            loss -= 1e-6 * float(rate) * float(labels.float().mean())
            tsnb.log(loss=loss)
    return loss


def changed(lr: float = 0.05) -> float:
    """The same with another learning rate: the candidate of a duel."""
    return train(lr)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Serve a small loader as "digits", with one trial that trains on it until the end; what examples may name."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    here = tmp_path_factory.mktemp("examples")
    (here / "photos").mkdir()
    for name in ("weights.pt", "photos/a.png", "photos/b.png"):
        (here / name).write_bytes(b"1")
        os.utime(here / name, (0, 0))
    loader = DataLoader(TensorDataset(torch.rand(128, 4), torch.arange(128) % 10), 4, num_workers=1)
    model = torch.nn.Linear(4, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: Any) -> None:
        images, labels = batch
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
        optimizer.zero_grad()

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("TSNB_PROJECT_DIR", str(here))
        with tsnb.serve(loader, name="digits", seed=0, stall_timeout_s=1) as stream:
            running = tsnb.sweep(train, grid={"lr": [0.1]}, name="cnn", epochs=100_000)
            done = tsnb.sweep(train, grid={"lr": [0.1, 0.01]}).wait(60)
            trial = next(iter(running.values()))
            recorder = tsnb.streams.record("digits", "run.jsonl")
            while not trial.metrics or not Path("run.jsonl").stat().st_size > 1000:
                time.sleep(0.05)
            recorder.stop()
            gc.collect()
            gc.freeze()  # each test collects what it left behind
            try:
                yield {
                    "tsnb": tsnb,
                    "torch": torch,
                    "DataLoader": DataLoader,
                    "loader": loader,
                    "dataset": loader.dataset,
                    "model": model,
                    "optimizer": optimizer,
                    "train": train,
                    "changed": changed,
                    "train_step": train_step,
                    "parse": lambda path: torch.zeros(1),
                    "stream": stream,
                    "trial": trial,
                    "sweep": running,
                    "ended": (done["train-lr0.01"], done),
                }
            finally:
                tsnb.trials.clear()


RUN = [name for name in DESCRIBED if not isinstance(named(name), property) and name not in NO_EXAMPLE]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_example_of_a_docstring_runs(
    name: str, served: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Each public function, class and method shows its use in a few lines, which do what they show."""
    source = "".join(
        one.source for one in doctest.DocTestParser().get_examples(section(text_of(name), "Example"))
    )
    assert source, f"tsnb.{name} has no Example"
    if name in NOT_RUN:
        compile(source, name, "exec")
        return
    names = {**served, "__name__": "__main__"}
    kept = [names["trial"], *names["ended"][1].values()]
    if name in OF_ENDED:
        names["trial"], names["sweep"] = names["ended"]
    try:
        exec(compile(source, name, "exec"), names)
    finally:
        for found in names.values():
            if isinstance(found, tsnb.Consumer):
                found.close()
        for one in tsnb.trials.values():
            if one not in kept:
                one.stop()


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
    with pytest.raises(AttributeError, match=r"Did you mean tsnb\.records\.export\?"):
        getattr(tsnb, "export")  # noqa: B009
    with pytest.raises(
        AttributeError, match=r'Did you mean tsnb\.trials\["NAME"\]\.stop\(\) or tsnb\.streams'
    ):
        getattr(tsnb, "stop")  # noqa: B009
    with pytest.raises(AttributeError, match=r"Did you mean tsnb\.run\?"):
        getattr(tsnb, "submit")  # noqa: B009


GUESSED = {"kill", "cancel", "terminate", "best", "status", "join", "output"}


@pytest.mark.parametrize("kind", ["Trial", "Trials", "Sweep"])
def test_a_guessed_name_of_a_trial_or_sweep_is_answered_with_what_is_meant(kind: str) -> None:
    """Each guess is the class's own, or the error names what is there; another one fails as anywhere."""
    kinds: dict[str, type[Any]] = {"Trial": tsnb.Trial, "Trials": type(tsnb.trials), "Sweep": tsnb.Sweep}
    owner = kinds[kind]
    one: Any = object.__new__(owner)
    for name in GUESSED:
        if hasattr(owner, name):
            continue
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'\. Did you mean .+\?$") as told:
            getattr(one, name)
        for called in re.findall(r"^(\w+)\(\)", str(told.value).partition("Did you mean ")[2]):
            assert callable(getattr(owner, called))
        assert not hasattr(one, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'weather'$"):
        getattr(one, "weather")  # noqa: B009


REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
ELSEWHERE = {
    "BesideReading, CacheReading, ConsumerReading, EndReading, GrowthReading, HostReading": "docs/readings.md",
    "FrozenReading": "docs/readings.md",
    "MoveReading, OutcomeReading, PlanReading, TuningReading": "docs/readings.md",
    "Panel": "docs/read-the-panel.md: what it is beside a widget is the front end's",
    "Cached": "a torch Dataset",
    "ConsumerLoader": "a torch DataLoader",
    "StreamDataset, StreamSampler": "docs/batch-contents.md: a torch Dataset and Sampler",
    "Core, Count, Delivered, Notices, Options, Rebatcher": "parts of a producer or consumer, for tsnb's own modules",
    "Generations, Ladder, Racing": "a rule under way, for the sweep",
    "Owner": "the process behind an entry, for tsnb's own modules",
    "TrialWish": "what a plan was asked, as its parts take it",
    "Span": "an alias of a pair of numbers",
}
"""Types that public names give and that are not in the reference, with the reason or the page that has them."""


def classes_of_tsnb() -> dict[str, str]:
    """Return the module of each public class of the package, by its name."""
    paths = sorted((REFERENCE.parents[1] / "tsnb").rglob("*.py"))
    found = {
        node.name: path
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    return {name: str(path) for name, path in found.items()}


def given(found: Any) -> set[str]:
    """Return the names of the types that a function gives, or that are at hand on what is of a class."""
    if not inspect.isclass(found):
        return set(re.findall(r"\w+", str(found.__annotations__["return"])))
    fields = [
        text
        for kind in found.__mro__
        for name, text in inspect.get_annotations(kind).items()
        if name[0] != "_"
    ]
    for name in vars(found):
        value = inspect.getattr_static(found, name)
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(value):
            fields.append(value.__annotations__.get("return", ""))
    return {word for text in fields for word in re.findall(r"\w+", str(text))}


def test_what_public_names_give_is_in_the_reference() -> None:
    """`trial.eta`, `plan.choice`, `producer.probes`: a reader finds there what each of them has."""
    text = REFERENCE.read_text(encoding="utf-8")
    named = [
        name if name.startswith("tsnb.") else f"tsnb.{name}"
        for name in re.findall(r"auto(?:class|function):: ([\w.]+)", text)
    ]
    found = [
        getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in named
    ]
    there = {path.rpartition(".")[2] for path in named} | {
        word for names in ELSEWHERE for word in names.split(", ")
    }
    ours = classes_of_tsnb()
    missing = {
        f"{one.__name__} gives {word} ({ours[word]})"
        for one in found
        for word in given(one)
        if word in ours and word not in there
    }
    assert not missing, sorted(missing)


LOOPS = (
    "as_dataloader, batch_sampler, batch_size, close, closed, dataset, epoch, load_state_dict, name, report, sampler, "
    "set_epoch, state_dict, stats, stream, weights"
)
"""What `tsnb.attach` returns has for a training loop, beside iteration and `len`."""


def test_a_consumer_shows_what_a_training_loop_needs() -> None:
    """Completion offers those and no others, and the reference, which lists them all, thereby too."""
    with tsnb.serve([torch.zeros(2)], name="shown"):
        consumer = tsnb.attach("loop", stream="shown")
        shown = [name for name in dir(consumer) if not name.startswith("_")]
        consumer.close()
    assert ", ".join(shown) == LOOPS
    assert {"__iter__", "__len__", "__enter__"} <= set(dir(consumer))
    assert all(inspect.getdoc(inspect.getattr_static(tsnb.Consumer, name)) for name in shown)
    members = REFERENCE.read_text(encoding="utf-8").partition(".. autoclass:: Consumer()\n")[2]
    assert members.startswith("   :members:\n")
