"""What each command does while a stream is being started, stopped or reloaded by another one.

A gate in the loader holds a stream at one moment for as long as a test wants. All commands that wait are
given within the same moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import tsnb
from tests import leftovers
from tests.hosting.test_serving import LOADER
from tests.kernels.conftest import cargoes
from tests.waiting import wait_until
from tsnb.cli import main
from tsnb.discovery import registry
from tsnb.discovery.promises import is_promised
from tsnb.errors import NameInUse, ProducerGone, ProducerNotFound, TsnbError
from tsnb.hosting import producer_kernels, serve_loader, stopping
from tsnb.hosting.producing import ProducerKernel
from tsnb.hosting.serving import kernel_of, reload_loader, replace_loader, restart_kernel
from tsnb.options import StreamOptions
from tsnb.telemetry.observer import Observer

pytestmark = pytest.mark.system

LONG_S = 120.0

GATED = f"""
{LOADER}
import os, time

class Gated(Squares):
    def __init__(self, gate, where):
        super().__init__(16)
        self.gate, self.where = str(gate), where
    def wait(self):
        open(self.gate + ".reached", "w").close()
        while not os.path.exists(self.gate):
            time.sleep(0.01)
    def at(self, place):
        if self.where == "second " + place:
            before = self.gate + ".before"
            if os.path.exists(before):
                self.wait()
            open(before, "w").close()
        elif self.where == place:
            self.wait()
    def __setstate__(self, state):
        vars(self).update(state)
        self.at("making")
    def __getitem__(self, index):
        if index == 0:
            self.at("first batch")
            if self.where == "goodbye":
                from tsnb.serving.stream import _serving
                for producer in _serving:
                    producer.endings.append(self.wait)
        if index == 8:
            self.at("later batch")
        return super().__getitem__(index)
"""


class Held:
    """A stream that a gate holds at one moment.

    Args:
        box: The notebook's variables.
        page: Where the stream's output goes.
        gate: The gate's file: open once it exists.
    """

    def __init__(self, box: Any, page: Any, gate: Path) -> None:
        self.box, self.page, self.gate = box, page, gate

    def loader(self, where: str = "") -> Any:
        return self.box["DataLoader"](self.box["Gated"](self.gate, where), batch_size=4)

    def start(self, where: str = "", **options: Any) -> ProducerKernel:
        return serve_loader(self.loader(where), "s", StreamOptions(**options), outlet=self.page)

    def reached(self) -> None:
        """Wait until the stream is at the gate."""
        wait_until(Path(f"{self.gate}.reached").exists, LONG_S)

    def open(self) -> None:
        self.gate.touch()


@pytest.fixture
def held(notebook: Any, page: Any, tmp_path: Path) -> Iterator[Held]:
    held = Held(notebook.run(GATED), page, tmp_path / "gate")
    yield held
    held.open()


@contextmanager
def threads(held: Held) -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Give a function that calls another one in a thread, and returns what is to come of it."""
    begun: list[threading.Thread] = []

    def call(act: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(act())
            except BaseException as error:  # noqa: BLE001 (the test looks at it)
                future.set_exception(error)

        begun.append(threading.Thread(target=run))
        begun[-1].start()
        return future

    try:
        yield call
    finally:
        held.open()
        for thread in begun:
            thread.join(LONG_S)
            assert not thread.is_alive()


@contextmanager
def interrupted(when: Callable[[], Any]) -> Iterator[None]:
    """Interrupt this thread once `when` has returned, as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def then_interrupt() -> None:
        when()
        os.kill(os.getpid(), signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=then_interrupt)
    thread.start()
    try:
        yield
        pytest.fail("it was not interrupted")
    except KeyboardInterrupt:
        pass
    finally:
        thread.join(LONG_S)
        signal.signal(signal.SIGALRM, previous)


def values(consumer: str) -> list[int]:
    """Attach, and return the first column of one epoch."""
    with tsnb.attach(consumer, stream="s") as attached:
        return [row[0].item() for batch in attached for row in batch]


def kernels() -> set[str]:
    """Return this process's descendants, but for the fork server and the like."""
    return leftovers._children() - leftovers.infrastructure()


WHOLE = list(range(16))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["making", "first batch"])
def test_commands_while_a_stream_is_first_started(held: Held, where: str) -> None:
    """All but stop wait for it: what asks for a stream gets it, and a second start is refused once there is one."""
    with threads(held) as call:
        start = call(lambda: held.start(where))
        held.reached()
        attached = call(lambda: values("early"))
        again = call(held.start)
        restarted = call(lambda: restart_kernel(kernel_of("s")))
        reloaded = call(lambda: reload_loader(kernel_of("s"), held.loader()))
        time.sleep(0.3)
        assert not any(one.done() for one in (start, attached, again, restarted, reloaded))
        held.open()
    kernel = start.result()
    assert attached.result() == WHOLE
    assert isinstance(again.exception(), NameInUse)
    restarted.result()
    reloaded.result()
    assert kernel.restarts == 2
    assert registry.find("s").pid == kernel.pid
    assert values("late") == WHOLE


