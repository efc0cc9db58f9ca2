"""Loaders served from real background kernels: what is attached to, what is refused, what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import tsnb
from tests import leftovers
from tsnb.config import runtime_directory
from tsnb.discovery import registry
from tsnb.errors import LoaderFailed, NameInUse, NotShippable, ProducerGone, TrialFailed
from tsnb.experiments import run_cell, trials
from tsnb.hosting import producer_kernels, serve_from_cell, serve_loader
from tsnb.kernels.processes.child import log_path
from tsnb.options import StreamOptions

pytestmark = pytest.mark.system

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __init__(self, size, bad=None):
        self.size, self.bad = size, bad
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        if index == self.bad:
            raise ValueError(f"image {index} is broken")
        return torch.tensor([index, index * index])

def stacked(samples):
    return {"squares": torch.stack(samples)}
"""


@pytest.fixture
def squares(notebook: Any) -> Any:
    """Return a function that builds a loader whose classes live in the notebook only."""
    box = notebook.run(LOADER)

    def build(size: int = 64, **options: Any) -> Any:
        bad = options.pop("bad", None)
        return box["DataLoader"](box["Squares"](size, bad), collate_fn=box["stacked"], **options)

    return build


def processes() -> set[str]:
    """Return this process's descendants, but for the fork server and the like, which stay once they are there."""
    return leftovers._children() - leftovers.infrastructure()


def test_a_loader_defined_in_the_notebook_is_served_and_attached_to(squares: Any, page: Any) -> None:
    """Dataset, collate function and workers go into the producer kernel; batches come out as the loader gives them."""
    kernel = serve_loader(squares(batch_size=8, num_workers=1), "squares", outlet=page)
    assert [entry.name for entry in tsnb.streams.list()] == ["squares"]
    assert registry.find("squares").pid == kernel.pid != os.getpid()
    consumer = tsnb.attach("here", stream="squares")
    seen = [row.tolist() for batch in consumer for row in batch["squares"]]
    consumer.close()
    assert seen == [[i, i * i] for i in range(64)]
    kernel.stop()
    assert tsnb.streams.list() == []
    assert not kernel.alive


def test_trials_attach_by_their_own_names_and_their_results_say_what_they_took(
    squares: Any, page: Any
) -> None:
    """`tsnb.attach()` needs no argument in a trial; the table has stream, epochs, samples and rate."""
    serve_loader(squares(batch_size=8), "squares", StreamOptions(late_join=1.0), outlet=page)
    cell = (
        "total = 0\nfor epoch in range(2):\n    for batch in tsnb.attach():\n"
        "        total += len(batch['squares'])\n        tsnb.log(total=total)\n"
        "name = tsnb.attach().name\n"
    )
    for name in ("takes-one", "takes-two"):  # names that no test beside this one records in the same project
        run_cell(name, cell, {}, outlet=page)
    trials.wait(120)
    assert trials["takes-one"]["name"] == "takes-one"
    table = tsnb.results().set_index("name").loc[["takes-one", "takes-two"]]
    assert list(table["samples"]) == [128, 128]
    assert list(table["epochs"]) == [2, 2]
    assert list(table["stream"]) == ["squares", "squares"]
    assert (table["samples_per_s"] > 0).all()
    assert list(table["total"]) == [128, 128]
    assert tsnb.streams.status("squares").consumers == (), "a trial leaves its streams when its cell ends"


def test_a_cell_builds_the_loader_in_the_kernel(notebook: Any, page: Any) -> None:
    """What cannot travel is made there; only what the cell reads is copied, and its output is shown."""
    box = notebook.run(LOADER + "\nsize = 24")
    cell = (
        "import threading\nprint('building')\ndata = Squares(size)\ndata.lock = threading.Lock()\n"
        "loader = DataLoader(data, batch_size=8)"
    )
    kernel = serve_from_cell(cell, box, "built", outlet=page)
    assert "building" in page.text
    assert "building" in kernel.logs()
    consumer = tsnb.attach("here", stream="built")
    assert sum(len(batch) for batch in consumer) == 24
    consumer.close()


def test_a_name_that_is_served_is_refused_before_anything_starts(squares: Any, page: Any) -> None:
    """The error says since when, by whom, and how to stop it."""
    serve_loader(squares(), "taken", outlet=page)
    before = processes()
    with pytest.raises(
        NameInUse, match=r"'taken' has been served for .* by .*\(pid \d+\)\. Stop it with %tensor"
    ):
        serve_loader(squares(), "taken", outlet=page)
    assert processes() == before


