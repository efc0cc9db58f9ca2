"""What a trial finds of its notebook, and what a notebook finds of its trial: names, pairs, consumers, advice."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tsnb
from tsnb.errors import NotShippable, TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.hosting.serving import serve_loader
from tsnb.records.run import Run
from tsnb.serving import serve

pytestmark = pytest.mark.system

CLASSES = """
import torch, enum, dataclasses, functools
class Net(torch.nn.Linear):
    class Config:
        width = 2
def scaled(x): return 2 * x
@functools.lru_cache
def cached(x): return x
class Kind(enum.Enum):
    A = 1
@dataclasses.dataclass
class Settings:
    lr: float
"""


def start(name: str, cell: str, page: Any, variables: dict[str, Any] | None = None, **options: Any) -> Trial:
    return run_cell(name, cell, variables or {}, outlet=page, **options)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("Net(2, 1)", "Net"),
        ("Net.Config()", "Net"),
        ("scaled", "scaled"),
        ("cached", "cached"),
        ("Kind.A", "Kind"),
        ("Settings(0.1)", "Settings"),
        ("[{'nets': [Net(1, 1)]}]", "Net"),
    ],
)
def test_what_came_along_can_be_saved_though_the_cell_never_names_its_class(
    made: str, name: str, notebook: Any, page: Any, tmp_path: Path
) -> None:
    """Plain pickle finds the class of an instance, or a function, by its name in the trial, as in the notebook."""
    box = notebook.run(f"{CLASSES}\nthing = {made}")
    saved = tmp_path / "thing.pt"
    start(
        "a", f"import torch\ntorch.save(thing, {str(saved)!r})\nthere = {name!r} in globals()", page, box
    ).wait(120)
    loaded = torch.load(saved, weights_only=False)
    assert type(loaded) is type(box["thing"])


def test_a_name_that_comes_along_takes_no_other_place(notebook: Any, page: Any) -> None:
    """A name that the trial has of its own stays; a name that means another thing in the notebook does not come."""
    box = notebook.run(f"{CLASSES}\nnet = Net(1, 1)\nNet = 'other'")
    trial = start("a", "kind = type(net).__name__\nthere = 'N' + 'et' in globals()", page, box)
    assert trial.wait(120)["kind"] == "Net"
    assert trial["there"] is False


PAIR = """
import torch
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
plain = {"loss": 1.0}
"""


@pytest.mark.parametrize("kept", [False, True])
def test_variables_that_belong_together_are_fetched_together(page: Any, kept: bool) -> None:
    """The optimizer trains the net that comes with it; of one that is fetched alone after the net it is said."""
    trial = start("a", PAIR, page).wait(120)
    if kept:
        trial._call(trial.life.release())
        assert trial.pid is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        net, optimizer, schedule = trial["net", "optimizer", "schedule"]
    assert optimizer.param_groups[0]["params"][0] is net.weight
    assert schedule.optimizer is optimizer
    before = net.weight.detach().clone()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(net.weight, before)

    again = start("b", PAIR, page).wait(120)
    if kept:
        again._call(again.life.release())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again["net"]
        again["plain"]
        again["net"]
    with pytest.warns(
        UserWarning,
        match=r"in an earlier call.*Fetch both at once: net, optimizer = trial\['net', 'optimizer'\]",
    ):
        again["optimizer"]
    with pytest.raises(TsnbError, match="no variable 'netz'"):
        again["net", "netz"]


HOLDS = """
import tsnb
consumer = tsnb.attach()
class Learner:
    def __init__(self):
        self.loader, self.batches = consumer, consumer.as_dataloader()
        self.it, self.score = iter(consumer), 7
learn = Learner()
next(learn.it)
"""


def test_what_holds_a_consumer_can_be_fetched(page: Any) -> None:
    """A trainer that holds its loader comes with a stand-in for it, which is closed and says what to do."""
    with serve([torch.ones(2, 1)] * 8, name="plenty"):
        trial = start("a", HOLDS, page, stream="plenty").wait(120)
        learn = trial["learn"]
        assert learn.score == 7
        assert learn.loader.closed
        assert "'a'" in repr(learn.loader)
        assert not hasattr(learn.loader, "_line")
        for loader in (learn.loader, learn.batches):
            with pytest.raises(TsnbError, match=r"closed here. Attach in the process that needs it"):
                next(iter(loader))
        with pytest.raises(TsnbError, match="closed here"):
            next(learn.it)
        consumer = tsnb.attach("mine", stream="plenty")
        with pytest.raises(NotShippable, match="cannot copy 'consumer'"):
            start("b", "consumer", page, {"consumer": consumer})


def test_objects_of_other_libraries_are_to_be_made_in_the_trial(
    notebook: Any, page: Any, tmp_path: Path
) -> None:
    """Nobody is told to edit a library's class: it is to be made in the cell, or left out by the class that has it."""
    box = notebook.run(
        "from torch.utils.tensorboard import SummaryWriter\n"
        f"writer = SummaryWriter({str(tmp_path)!r})\n"
        "class Logger:\n    def __init__(self): self.writer = writer\n"
        "logger = Logger()\nseveral = [writer]\ndef train(): return writer\n"
    )
    kind = r"torch\.utils\.tensorboard\.writer\.SummaryWriter"
    for name, said in (
        ("writer", rf"belongs to writer, a {kind}\. Create writer in the trial's cell or function"),
        ("several", rf"belongs to several\[0\], a {kind}\. Create several\[0\] in the trial's cell"),
        ("train", rf"belongs to train -> writer, a {kind}\. Create writer in the trial's cell"),
        ("logger", rf"belongs to logger.writer, a {kind}\. Leave logger.writer out in __getstate__"),
    ):
        with pytest.raises(NotShippable, match=said):
            start("a", name, page, box)
    trial = start(
        "b",
        f"from torch.utils.tensorboard import SummaryWriter\nmine = SummaryWriter({str(tmp_path)!r})",
        page,
    )
    with pytest.raises(NotShippable, match=r"It stays in its trial\. Fetch the parts you need"):
        trial.wait(120)["mine"]
    box["writer"].close()


