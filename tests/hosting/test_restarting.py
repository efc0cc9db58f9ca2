"""Producer kernels that are started again: when asked, after a crash, with another loader; and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import tsnb
from tests.hosting.test_serving import LOADER
from tests.kernels.conftest import cargoes
from tests.waiting import wait_until
from tsnb.config import runtime_directory
from tsnb.discovery import registry
from tsnb.errors import LoaderFailed, NotShippable, ProducerGone, ProducerNotFound, TrialFailed, TsnbError
from tsnb.experiments import run_cell, trials
from tsnb.hosting import serve_from_cell, serve_loader
from tsnb.hosting.producing import ProducerKernel
from tsnb.hosting.serving import (
    kernel_of,
    reload_cell,
    reload_loader,
    restart_kernel,
)
from tsnb.kernels.hub import the_hub
from tsnb.options import StreamOptions

pytestmark = pytest.mark.system

ON_CRASH = StreamOptions(restart="on-crash")

SETTLED_S = 90.0
"""How long a kernel may take to be back on a busy machine."""

DEADLY = """
import os, signal
class Deadly(Squares):
    '''Kills its process while a file is there.'''
    def __init__(self, size, path, at=None):
        super().__init__(size)
        self.path, self.at = path, at
    def __getitem__(self, index):
        if self.at in (None, index) and os.path.exists(self.path):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

class Costly(Squares):
    def __getitem__(self, index):
        import time
        time.sleep(0.002)
        return super().__getitem__(index)

class Slow:
    def __iter__(self):
        import time
        time.sleep(60)

class Once:
    def __iter__(self):
        if self.__dict__.setdefault("used", False):
            raise ValueError("only once")
        self.used = True
        return iter([torch.zeros(4, 2)])
"""


@pytest.fixture
def box(notebook: Any) -> Any:
    """Return notebook variables with datasets that live there only."""
    return notebook.run(LOADER + DEADLY)


_there: list[object] = []


@pytest.fixture(autouse=True)
def _before() -> None:
    """Note what other tests have not let go of."""
    _there[:] = cargoes()


def shipped() -> list[object]:
    """Return what a kernel of this test could be started from again."""
    return [cargo for cargo in cargoes() if cargo not in _there]


def values(name: str) -> list[int]:
    """Attach, and return the first column of one epoch."""
    consumer = tsnb.attach("here", stream=name)
    seen = [row[0].item() for batch in consumer for row in batch]
    consumer.close()
    return seen


def kill(kernel: ProducerKernel) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)


def test_a_restart_serves_the_same_copy_from_a_new_kernel(box: Any, page: Any) -> None:
    """Later changes to the notebook's loader are not in it; what it is started from goes at the end."""
    box["data"] = box["Squares"](16)
    kernel = serve_loader(box["DataLoader"](box["data"], batch_size=4), "again", outlet=page)
    former = kernel.pid
    assert len(shipped()) == 1
    box["data"].size = 8
    restart_kernel(kernel)
    assert kernel.pid not in (None, former)
    assert kernel.restarts == 1
    assert not psutil.pid_exists(former or 0)
    assert values("again") == list(range(16))
    kernel.stop()
    assert kernel.ended
    assert shipped() == []
    assert "gone" not in page.text, "what was asked for is no news"


@pytest.mark.slow
def test_what_a_cache_keeps_outlives_a_restart_and_not_another_loader(box: Any, page: Any) -> None:
    """The same copy has the same samples; those of a loader that was edited are others, and begin anew."""
    loader = box["DataLoader"](box["Costly"](16), batch_size=4, num_workers=1)
    kernel = serve_loader(loader, "kept", StreamOptions(cache="1MiB"), outlet=page)
    for _ in range(3):
        assert values("kept") == list(range(16))
    restart_kernel(kernel)
    assert values("kept") == list(range(16))
    deadline = time.monotonic() + 10
    while (cache := tsnb.streams.status("kept").cache) is None or cache.state != "serving":
        assert time.monotonic() < deadline, cache  # an epoch's end is told before its workers have ended
        time.sleep(0.02)
    assert (cache.kept, cache.misses) == (16, 32)
    reload_loader(kernel, box["DataLoader"](box["Costly"](8), batch_size=4, num_workers=1))
    assert values("kept") == list(range(8))
    cache = tsnb.streams.status("kept").cache
    assert cache is not None
    assert (cache.samples, cache.hits) == (8, 0)
    kernel.stop()
    assert shipped() == []