@pytest.mark.parametrize("where", ["making", "first batch"])
def test_a_stop_of_a_first_start_leaves_nothing_and_is_told(held: Held, where: str) -> None:
    """The start that was stopped says so, and so does an attach that waited for it."""
    before = kernels()
    with threads(held) as call:
        start = call(lambda: held.start(where))
        held.reached()
        attached = call(lambda: values("early"))
        kernel_of("s").stop()
        assert kernels() == before
    assert isinstance(start.exception(), ProducerGone)
    assert "'s' was stopped" in str(start.exception())
    assert isinstance(attached.exception(), (ProducerGone, ProducerNotFound))
    assert cargoes() == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["making", "first batch"])
def test_an_interrupt_of_a_first_start_leaves_nothing_and_it_can_be_started_again(
    held: Held, where: str
) -> None:
    """At once: the name is free, no kernel is left, and the cell can be run again."""
    before = kernels()
    with interrupted(held.reached):
        held.start(where)
    assert kernels() == before
    assert tsnb.streams.list() == []
    assert not is_promised("s")
    assert all(kernel.ended for kernel in producer_kernels.values())
    held.start()
    assert values("late") == WHOLE


def test_another_process_is_told_that_a_stream_is_being_started(held: Held) -> None:
    """`tsnb status` in a terminal says more than that there is none."""
    with threads(held) as call:
        call(lambda: held.start("making"))
        held.reached()
        said = subprocess.run(
            [sys.executable, "-m", "tsnb", "stop", "s"], capture_output=True, text=True, check=False
        )
        held.open()
    assert said.returncode == 1
    assert "'s' is being started. Try again in a moment" in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["the notebook's", "another process's"])
def test_commands_while_a_stream_is_being_stopped(held: Held, whose: str) -> None:
    """A start waits for the end and serves anew; all others say that it has ended."""
    kernel = held.start("later batch", restart="on-crash")
    former = kernel.pid
    stop = kernel.stop if whose == "the notebook's" else lambda: stopping.stop("s")
    with tsnb.attach("here", stream="s") as consumer, threads(held) as call:
        loop = iter(consumer)
        next(loop)
        held.reached()
        stopped = call(stop)
        wait_until(lambda: kernel._leaving)
        again = call(held.start)
        attached = call(lambda: values("late"))
        restarted = call(lambda: restart_kernel(kernel))
        reloaded = call(lambda: reload_loader(kernel, held.loader()))
        time.sleep(0.3)
        held.open()
    stopped.result()
    assert kernel.ended
    new = again.result()
    assert new.pid not in (None, former)
    assert attached.exception() is None or isinstance(
        attached.exception(), (ProducerGone, ProducerNotFound)
    )  # of the former one, or already of the new one
    assert isinstance(restarted.exception(), ProducerGone)
    assert isinstance(reloaded.exception(), ProducerGone)
    assert values("later") == WHOLE