DRAWS = (
    "import random, numpy, torch\ndrawn = (random.random(), float(numpy.random.rand()), float(torch.rand(1)))"
)


def shuffled(name: str) -> list[int]:
    """Return the first epochs of a shuffled loader with drawn noise, as a background stream gives them."""
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    kernel = serve_loader(torch.utils.data.DataLoader(data, 8, shuffle=True, collate_fn=Noisy()), name)
    consumer = tsnb.attach(f"of-{name}", stream=name)
    got = [value for _ in range(2) for batch in consumer for value in batch.tolist()]
    consumer.close()
    kernel.stop()
    return got


class Noisy:
    def __call__(self, samples: list[Any]) -> torch.Tensor:
        return torch.stack([sample[0] for sample in samples]) + torch.rand(len(samples)) / 2


@pytest.mark.slow
def test_a_notebook_that_is_seeded_gets_equal_numbers_each_time(page: Any) -> None:
    """Its trials' weights and draws, and its streams' order; another seed gives others, and `seed` counts more."""
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        first, again = start("a", DRAWS, page).wait(120)["drawn"], start("b", DRAWS, page).wait(120)["drawn"]
        assert first == again
        assert "trial 'a' running (pid" in page.text
        assert "), seeded with 0 like this notebook\n" in page.text
        run = Run.find("a")
        assert run is not None
        assert (record := run.read()) is not None
        assert record.seed == 0
        assert start("c", DRAWS, page, seed=5).wait(120)["drawn"] != first
        order = shuffled("x")
        torch.manual_seed(0)
        assert shuffled("y") == order
        torch.manual_seed(1)
        assert start("d", DRAWS, page).wait(120)["drawn"] != first
        assert shuffled("z") != order
        torch.seed()
        page.shown.clear()
        assert start("e", DRAWS, page).wait(120)["drawn"] != start("f", DRAWS, page).wait(120)["drawn"]
        assert "seeded" not in page.text
    finally:
        torch.set_rng_state(state)
        torch.seed()


def test_a_loader_s_own_generator_decides_in_a_seeded_notebook(page: Any) -> None:
    """Its user has seeded that on purpose: the order is the generator's, as in the notebook itself."""
    data = torch.utils.data.TensorDataset(torch.arange(64.0))

    def loader() -> Any:
        own = torch.Generator().manual_seed(7)
        return torch.utils.data.DataLoader(data, 8, shuffle=True, generator=own)

    torch.manual_seed(0)
    try:
        kernel = serve_loader(loader(), "own")
        got = torch.cat([batch[0] for batch in tsnb.attach("of-own", stream="own")])
        assert kernel.seed is None
        assert torch.equal(got, torch.cat([batch[0] for batch in loader()]))
    finally:
        torch.seed()


DIES_AFTER_A_SET = """
import os, pathlib, signal, time
from tsnb.experiments.in_kernel.steps import _trials
from tsnb.experiments.live_values import values_here
rate, mark, go, seen = tsnb.live("rate", 0.1), pathlib.Path(place), pathlib.Path(place + "-go"), []
def die(changes=()):
    if changes: _trials[-1].run.changed(changes)
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
for number, batch in enumerate(tsnb.attach()):
    seen.append(float(rate))
    tsnb.log(step_number=number)
    if number == 8 and not mark.exists():
        while not go.exists(): time.sleep(0.01)
        if dies == "at once": die()
        if dies == "as it holds": values_here().noted = die
    if number == 12 and not mark.exists(): die()
"""


@pytest.mark.parametrize("dies", ["at once", "as it holds", "later"])
def test_a_set_value_holds_again_after_a_restart_from_the_top(
    dies: str, page: Any, until: Any, tmp_path: Path
) -> None:
    """At the same place of its data as in the life that was lost, and `changes` lists it once, the record too.

    Its process dies with the value asked for, or written down and not told, or four batches later.
    """
    mark = tmp_path / "mark"
    with serve([torch.ones(2, 1)] * 20, name="twenty", late_join=1.0):
        variables = {"place": str(mark), "dies": dies}
        trial = start("a", DIES_AFTER_A_SET, page, variables, restart="on-crash", stream="twenty")
        until(lambda: len(trial.metrics.rows) > 8, 120)
        trial.set(rate=0.5)
        Path(f"{mark}-go").touch()
        trial.wait(120)
    assert trial.restarts == 1
    assert trial["seen"] == [0.1] * 9 + [0.5] * 11
    assert [change[:5] for change in trial.changes] == [("rate", 0.5, 1, 10, 20)]
    run = Run.find("a")
    assert run is not None
    assert (record := run.read()) is not None
    assert record.changes == trial.changes