@pytest.mark.slow
def test_a_cell_s_stream_is_built_again_from_what_the_cell_had(box: Any, page: Any) -> None:
    """The cell's source and the variables of then; a reload takes those of now."""
    box["size"] = 16
    cell = "print('building', size)\nloader = DataLoader(Squares(size), batch_size=4)"
    kernel = serve_from_cell(cell, box, "cell", outlet=page)
    box["size"] = 8
    restart_kernel(kernel)
    assert values("cell") == list(range(16))
    reload_cell(kernel, box)
    assert values("cell") == list(range(8))
    assert [line.split()[-1] for line in page.text.splitlines() if "building" in line] == ["16", "16", "8"]
    assert len(shipped()) == 1
    del box["size"]
    with pytest.raises(TsnbError, match="'size' is not defined"):
        reload_cell(kernel, box)
    assert values("cell") == list(range(8)), "it goes on as it was"


def test_a_reload_serves_the_edited_loader(box: Any, page: Any) -> None:
    """And the notebook's variable is known to be the one that is served."""
    first = box["DataLoader"](box["Squares"](16), batch_size=4)
    second = box["DataLoader"](box["Squares"](8), batch_size=4)
    kernel = serve_loader(first, "edited", variable="train", outlet=page)
    reload_loader(kernel, second)
    assert values("edited") == list(range(8))
    assert kernel.serves(second)
    assert not kernel.serves(first)
    assert len(shipped()) == 1


@pytest.mark.slow
def test_an_edited_loader_that_fails_leaves_the_former_one_served(box: Any, page: Any) -> None:
    """A typo in an edit must not cost the stream: not what cannot travel, and not what raises."""
    kernel = serve_loader(box["DataLoader"](box["Squares"](16), batch_size=4), "safe", outlet=page)
    former = kernel.pid
    broken = box["DataLoader"](box["Squares"](16), batch_size=4)
    with (
        open(__file__) as broken.dataset.file,
        pytest.raises(NotShippable, match=r"dataset\.file is an open file"),
    ):
        reload_loader(kernel, broken)
    with pytest.raises(TypeError, match="cannot be iterated"):
        reload_loader(kernel, 3)
    with pytest.raises(LoaderFailed, match="image 3 is broken"):
        reload_loader(kernel, box["DataLoader"](box["Squares"](16, bad=3), batch_size=4))
    assert kernel.pid == former, "it was tried before anything was stopped"
    with pytest.raises(LoaderFailed, match="only once") as caught:
        reload_loader(kernel, box["Once"]())
    assert kernel.pid != former
    assert str(caught.value).endswith("The previous loader is served again.")
    assert values("safe") == list(range(16))
    assert len(shipped()) == 1


@pytest.mark.slow
def test_an_interrupted_reload_leaves_the_former_one_served(box: Any, page: Any) -> None:
    """Ctrl-C while the new loader is tried: its kernel goes, nothing else happens."""
    kernel = serve_loader(box["DataLoader"](box["Squares"](16), batch_size=4), "patient", outlet=page)
    former = kernel.pid

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(4)
    try:
        with pytest.raises(KeyboardInterrupt):
            reload_loader(kernel, box["Slow"]())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    assert kernel.pid == former
    assert values("patient") == list(range(16))
    wait_until(lambda: len(the_hub()._endings) == len(shipped()) == 1)


def test_what_is_not_ours_or_has_ended_is_refused_clearly(box: Any, page: Any) -> None:
    """With the name of whoever serves it, or with how to start it."""
    with pytest.raises(ProducerNotFound, match="No stream named 'nobody'"):
        kernel_of("nobody")
    with (
        tsnb.serve([[1.0]], name="elsewhere", origin="script train.py"),
        pytest.raises(
            ProducerNotFound, match=r"is served by script train\.py \(pid \d+\), not by this notebook"
        ),
    ):
        kernel_of("elsewhere")
    kernel = serve_loader(box["DataLoader"](box["Squares"](4)), "over", outlet=page)
    assert kernel_of(None) is kernel
    kernel.stop()
    with pytest.raises(ProducerGone, match=r"'over' has ended. Serve its loader again: %tensorsocket start"):
        restart_kernel(kernel_of("over"))
    with pytest.raises(ProducerGone, match="has ended"):
        reload_loader(kernel, [[1.0]])


