"""A stream that is not served just now and will be again: what each command does at each moment of that."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils.data import DataLoader

import tsnb
from tests.hosting.test_serving import LOADER
from tests.waiting import wait_until
from tsnb.config import runtime_directory
from tsnb.discovery import registry
from tsnb.discovery.promises import is_promised
from tsnb.errors import ConsumerReplaced, NameInUse, ProducerGone, ProducerNotFound
from tsnb.hosting import serve_loader
from tsnb.hosting.producing import ProducerKernel
from tsnb.hosting.serving import reload_loader, restart_kernel
from tsnb.options import StreamOptions
from tsnb.stream.consumer.attaching import detach_all

pytestmark = pytest.mark.system

LONG_S = 120.0


@pytest.fixture
def box(notebook: Any) -> Any:
    """Return notebook variables with a dataset that lives there only."""
    return notebook.run(LOADER)


def values(name: str, consumer: str = "here") -> list[int]:
    """Attach, and return the first column of one epoch."""
    with tsnb.attach(consumer, stream=name) as attached:
        return [row[0].item() for batch in attached for row in batch]


def kill(kernel: ProducerKernel) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)


def promised() -> bool:
    return is_promised("s")


@contextmanager
def meanwhile(act: Callable[[], Any]) -> Iterator[list[BaseException]]:
    """Do something in another thread; the list has what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(LONG_S)
        assert not thread.is_alive()


def served(box: Any, page: Any, **options: Any) -> ProducerKernel:
    loader = box["DataLoader"](box["Squares"](16), batch_size=4)
    box["loader"] = loader  # the kernel keeps no reference to it
    return serve_loader(loader, "s", StreamOptions(**options), outlet=page)


MOMENTS = ("it has just died", "it is being started again", "it is being restarted")
COMMANDS = ("attach", "stop", "start", "restart", "reload")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_command_at_every_moment_ends_with_a_served_stream_or_with_none(
    box: Any, page: Any, moment: str, command: str
) -> None:
    """Never with two, with one that nobody serves, or with trials that wait for nothing."""
    kernel = served(box, page, restart="on-crash")
    acts: dict[str, Callable[[], Any]] = {
        "attach": lambda: values("s"),
        "stop": kernel.stop,
        "start": lambda: serve_loader(box["DataLoader"](box["Squares"](8), batch_size=4), "s", outlet=page),
        "restart": lambda: restart_kernel(kernel),
        "reload": lambda: reload_loader(kernel, box["DataLoader"](box["Squares"](16), batch_size=4)),
    }
    with meanwhile((lambda: None) if moment != MOMENTS[2] else lambda: restart_kernel(kernel)) as other:
        if moment == MOMENTS[2]:
            wait_until(lambda: kernel._restarting, LONG_S)
        else:
            kill(kernel)
        if moment == MOMENTS[1]:
            wait_until(lambda: "It is started again" in page.text, LONG_S)
        raises = {"start": NameInUse}.get(command)
        if raises is None:
            acts[command]()
        else:
            with pytest.raises(raises, match="has been served"):
                acts[command]()
    if command == "stop":
        assert kernel.ended and not promised()
        with pytest.raises(ProducerNotFound):
            tsnb.attach("late", stream="s")
    else:
        assert other == []
        assert values("s") == list(range(16))
        assert registry.find("s").pid == kernel.pid
        kernel.stop()
        assert not promised()


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["by its name", "as the only one"])
def test_who_attaches_for_the_first_time_while_a_stream_is_away_waits(
    box: Any, page: Any, named: bool
) -> None:
    """A queued trial of a sweep, or a validation consumer, whose moment is that of a crash."""
    kernel = served(box, page, restart="on-crash")
    kill(kernel)
    consumer = tsnb.attach("first", stream="s" if named else None)
    assert [row[0].item() for batch in consumer for row in batch] == list(range(16))
    consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["who waits", "who comes from a long step"])
def test_a_stop_between_crash_and_return_is_told(box: Any, page: Any, late: bool) -> None:
    """At once: nobody serves it again, so nobody waits out the minute."""
    kernel = served(box, page, restart="on-crash")
    begun, stopped = threading.Event(), threading.Event()
    waited: list[float] = []

    def train() -> None:
        try:
            for _ in tsnb.attach("trial", stream="s"):
                begun.set()
                if late:
                    stopped.wait(LONG_S)
                else:
                    wait_until(lambda: not kernel.alive, LONG_S)
            list(tsnb.attach("trial", stream="s"))
        finally:
            waited.append(time.monotonic())

    with meanwhile(train) as raised:
        assert begun.wait(LONG_S)
        kill(kernel)
        wait_until(lambda: "It is started again" in page.text, LONG_S)
        stopped_s = time.monotonic()
        kernel.stop()
        stopped.set()
    assert isinstance(raised[0], (ProducerGone, ProducerNotFound)), raised
    assert waited[0] - stopped_s < 30.0


def test_trials_wait_as_long_as_a_stop_says_though_no_crash_would_be_answered_now(
    box: Any, page: Any
) -> None:
    """The kernel that would have started it again after a crash is gone; somebody serves it again in time."""
    served(box, page, restart="on-crash", seed=1)
    begun, batches = threading.Event(), list[Any]()

    def train() -> None:
        with tsnb.attach("trial", stream="s") as consumer:
            for batch in consumer:
                batches.append(batch)
                begun.set()
                if len(batches) == 1:  # it looks while the kernel that served is going
                    wait_until(lambda: not registry.entries(), LONG_S)

    with meanwhile(train) as raised:
        assert begun.wait(LONG_S)
        tsnb.streams.stop("s", LONG_S, reconnect_s=LONG_S)
        time.sleep(1.0)
        served(box, page, restart="on-crash", seed=1)
    assert not raised and len(batches) == 4


def test_an_interrupt_of_a_restart_leaves_a_stream(box: Any, page: Any, monkeypatch: Any) -> None:
    """The old kernel has gone by then: the new one comes up all the same, and says so."""
    kernel = served(box, page)
    former = kernel.pid

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    taken_down = ProducerKernel._take_down

    async def then_interrupted(self: ProducerKernel) -> None:
        await taken_down(self)
        os.kill(os.getpid(), signal.SIGALRM)

    monkeypatch.setattr(ProducerKernel, "_take_down", then_interrupted)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            restart_kernel(kernel)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert values("s") == list(range(16))
    wait_until(lambda: kernel.pid not in (None, former), LONG_S)  # its notebook hears of it a moment later
    wait_until(lambda: "is served again" in page.text, LONG_S)
    assert not promised()


def test_a_consumer_that_is_connected_needs_no_registry() -> None:
    """Somebody removes the runtime folder in a loop that attaches for each epoch."""
    with tsnb.serve([[i] for i in range(5)], name="s"):
        for epoch in range(3):
            assert [row for (row,) in tsnb.attach("c", stream="s" if epoch != 1 else None)] == list(range(5))
            shutil.rmtree(runtime_directory() / "producers", ignore_errors=True)
        detach_all()


def test_a_stream_that_was_stopped_and_is_served_again_is_another_one() -> None:
    """An iterator over the former one that is still there does not stand in for it."""
    loops: list[Any] = []
    for _ in range(3):
        with tsnb.serve(DataLoader(range(8), 2), name="s"):  # type: ignore[arg-type]
            loops.append(iter(tsnb.attach("c", stream="s")))
            assert next(loops[-1]).tolist() == [0, 1]
            for former in loops[:-1]:
                with pytest.raises((ConsumerReplaced, ProducerGone)):
                    list(former)
    detach_all()
