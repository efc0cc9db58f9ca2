"""What is asked before hours are spent changes nothing of who asks: one look at everything, whatever is asked."""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize  # noqa: F401  # that a plan imports, and that filters its own warnings
import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.errors import TsnbError

pytestmark = [pytest.mark.system, pytest.mark.slow]

TRAIN = """
def train(width=4, epochs=2, fails=False):
    import os, random, sys, time, warnings
    import numpy, torch, tsnb
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    os.environ["LEFT"] = "behind"
    os.chdir("/")
    sys.path.append("/nowhere")
    warnings.simplefilter("error", UserWarning)
    net = torch.nn.Linear(1, width)
    for _ in range(epochs):
        for number, batch in enumerate(tsnb.attach()):
            if fails and number == 5:
                raise RuntimeError("out of luck")
            net(batch[:, None].double()).sum().backward()
            time.sleep(0.004)
"""


def numpy_draws() -> float:
    """Return the next number of numpy's global generator."""
    return float(np.random.rand())  # noqa: NPY002


class Drawing(Dataset[Any]):
    """Files, whose samples draw from every global generator and from one of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.luck = folder, random.Random(3)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        size = len((self.folder / str(index)).read_bytes())
        drawn = random.random() + numpy_draws() + self.luck.random()
        return torch.tensor(size + drawn) + torch.rand(())


@pytest.fixture(params=[0, 1], ids=["no worker", "a worker"])
def loader(request: pytest.FixtureRequest) -> Iterator[DataLoader[Any]]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for number in range(64):
            (Path(folder) / str(number)).write_bytes(bytes(20_000))
        order = torch.Generator().manual_seed(5)
        data = Drawing(Path(folder))
        for _ in DataLoader(data, 4, num_workers=1, multiprocessing_context="fork"):
            break  # with a process's first worker torch handles SIGCHLD, for good
        method = multiprocessing.get_start_method(allow_none=True)
        multiprocessing.set_start_method(None, force=True)  # as in a script that has not chosen one yet
        yield DataLoader(data, 4, shuffle=True, num_workers=request.param, generator=order)
        multiprocessing.set_start_method(method, force=True)


def trains() -> Any:
    """A function that travels by value: this file cannot be imported in a trial."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(TRAIN, made)
    return made["train"]


def everything(
    net: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]
) -> dict[str, Any]:
    """Return all of this process that a training may depend on, by name, as values that can be compared."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002  # the global one is what users seed
    state = {
        "python's random numbers": random.getstate(),
        "numpy's": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]),
        "torch's": torch.get_rng_state().tolist(),
        "the loader's": loader.generator.get_state().tolist(),
        "the dataset's": loader.dataset.luck.getstate(),  # type: ignore[attr-defined]
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "the model": {name: value.tolist() for name, value in net.state_dict().items()},
        "gradients of it": [None if p.grad is None else p.grad.tolist() for p in net.parameters()],
        "its mode": net.training,
        "the optimizer": repr(optimizer.state_dict()),
        "the loader": {name: id(value) for name, value in vars(loader).items()},
        "the dataset": sorted(vars(loader.dataset)),
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "masked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "wakeup": _wakeup(),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0.0,
        "path": list(sys.path),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "warnings": list(warnings.filters),
        "logging": (
            logging.root.level,
            list(logging.root.handlers),
            logging.root.manager.disable,
            logging.getLogger("tsnb").level,
            list(logging.getLogger("tsnb").handlers),
        ),
        "directory": Path.cwd(),
        "environment": dict(os.environ),
        "mask of new files": _umask(),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "garbage": (gc.isenabled(), gc.get_threshold()),
        "processes are started by": multiprocessing.get_start_method(allow_none=True),
        "tensors are shared by": torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        "cores": os.sched_getaffinity(0),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "the system kills it": Path("/proc/self/oom_score_adj").read_text(),
    }
    state["environment"].pop("PYTEST_CURRENT_TEST", None)
    return state


def _wakeup() -> int:
    found = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(found)
    return found


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def step_of(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Any], None]:
    """Return a step that trains a copy, as the sentences of `tsnb.stalls` advise, and draws."""
    twin = copy.deepcopy(net)

    def step(batch: torch.Tensor) -> None:
        noise = random.random() + numpy_draws() + float(torch.rand(()))
        twin((batch + noise)[:, None]).sum().backward()

    return step


def failing(batch: Any) -> None:
    """Draw, and raise."""
    random.random()
    raise RuntimeError("out of luck")


ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "stalls": lambda loader, step, _: tsnb.stalls(loader, train_step=step, seconds=0.1, threads=2),
    "stalls of the disk": lambda loader, step, _: tsnb.stalls(
        loader, train_step=step, seconds=0.1, cold=True
    ),
    "stalls of a step that raises": lambda loader, *_: tsnb.stalls(loader, train_step=failing, seconds=0.1),
    "plan": lambda loader, _, train: tsnb.plan([train, (train, {"width": 8})], loader=loader, seconds=0.1),
    "plan of one that fails": lambda loader, _, train: tsnb.plan(
        [train, (train, {"fails": True})], loader=loader, seconds=0.1
    ),
}


@pytest.mark.parametrize("ask", ASKED)
def test_what_is_asked_before_changes_nothing(ask: str, loader: DataLoader[Any]) -> None:
    """Model, optimizer, random numbers, threads, signals, paths, warnings, logging, environment: all are as before."""
    net = torch.nn.Linear(1, 4)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(4, 1)).sum().backward()
    optimizer.step()
    step, train = step_of(net, optimizer), trains()
    before = everything(net, optimizer, loader)
    with contextlib.suppress(TsnbError) if "fails" in ask or "raises" in ask else contextlib.nullcontext():
        ASKED[ask](loader, step, train)
    after = everything(net, optimizer, loader)
    assert {name for name in before if before[name] != after[name]} == set()
    assert not tsnb.streams.list() and not list(tsnb.trials)


def test_a_planned_sweep_changes_nothing_of_who_asks(loader: DataLoader[Any]) -> None:
    """Nor does it while it runs: its trials are in other processes. Serving the loader is what draws."""
    net = torch.nn.Linear(1, 4)
    optimizer = torch.optim.AdamW(net.parameters())
    with tsnb.serve(copy.copy(loader), name="numbers"):
        before = everything(net, optimizer, loader)
        sweep = tsnb.sweep(trains(), grid={"width": [4, 8]}, plan=True)
        while_it_runs = everything(net, optimizer, loader)
        sweep.wait(120)
        after = everything(net, optimizer, loader)
    drawn = {"python's random numbers", "numpy's", "torch's", "the loader's", "the dataset's"}
    for found in (while_it_runs, after):
        assert {name for name in before if before[name] != found[name]} <= drawn
    tsnb.trials.clear()