def test_a_detached_producer_is_not_promised_a_restart_after_a_crash() -> None:
    """Nobody would be there to do it."""
    with pytest.raises(ValueError, match="tsnb serve MODULE:NAME"):
        StreamOptions(detach=True, restart="on-crash")
    with pytest.raises(ValueError, match=r"restart='always' is invalid. Pass 'on-crash'"):
        StreamOptions(restart="always")


def test_after_a_crash_it_is_back_and_says_so(box: Any, page: Any, until: Callable[..., None]) -> None:
    """Which death, and that it was started again, under the cell that started it."""
    loader = box["DataLoader"](box["Squares"](64), batch_size=4, shuffle=True)
    kernel = serve_loader(loader, "back", ON_CRASH, outlet=page)
    seed = kernel.seed
    assert seed is not None, "without one its order could not be given again"
    before = values("back")
    kill(kernel)
    until(lambda: kernel.restarts == 1, SETTLED_S)
    assert "Stream 'back' crashed: its kernel was killed by SIGKILL" in page.text
    assert f"Stream 'back' is running again (pid {kernel.pid}), in pass 1" in page.text
    assert kernel.seed == seed
    assert sorted(before) == sorted(values("back")) == list(range(64))
    kernel.stop()
    assert shipped() == []
    assert "has ended" not in page.text


EPOCHS = 2

LONG = 2560
"""Samples of an epoch that is not over while another kernel starts."""

TRIAL = f"""
import time
batches, seen, reconnects = tsnb.attach(), [], 0
for epoch in range({EPOCHS}):
    for batch in batches:
        seen.append((batches.epoch, batch['squares'][:, 0].tolist()))
        time.sleep(0.01)
reconnects = batches.stats().reconnects
"""


def begin_two(
    options: StreamOptions, box: Any, page: Any, *, size: int = 640, epoch: int = 0
) -> ProducerKernel:
    """Serve a shuffled loader and let two trials train on it; return once both are well inside an epoch."""
    loader = box["DataLoader"](
        box["Squares"](size), batch_size=4, shuffle=True, num_workers=1, collate_fn=box["stacked"]
    )
    kernel = serve_loader(loader, "two", options, variable="train", outlet=page)
    for name in ("small", "large"):
        run_cell(name, TRIAL, {}, outlet=page)
    wait_until(lambda: inside(20, epoch), SETTLED_S)
    return kernel


def inside(batch: int, epoch: int) -> bool:
    """Return whether both trials are past a batch of an epoch."""
    consumers = tsnb.streams.status("two").consumers
    return len(consumers) == 2 and all(c.epoch == epoch and c.position > batch for c in consumers)


def check_both(size: int = 640) -> None:
    """Check that both trials saw every sample of each epoch once, in the same order, through a restart."""
    for trial in trials.values():
        trial.wait(2 * SETTLED_S)
        assert trial["reconnects"] == 1
    small, large = trials["small"]["seen"], trials["large"]["seen"]
    assert small == large
    epochs = sorted({epoch for epoch, _ in small})
    assert len(epochs) == EPOCHS
    for epoch in epochs:
        assert sorted(i for e, rows in small if e == epoch for i in rows) == list(range(size))


@pytest.mark.slow
def test_trials_go_on_in_the_same_epoch_through_a_restart(box: Any, page: Any) -> None:
    """Both wait, reconnect by themselves, and get the rest: every sample once, in the seed's order."""
    kernel = begin_two(StreamOptions(seed=7, late_join=1.0), box, page)
    restart_kernel(kernel)
    check_both()
    assert kernel.order


@pytest.mark.slow
def test_trials_go_on_in_the_same_epoch_through_a_crash(box: Any, page: Any) -> None:
    """A SIGKILL of the producer kernel in the middle of the second epoch loses and doubles nothing."""
    kernel = begin_two(StreamOptions(restart="on-crash", late_join=1.0), box, page, epoch=1)
    kill(kernel)
    check_both()
    assert kernel.restarts == 1
    assert f"Stream 'two' is running again (pid {kernel.pid}), in pass 2" in page.text


@pytest.mark.slow
def test_an_edit_that_keeps_the_order_reaches_running_trials(box: Any, page: Any) -> None:
    """Another augmentation, say: they go on at their own position, with the new one."""
    kernel = begin_two(StreamOptions(seed=7, late_join=1.0), box, page, size=LONG)
    same = box["DataLoader"](
        box["Squares"](LONG), batch_size=4, shuffle=True, num_workers=1, collate_fn=box["stacked"]
    )
    reload_loader(kernel, same)
    check_both(LONG)