def test_an_interrupt_of_a_stop_lets_it_go_on(held: Held) -> None:
    """Whoever has asked for the end does not want half of it."""
    kernel = held.start("later batch", restart="on-crash")
    before = kernels()
    with tsnb.attach("here", stream="s") as consumer:
        loop = iter(consumer)
        next(loop)
        held.reached()
        with interrupted(lambda: wait_until(lambda: kernel._stopping)):
            kernel.stop()
    held.open()
    wait_until(lambda: kernel.ended, LONG_S)
    assert not psutil.pid_exists(kernel.pid or 0)
    assert len(kernels()) < len(before)
    assert not is_promised("s")
    assert not kernel.settled()


@pytest.mark.slow
def test_commands_while_a_new_loader_is_tried(held: Held) -> None:
    """The former one is served meanwhile; what changes the stream waits for its turn."""
    kernel = held.start()
    with threads(held) as call:
        reloaded = call(lambda: reload_loader(kernel, held.loader("first batch")))
        held.reached()
        assert values("meanwhile") == WHOLE
        again = call(held.start)
        restarted = call(lambda: restart_kernel(kernel))
        replaced = call(lambda: replace_loader(kernel, held.loader(), "loader", StreamOptions(late_join=0.5)))
        time.sleep(0.3)
        assert not any(one.done() for one in (reloaded, again, restarted, replaced))
        held.open()
    for done in (reloaded, restarted, replaced):
        done.result()
    assert isinstance(again.exception(), NameInUse)
    assert kernel.restarts == 3
    assert registry.find("s").pid == kernel.pid
    assert values("late") == WHOLE
    assert len(cargoes()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["first batch", "second first batch"], ids=["it is tried", "the former has gone"]
)
@pytest.mark.parametrize("whose", ["the notebook's", "another process's"])
def test_a_stop_of_a_reload_ends_the_stream_and_is_told(held: Held, where: str, whose: str) -> None:
    """Neither the former loader nor the new one is served, and the reload says why."""
    kernel = held.start()
    with threads(held) as call:
        reloaded = call(lambda: reload_loader(kernel, held.loader(where)))
        held.reached()
        if whose == "the notebook's":
            kernel.stop()
        else:
            with closing(Observer("s")) as other:
                other.request_stop()
                with pytest.raises(ProducerGone):
                    list(iter(lambda: other.read(LONG_S), None))
        held.open()
    assert isinstance(reloaded.exception(), ProducerGone), reloaded.exception()
    wait_until(lambda: kernel.ended, LONG_S)
    assert not kernel.alive
    assert tsnb.streams.list() == []
    assert not is_promised("s")
    assert cargoes() == []