def test_what_is_wrong_with_a_loader_is_said_where_it_is_started(
    squares: Any, notebook: Any, page: Any
) -> None:
    """Broken, empty, no iterable, cannot travel, a bad name: a clear error, and no kernel left."""
    box = notebook.run(LOADER)
    before = processes()
    with pytest.raises(LoaderFailed, match="image 0 is broken") as caught:
        serve_loader(squares(bad=0), "bad", outlet=page)
    assert "__getitem__" in str(caught.value), "the loader's own traceback"
    with pytest.raises(LoaderFailed, match="no batch at all"):
        serve_loader(squares(0), "bad", outlet=page)
    with pytest.raises(TypeError, match="'count' has the type int, which cannot be iterated"):
        serve_loader(3, "bad", variable="count", outlet=page)
    with pytest.raises(ValueError, match="Try 'a-b'"):
        serve_loader(squares(), "a/b", outlet=page)
    loader = squares()
    with (
        open(__file__) as loader.dataset.file,
        pytest.raises(NotShippable, match=r"train\.dataset\.file is an open"),
    ):
        serve_loader(loader, "bad", variable="train", outlet=page)
    with pytest.raises(ValueError, match="late_join=7"):
        serve_loader(squares(), "bad", StreamOptions(late_join=7), outlet=page)
    with pytest.raises(LoaderFailed, match="did not create the variable 'loader'"):
        serve_from_cell("laoder = [1]", box, "bad", outlet=page)
    with pytest.raises(LoaderFailed, match="The cell that builds the loader failed: ZeroDivisionError"):
        serve_from_cell("1 / 0", box, "bad", outlet=page)
    assert page.of("error")[-1]["ename"] == "ZeroDivisionError"
    assert processes() == before
    assert tsnb.streams.list() == []
    assert "bad" not in producer_kernels


def test_a_loader_that_fails_later_says_so_to_the_trial(squares: Any, page: Any) -> None:
    """The trial ends with the loader's own error; the producer lives on."""
    kernel = serve_loader(squares(bad=50, batch_size=4), "late", outlet=page)
    trial = run_cell("victim", "for batch in tsnb.attach(): pass", {}, outlet=page)
    with pytest.raises(TrialFailed, match="image 50 is broken"):
        trial.wait(120)
    assert kernel.alive


def test_a_killed_producer_is_told_under_its_cell(
    squares: Any, page: Any, until: Callable[..., None]
) -> None:
    """With the signal's name; who is attached gets ProducerGone; its workers go too."""
    kernel = serve_loader(squares(4000, num_workers=1), "killed", outlet=page)
    consumer = tsnb.attach("here", stream="killed")
    batches = iter(consumer)
    next(batches)
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    with pytest.raises(ProducerGone):
        list(batches)
    until(lambda: "Stream 'killed' has ended: its kernel was killed by SIGKILL" in page.text, 120)
    assert not kernel.alive
    consumer.close()


def test_stopping_it_from_elsewhere_ends_its_kernel(
    squares: Any, page: Any, until: Callable[..., None]
) -> None:
    """`tsnb stop` in a terminal leaves no kernel without a stream."""
    kernel = serve_loader(squares(), "elsewhere", outlet=page)
    tsnb.streams.stop("elsewhere")
    until(lambda: not kernel.alive)
    until(lambda: "was stopped" in page.text)


DETACHED = f"""
import sys, types
sys.modules["__main__"].__dict__.update(__name__="__main__")
{LOADER}
from tsnb.options import StreamOptions
from tsnb.hosting.serving import serve_loader
if __name__ == "__main__":
    kernel = serve_loader(DataLoader(Squares(16), batch_size=4), "detached", StreamOptions(detach=True))
    print(kernel.pid, flush=True)
"""


@pytest.mark.slow
def test_a_detached_producer_outlives_its_notebook_and_leaves_nothing(until: Callable[..., None]) -> None:
    """It serves on after the process that started it has gone; a stop removes its kernel and its files."""
    done = subprocess.run([sys.executable, "-c", DETACHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout.split()[-1])
    try:
        consumer = tsnb.attach("here", stream="detached")
        assert sum(len(batch) for batch in consumer) == 16
        consumer.close()
        home = runtime_directory()
        assert len(list(home.glob("hub-*/connection.json"))) == 1
        tsnb.streams.stop("detached")
        until(lambda: not psutil.pid_exists(pid))
        assert not list(home.glob("hub-*/connection.json"))
        assert log_path("detached").exists()
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_producer_dies_with_its_notebook(until: Callable[..., None]) -> None:
    """SIGKILL of the notebook takes an attached producer kernel with it."""
    code = DETACHED.replace("detach=True", "detach=False").replace('"detached"', '"attached"')
    code += "    import time\n    time.sleep(60)\n"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    until(lambda: tsnb.streams.list() == [])  # its other threads may hold its entry a moment longer