@pytest.mark.slow
def test_an_edit_that_changes_the_order_ends_running_trials_with_what_to_do(box: Any, page: Any) -> None:
    """Other samples cannot be the rest of an epoch that was begun: ProducerGone, and the next epoch has them."""
    kernel = begin_two(StreamOptions(seed=7, late_join=1.0), box, page, size=LONG)
    reload_loader(kernel, box["DataLoader"](box["Squares"](64), batch_size=4, collate_fn=box["stacked"]))
    for trial in trials.values():
        with pytest.raises(
            TrialFailed, match=r"ProducerGone.*started again.*cannot repeat the rest of pass [12]"
        ):
            trial.wait(SETTLED_S)
    consumer = tsnb.attach("after", stream="two")
    assert sum(len(batch["squares"]) for batch in consumer) == 64
    consumer.close()


@pytest.mark.slow
def test_a_restart_that_would_end_trials_is_refused(box: Any, page: Any) -> None:
    """Shuffled without a seed: nobody could go on, so nothing is stopped; without trials inside it is done."""
    kernel = begin_two(StreamOptions(late_join=1.0), box, page)
    former = kernel.pid
    with pytest.raises(TsnbError, match=r"would end (?:small, large|large, small)"):
        restart_kernel(kernel)
    assert kernel.pid == former
    trials.stop()
    restart_kernel(kernel)
    assert kernel.pid != former


@pytest.mark.slow
def test_trials_are_told_when_a_stream_is_given_up(box: Any, page: Any, tmp_path: Path) -> None:
    """One sample that kills its loader each time: the third crash is the last, and nobody waits for ever."""
    deadly = tmp_path / "deadly"
    deadly.touch()
    loader = box["DataLoader"](box["Deadly"](64, str(deadly), at=40), batch_size=4)
    kernel = serve_loader(loader, "doomed", ON_CRASH, outlet=page)
    cell = "for batch in tsnb.attach(reconnect_s=20): pass"
    trial = run_cell("victim", cell, {}, outlet=page)
    with pytest.raises(TrialFailed, match="ProducerGone"):
        trial.wait(5 * SETTLED_S)
    wait_until(lambda: kernel.ended, 3 * SETTLED_S)
    assert page.text.count("crashed: ") == 2
    assert "It is not started again: it crashed 3 times" in page.text


def test_what_cannot_be_given_again_is_not_seeded(box: Any, page: Any) -> None:
    """A seed would promise for an IterableDataset, or a plain iterable, what nobody knows."""
    box["loader"] = [[1.0], [2.0]]
    plain = serve_loader(box["loader"], "plain", ON_CRASH, outlet=page)
    assert plain.seed is None
    cell = (
        "from torch.utils.data import IterableDataset\nclass Endless(IterableDataset):\n"
        "    def __iter__(self): return iter([torch.zeros(2)] * 8)\nloader = DataLoader(Endless())"
    )
    endless = serve_from_cell(cell, box, "endless", ON_CRASH, outlet=page)
    assert endless.seed is None
    assert endless.order == ""


def test_without_the_option_a_crash_is_the_end(box: Any, page: Any, until: Callable[..., None]) -> None:
    """And no file is left."""
    kernel = serve_loader(box["DataLoader"](box["Squares"](4)), "once", outlet=page)
    assert kernel.seed is None
    kill(kernel)
    until(lambda: kernel.ended)
    assert "Stream 'once' has ended: its kernel was killed by SIGKILL" in page.text
    until(lambda: shipped() == [])


def test_a_loader_that_kills_its_kernel_each_time_is_given_up(
    box: Any, page: Any, until: Callable[..., None], tmp_path: Path
) -> None:
    """The third crash in a row is the last: it says so, and leaves neither kernel nor file."""
    deadly = tmp_path / "deadly"
    loader = box["DataLoader"](box["Deadly"](16, str(deadly)), batch_size=4)
    kernel = serve_loader(loader, "deadly", ON_CRASH, outlet=page)
    deadly.touch()
    kill(kernel)
    until(lambda: kernel.ended, 3 * SETTLED_S)
    assert page.text.count("crashed: ") == 2
    assert (
        "It is not started again: it crashed 3 times within 60 s. See its output with %tensorsocket logs deadly"
        in page.text
    )
    until(lambda: shipped() == [])
    assert tsnb.streams.list() == []