@contextmanager
def asked_at(moment: Callable[[Observer], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have the end asked for in this process at a moment, of which another function is the end; tell when it was."""
    request, asked = Observer.request_stop, threading.Event()

    def request_then(self: Observer, reconnect_s: float = 0.0) -> None:
        if not reconnect_s:
            moment(self)
        try:
            request(self, reconnect_s)
        finally:
            if not reconnect_s:
                asked.set()

    with monkeypatch.context() as patched:
        patched.setattr(Observer, "request_stop", request_then)
        yield asked


def stop_in_a_terminal() -> str:
    """Stop the stream as `tsnb stop s` does; return what it has printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["stop", "s"]) == 0
    return printed.getvalue()


def none_is_left(kernel: ProducerKernel) -> None:
    wait_until(lambda: kernel.ended, LONG_S)
    assert not kernel.alive
    assert tsnb.streams.list() == []
    assert not is_promised("s")
    with pytest.raises(ProducerNotFound):
        tsnb.attach("late", stream="s")


def test_a_stop_while_a_restart_takes_the_stream_down_ends_it(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old kernel is about to say goodbye: whoever asks for the end then gets it, and the restart says so."""
    kernel = held.start("goodbye")
    with asked_at(lambda _: None, monkeypatch) as asked, threads(held) as call:
        restarted = call(lambda: restart_kernel(kernel))
        held.reached()
        stopped = call(stop_in_a_terminal)
        assert asked.wait(LONG_S)
        with closing(Observer("s")) as after:  # it hears of that request first
            after.read(LONG_S)
        held.open()
    assert stopped.result() == "stopped 's'\n"
    assert isinstance(restarted.exception(), ProducerGone)
    assert "was stopped while it was being changed" in str(restarted.exception())
    none_is_left(kernel)


def test_a_stop_that_a_restart_forestalls_stops_what_comes_back(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old kernel has said goodbye before it could hear of it: the new one is stopped, and then it is told."""
    kernel = held.start()
    former = kernel.pid
    restarts: list[Future[Any]] = []

    def restart(_: Observer) -> None:
        if not restarts:
            restarts.append(call(lambda: restart_kernel(kernel)))
            wait_until(lambda: former not in [entry.pid for entry in tsnb.streams.list()], LONG_S)

    with asked_at(restart, monkeypatch), threads(held) as call:
        monkeypatch.setattr(stopping.stop, "__defaults__", (None, LONG_S, 0.0))
        assert stop_in_a_terminal() == "stopped 's'\n"
    restarts[0].exception()  # it was served again, or stopped before its first batch
    none_is_left(kernel)


@pytest.mark.slow
def test_a_restart_that_takes_too_long_for_a_stop_is_told(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the stream was not stopped, rather than that it was; the goodbye came late, behind readings."""
    kernel = held.start("second making")

    def restart(_: Observer) -> None:
        time.sleep(1.0)
        call(lambda: restart_kernel(kernel))
        held.reached()

    with asked_at(restart, monkeypatch), threads(held) as call:
        with pytest.raises(
            TsnbError, match=r"Stream 's' is restarting and did not come back within 1 s\. When"
        ):
            stopping.stop("s", timeout_s=1)
        held.open()
    assert values("late") == WHOLE
    kernel.stop()


def test_a_stop_between_the_look_of_a_restart_and_its_request_ends_the_stream(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restart finds nothing to take down, and serves nothing again."""
    kernel = held.start()
    take_down = ProducerKernel._take_down

    async def stopped_before(self: ProducerKernel) -> None:
        await asyncio.to_thread(stopping.stop, "s", LONG_S)
        await take_down(self)

    monkeypatch.setattr(ProducerKernel, "_take_down", stopped_before)
    with pytest.raises(ProducerGone, match="was stopped while it was being changed"):
        restart_kernel(kernel)
    none_is_left(kernel)


def test_an_interrupt_of_a_reload_that_has_taken_the_former_down_ends_with_the_new_one(held: Held) -> None:
    """The change goes on, and a start in that moment waits for it."""
    kernel = held.start()
    with interrupted(held.reached):
        reload_loader(kernel, held.loader("second first batch"))
    with threads(held) as call:
        again = call(held.start)
        time.sleep(0.3)
        assert not again.done()
        held.open()
    assert isinstance(again.exception(), NameInUse)
    assert kernel.shipment.original() is not None or kernel.restarts == 1
    assert values("late") == WHOLE
    assert "is served again" in held.page.text
    kernel.stop()
    assert cargoes() == []


@pytest.mark.slow
def test_a_name_is_kept_for_a_stream_that_comes_back(held: Held) -> None:
    """Another notebook cannot take it in the seconds of a restart: the stream could not return."""
    kernel = held.start("second making", restart="on-crash")
    with pytest.raises(NameInUse, match="has been served for"):
        tsnb.serve([[1]], name="s")
    with threads(held) as call:
        restarted = call(lambda: restart_kernel(kernel))
        held.reached()
        assert tsnb.streams.list() == []
        other = subprocess.run(
            [sys.executable, "-c", "import tsnb; tsnb.serve([[1]], name='s')"],
            capture_output=True,
            text=True,
            check=False,
        )
        with pytest.raises(NameInUse, match=r"Stream 's' is being restarted by process \d+\. Wait until"):
            tsnb.serve([[1]], name="s")
    restarted.result()
    assert "NameInUse: Stream 's' is being restarted" in other.stderr
    assert values("late") == WHOLE