def test_a_loader_that_raises_at_its_new_start_is_given_up_at_once(
    box: Any, page: Any, until: Callable[..., None], tmp_path: Path
) -> None:
    """It would raise again: its error is told instead."""
    data = tmp_path / "data"
    data.touch()
    box["path"] = str(data)
    cell = "open(path).close()\nloader = DataLoader(Squares(4))"
    kernel = serve_from_cell(cell, box, "fragile", ON_CRASH, outlet=page)
    data.unlink()
    kill(kernel)
    until(lambda: kernel.ended, SETTLED_S)
    assert (
        "could not be started again: The cell that builds the loader failed: FileNotFoundError" in page.text
    )
    until(lambda: shipped() == [])


@pytest.mark.slow
def test_a_stop_while_it_comes_back_is_a_stop(
    box: Any, page: Any, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops it does not wait for its return, and nothing returns."""
    monkeypatch.setenv("TSNB_START", "spawn")  # which takes long enough to be stopped meanwhile
    kernel = serve_loader(box["DataLoader"](box["Squares"](4)), "stopped", ON_CRASH, outlet=page)
    kill(kernel)
    until(lambda: "It is started again" in page.text)
    time.sleep(0.5)
    kernel.stop()
    assert kernel.ended
    time.sleep(0.5)
    assert not kernel.alive
    assert "is running again" not in page.text
    assert "has ended" not in page.text
    until(lambda: shipped() == [])


def test_a_restart_waits_for_a_crash_that_is_being_mended(
    box: Any, page: Any, until: Callable[..., None]
) -> None:
    """Both together end in one live kernel."""
    kernel = serve_loader(box["DataLoader"](box["Squares"](16), batch_size=4), "both", ON_CRASH, outlet=page)
    kill(kernel)
    until(lambda: "It is started again" in page.text)
    restart_kernel(kernel)
    assert kernel.restarts == 2
    assert values("both") == list(range(16))
    assert len([p for p in psutil.Process().children() if p.is_running()]) >= 1
    assert registry.find("both").pid == kernel.pid


NOTEBOOK = f"""
import sys
{LOADER}
from tsnb.options import StreamOptions
from tsnb.hosting.serving import serve_loader
if __name__ == "__main__":
    options = StreamOptions(restart="on-crash")
    kernel = serve_loader(DataLoader(Squares(16), batch_size=4), "orphan", options)
    print(kernel.pid, flush=True)
    import time
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_notebook_leaves_no_kernel_and_its_files_are_swept(until: Callable[..., None]) -> None:
    """The kernel dies with it and nobody starts it again; what it had in the runtime directory goes at once."""
    before = set(runtime_directory().glob("hub-*"))
    notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdout=subprocess.PIPE)
    assert notebook.stdout is not None
    pid = int(notebook.stdout.readline())
    (home,) = set(runtime_directory().glob("hub-*")) - before
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    until(
        lambda: tsnb.streams.list() == []
    )  # its other threads may take a moment longer to let go of the entry
    until(lambda: not home.exists())


STARTING = """
import os, threading, time
from tsnb.options import StreamOptions
from tsnb.hosting.serving import serve_loader
class Slow:
    def __iter__(self):
        time.sleep(30)
        return iter([[1.0]])
if __name__ == "__main__":
    serve_loader(Slow(), "unborn", StreamOptions(detach=True))
"""


@pytest.mark.slow
def test_a_detached_producer_whose_notebook_dies_while_it_starts_goes_with_it(
    until: Callable[..., None],
) -> None:
    """It is let go of once it serves, not before: until then nobody knows of it."""
    notebook = subprocess.Popen([sys.executable, "-c", STARTING])
    below: list[psutil.Process] = []

    def started() -> bool:
        found = psutil.Process(notebook.pid).children(recursive=True)
        below[:] = [process for process in found if process.name() != "sh"]  # the sweepers of its directories
        return bool(below) and below[0].num_threads() > 3  # ipykernel's: the tie was made

    until(started, 120)
    notebook.kill()
    notebook.wait()
    gone, alive = psutil.wait_procs(below, 3)
    for process in alive:
        process.kill()
    assert gone
    assert not alive
