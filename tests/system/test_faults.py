"""Promises 4-7 with real signals: nobody held up by the dead, no silent hang, nothing left, only you."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.promises import HANG_S, promptly, took
from tests.system.conftest import Run
from tsnb.discovery.registry import find
from tsnb.stream.transport.channel import ChannelClosed
from tsnb.stream.transport.local import connect
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system

ENDLESS = """
    loader = DataLoader(Numbers(640000), batch_size=64, num_workers=2)
    stall_timeout_s = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tsnb.serve(loader, name="s", window=4, late_join=0.0, stall_timeout_s=stall_timeout_s) as p:
        say("serving")
        p.wait()
"""
STEADY = """
    count, began = 0, time.monotonic()
    for images, labels in together(tsnb.attach(sys.argv[1]), int((sys.argv + [1])[2])):
        count += 1
        now = time.monotonic()
        if now - began > 0.5:
            say("gap", now - began)
        began = now
        if count % 20 == 0: say("batches", count)
        time.sleep(0.005)
"""
STUCK = """
    held = []
    for images, labels in together(tsnb.attach("stuck"), 2):
        held.append(images)
        if len(held) == 3:
            say("stuck")
            time.sleep(1000)
"""


def test_a_killed_consumer_is_noticed_within_a_second_and_its_slots_come_back(run: Run) -> None:
    """Promise 4: SIGKILL of the one that holds the window; the other goes on."""
    run(ENDLESS).expect("serving")
    stuck, steady = run(STUCK), run(STEADY, "steady", "2")
    stuck.expect("stuck")
    time.sleep(1.0)
    held = status("s")
    assert {c.name: c.state for c in held.consumers}["stuck"] == "sets the pace"
    assert held.state == "blocked"
    killed = stuck.send(signal.SIGKILL)
    promptly(lambda: len(status("s").consumers) == 1, killed)
    steady.expect("batches 100")
    assert status("s").slots_used <= 4 + 4 + 2, "what the dead one held is free"


def test_a_consumer_killed_while_its_child_keeps_the_socket_open_is_noticed_too(run: Run) -> None:
    """A fork from C, which runs no hooks of ours, inherits the socket: the pidfd tells."""
    run(ENDLESS).expect("serving")
    script = run(
        """
        import ctypes
        consumer = tsnb.attach("parent")
        next(iter(consumer))
        if ctypes.CDLL(None).fork() == 0:
            time.sleep(300)
            os._exit(0)
        say("forked")
        time.sleep(100)
        """
    )
    script.expect("forked")
    child = psutil.Process(script.process.pid).children()[0]
    killed = script.send(signal.SIGKILL)
    try:
        promptly(lambda: not status("s").consumers, killed)
    finally:
        child.kill()


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "computing"])
def test_a_killed_producer_raises_in_every_consumer_within_a_second(run: Run, waiting: bool) -> None:
    """Promise 5, with loader workers alive that inherited its memory; and promise 6 by `no_leftovers`."""
    slow = "slow_s=100" if waiting else ""
    producer = run(
        f"""
        loader = DataLoader(Numbers(64000, {slow or "slow_s=0"}), batch_size=64, num_workers=2)
        def first_quick(epoch):
            yield torch.zeros(4), torch.zeros(4)
            yield from loader
        with tsnb.serve(first_quick if {waiting} else loader, name="s", late_join=1.0) as p:
            say("serving")
            p.wait()
        """
    )
    producer.expect("serving")
    consumers = [
        run(
            """
            try:
                for batch in tsnb.attach(sys.argv[1]):
                    say("batch")
                    time.sleep(0.01)
            except tsnb.errors.ProducerGone as error:
                say("gone", time.monotonic(), error)
            """,
            f"c{i}",
        )
        for i in range(2)
    ]
    for consumer in consumers:
        consumer.expect("batch")
    time.sleep(0.3)
    workers = psutil.Process(producer.process.pid).children(recursive=True)
    killed = producer.send(signal.SIGKILL)
    for consumer in consumers:
        moment, message = consumer.expect("gone").split(" ", 1)
        took(float(moment) - killed)
        assert "start it again" in message
    _, alive = psutil.wait_procs(workers, 1.0)
    assert all(p.status() == psutil.STATUS_ZOMBIE for p in alive), "a worker outlived its producer"


def test_a_stopped_producer_says_goodbye(run: Run) -> None:
    """`tsnb stop` from another process: consumers raise, the name is free, the exit status is 0."""
    producer = run(ENDLESS)
    producer.expect("serving")
    consumer = run(
        """
        try:
            for batch in tsnb.attach("c"):
                say("batch")
                time.sleep(0.001)
        except tsnb.errors.ProducerGone as error:
            say("gone", error)
        """
    )
    consumer.expect("batch")
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "stop", "s"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "stopped 's'\n", done.stderr
    assert "was stopped" in consumer.expect("gone")
    assert producer.end() == 0


def test_a_loader_that_raises_at_its_500th_batch_says_so_everywhere_and_the_producer_lives_on(
    run: Run,
) -> None:
    """Promise 5: its own traceback in every consumer, after the batches before; the next epoch is a new attempt."""
    producer = run(
        """
        class Broken(Numbers):
            def __getitem__(self, i):
                if i == 4000 and not os.path.exists(sys.argv[1]): raise ZeroDivisionError("sample 4000 is rotten")
                return super().__getitem__(i)
        with tsnb.serve(DataLoader(Broken(4096), batch_size=8, num_workers=2), name="s", late_join=1.0) as p:
            say("serving")
            p.wait()
        """,
        "/nonexistent",
    )
    producer.expect("serving")
    code = """
        taken = 0
        try:
            for batch in tsnb.attach(sys.argv[1]): taken += 1
        except tsnb.errors.LoaderFailed as error:
            assert "ZeroDivisionError: sample 4000 is rotten" in error.loader_traceback
            assert "__getitem__" in str(error) and "batch 500 of pass" in error.summary
            say("failed after", taken)
        for batch in tsnb.attach(sys.argv[1]):
            say("next epoch")
            break
        """
    consumers = [run(code, "a"), run(code, "b")]
    for consumer in consumers:
        assert consumer.expect("failed after") == "500"
        consumer.expect("next epoch")
        assert consumer.end() == 0


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ("5", "An object of type int cannot be served"),
        ("DataLoader(Numbers(0), batch_size=4)", "returned no batch at all"),
        ("DataLoader([{}.x for _ in ()] or Bad(), batch_size=4, num_workers=1)", "rotten from the start"),
        ("[object()]", "batch is a builtins.object, which cannot be shared"),
        ("[{'image': [torch.zeros(2), lambda: 0]}]", "batch['image'][1] is a builtins.function"),
        ("[torch.zeros(2).to_sparse()]", "batch is a sparse tensor"),
    ],
)
def test_a_loader_that_cannot_be_served_fails_at_the_start_and_leaves_nothing(
    run: Run, loader: str, message: str
) -> None:
    """The error is raised by `serve`; the name is free afterwards."""
    script = run(
        f"""
        class Bad(Numbers):
            def __init__(self): super().__init__(10)
            def __getitem__(self, i): raise RuntimeError("rotten from the start")
        try:
            tsnb.serve({loader}, name="bad")
        except (tsnb.errors.LoaderFailed, TypeError) as error:
            say("refused", str(error).replace(chr(10), " | "))
        say("left", tsnb.streams.list())
        with tsnb.serve([torch.zeros(1)], name="bad"): say("free")
        """
    )
    assert message in script.expect("refused")
    assert script.expect("left") == "[]"
    script.expect("free")


def test_failures_of_odd_kinds_are_told_and_never_hang(run: Run) -> None:
    """SystemExit, endless messages, a `finally` that raises, more tensors than a packet can describe."""
    script = run(
        """
        from tsnb.telemetry.observer import Observer
        def exits(epoch):
            yield torch.zeros(2)
            raise SystemExit("enough")
        def shouts(epoch):
            yield torch.zeros(2)
            raise ValueError("\u4e2d" * 100_000)
        def many(epoch):
            yield torch.zeros(2)
            yield [{"box": torch.zeros(4), "label": torch.zeros(1)} for _ in range(15000)]
        def clings(epoch):
            try:
                for i in range(1000): yield torch.zeros(2)
            finally: raise RuntimeError("cannot let go")
        for make in (exits, shouts, many):
            with tsnb.serve(make, name="odd", max_batch_bytes=1 << 23):
                observer = Observer("odd")
                for attempt in range(2):
                    try: list(tsnb.attach("c"))
                    except tsnb.errors.LoaderFailed as error: say(make.__name__, str(error)[:200].replace(chr(10), " "))
                while "raised" not in observer.read(5).failure: pass
                observer.close()
        with tsnb.serve(clings, name="clings", window=2):
            for attempt in range(3):
                for batch in tsnb.attach("c"): break
            say("clings", "goes on")
        try: tsnb.serve(lambda epoch: (_ for _ in ()).throw(SystemExit), name="x")
        except tsnb.errors.LoaderFailed as error: say("at once", error)
        """
    )
    for _ in range(2):
        assert "SystemExit at batch 1 of pass" in script.expect("exits")
    for _ in range(2):
        assert "raised ValueError at batch 1" in script.expect("shouts")
    for _ in range(2):
        assert "more than 8,192 tensors" in script.expect("many")
    script.expect("clings goes on")
    assert "SystemExit at batch 0" in script.expect("at once")


def test_a_child_of_the_producers_process_does_not_end_its_stream(run: Run) -> None:
    """A fork that exits the ordinary way runs Python's exit handlers: they are not the producer's."""
    script = run(
        """
        with tsnb.serve([torch.zeros(2)] * 3, name="s") as producer:
            if os.fork() == 0:
                producer.stop()
                sys.exit(0)
            os.wait()
            say("served", [entry.name for entry in tsnb.streams.list()], len(list(tsnb.attach("c"))))
        try: producer.status()
        except tsnb.errors.ProducerGone as error: say("stopped", error)
        """
    )
    assert script.expect("served") == "['s'] 3"
    assert "was stopped" in script.expect("stopped")


def test_former_producers_cost_nothing(run: Run) -> None:
    """Serve, attach, stop, again and again: no arena and no descriptor of a former stream stays."""
    script = run(
        """
        counts = []
        for turn in range(6):
            with tsnb.serve([torch.zeros(2)] * 3, name="s"):
                list(tsnb.attach("c"))
            counts.append(len(os.listdir("/proc/self/fd")))
        ours = "memfd:tsnb", "/dev/shm/tsnb"
        maps = sum(any(name in line for name in ours) for line in open("/proc/self/maps"))
        say("descriptors", counts[-1] - counts[1], "maps", maps <= 2)
        """
    )
    assert script.expect("descriptors") == "0 maps True"


def test_names_and_numbers_are_checked_with_a_way_out(run: Run) -> None:
    """Bad input: each message says what to do next."""
    script = run(
        """
        def tried(word, call):
            try: call()
            except Exception as error: say(word, type(error).__name__, str(error))
        tried("nothing", lambda: tsnb.attach("c"))
        tried("slash", lambda: tsnb.serve([torch.zeros(1)], name="a/b"))
        tried("window", lambda: tsnb.serve([torch.zeros(1)], name="a", window=0))
        one = tsnb.serve([torch.zeros(4, 1)] * 3, name="mnist")
        tried("served", lambda: tsnb.serve([torch.zeros(1)], name="mnist"))
        tried("typo", lambda: tsnb.attach("c", stream="mnits"))
        tried("size", lambda: tsnb.attach("c", batch_size=0))
        tried("consumer", lambda: tsnb.attach("a b"))
        two = tsnb.serve([torch.zeros(1), torch.zeros(100_000)], name="other", max_batch_bytes=5000)
        tried("several", lambda: tsnb.attach("c"))
        tried("large", lambda: list(tsnb.attach("c", stream="other")))
        scalars = tsnb.serve([{"x": torch.zeros(4, 2), "n": torch.tensor(3)}], name="scalars")
        tried("cut", lambda: list(tsnb.attach("c", stream="scalars", batch_size=2)))
        once = tsnb.serve(iter([torch.zeros(1)]), name="once")
        list(tsnb.attach("c", stream="once"))
        tried("again", lambda: list(tsnb.attach("c", stream="once")))
        """
    )
    assert 'tsnb.serve(loader, name="mnist")' in script.expect("nothing ProducerNotFound")
    assert "Try 'a-b'" in script.expect("slash ValueError")
    assert "1 or more" in script.expect("window ValueError")
    served = script.expect("served NameInUse")
    assert "tsnb stop mnist" in served and "for 0 s" in served and str(script.process.pid) in served
    assert "Did you mean 'mnist'?" in script.expect("typo ProducerNotFound")
    assert "1 or more" in script.expect("size ValueError")
    assert "Try 'a-b'" in script.expect("consumer ValueError")
    several = script.expect("several StreamNotNamed")
    assert "mnist" in several and "other" in several and "stream=" in several
    assert "max_batch_bytes=8" in script.expect("large LoaderFailed")
    assert "batch['n']" in script.expect("cut BatchNotShareable")
    assert "make_loader()" in script.expect("again LoaderFailed")


def test_a_name_in_use_says_who_holds_it_and_a_dead_holder_is_replaced_at_once(run: Run) -> None:
    """Two live consumers of one name: no. After SIGKILL of the first: at once."""
    run(ENDLESS).expect("serving")
    first = run(STEADY, "net")
    first.expect("batches")
    second = run(
        """
        try: tsnb.attach("net")
        except tsnb.errors.NameInUse as error: say("in use", error)
        say("pid", os.getpid())
        while os.path.exists(f"/proc/{sys.argv[1]}/fd/1"): time.sleep(0.01)
        tsnb.attach("net")
        say("attached")
        """,
        str(first.process.pid),
    )
    assert str(first.process.pid) in second.expect("in use")
    second.expect("pid")
    first.send(signal.SIGKILL)
    second.expect("attached")


def test_a_loop_in_a_cell_that_failed_is_left_though_its_traceback_keeps_it(run: Run) -> None:
    """An interrupted cell holds nobody: the notebook's hook says that it failed."""
    script = run(
        """
        from tsnb.stream.consumer import rest_all
        with tsnb.serve(DataLoader(Numbers(6400), batch_size=64), name="s", window=2) as producer:
            abandoned = iter(tsnb.attach("cell"))
            next(abandoned)
            rest_all()
            say("goes on", len(next(abandoned)[1]))
            rest_all(failed=True)
            while producer.status().consumers[0].state != "between epochs": time.sleep(0.01)
            try: next(abandoned)
            except tsnb.errors.ConsumerReplaced: say("left")
        """
    )
    assert script.expect("goes on") == "64"
    script.expect("left")


@pytest.mark.slow
def test_one_that_stands_still_is_parked_after_patience_and_told(run: Run) -> None:
    """Promise 4: SIGSTOP is a breakpoint, a swapped-out laptop, an interrupted cell."""
    run(ENDLESS, "1.5").expect("serving")
    code = """
        loop = together(tsnb.attach(sys.argv[1]), 2)
        try:
            for step, (images, labels) in enumerate(loop):
                assert torch.equal(images[:, 0].long(), labels)
                if step % 20 == 0: say("step", step)
                time.sleep(0.002)
        except tsnb.errors.ConsumerTimedOut as error: say("parked", error)
        """
    stands, goes = run(code, "stands"), run(code, "goes")
    stands.expect("step")
    goes.expect("step")
    stopped = stands.send(signal.SIGSTOP)
    while time.monotonic() - stopped < 6:
        goes.expect("step")
    stands.send(signal.SIGCONT)
    assert "they continued without it" in stands.expect("parked")


def test_nested_loaders_and_forks_inside_a_consumer_do_no_harm(run: Run) -> None:
    """A DataLoader with workers in the training loop: children inherit nothing that releases or reads."""
    run(ENDLESS).expect("serving")
    script = run(
        """
        count = 0
        for images, labels in tsnb.attach("nest"):
            keep = images[:4]
            inner = DataLoader(torch.utils.data.TensorDataset(keep), batch_size=2, num_workers=1)
            assert torch.cat([x for (x,) in inner]).equal(keep)
            if os.fork() == 0:
                del images, labels, keep
                os._exit(0)
            os.wait()
            assert torch.equal(images[:, 0].long(), labels)
            count += 1
            if count == 5: break
        say("count", count)
        """
    )
    assert script.expect("count") == "5"


def test_batches_stay_valid_after_detaching_and_after_the_producer_is_gone(run: Run) -> None:
    """Promise 3 past the end: close, then stop."""
    script = run(
        """
        producer = tsnb.serve(DataLoader(Numbers(6400), batch_size=64, num_workers=1), name="s", window=2)
        with tsnb.attach("a") as consumer:
            for images, labels in consumer: break
        want = labels.clone()
        for other in tsnb.attach("b"): pass
        say("closed", torch.equal(images[:, 0].long(), want))
        producer.stop()
        say("stopped", torch.equal(images[:, 0].long(), want))
        """
    )
    assert script.expect("closed") == "True"
    assert script.expect("stopped") == "True"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_another_user_cannot_attach(run: Run) -> None:
    """Promise 7: the kernel's word on the peer's uid decides; a socket that is a file is behind a closed door."""
    run(ENDLESS).expect("serving")
    code = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "file = sys.argv[1].startswith('/')\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if file else socket.SOCK_SEQPACKET)\n"
        "try: s.connect(sys.argv[1] if file else '\\0' + sys.argv[1])\n"
        "except PermissionError: print(repr(b''))\n"
        "else: print(repr(s.recv(100)))"
    )
    address = find("s").address
    done = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "b''", (done.stdout, done.stderr)


def test_what_is_not_in_the_protocol_drops_the_connection_and_harms_nobody(run: Run) -> None:
    """Nothing that arrives is unpickled; garbage costs the sender its connection."""
    run(ENDLESS).expect("serving")
    steady = run(STEADY, "steady")
    steady.expect("batches")
    bomb = pickle.dumps(Path("x"))
    for garbage in (b"\xff", b"\x02", b"\x40{", b"\x40[]", bomb, b"\x40" + b"[" * 100_000, b"\x01" * 35):
        channel = connect(find("s").address)
        channel.send(garbage)
        assert channel.wait(HANG_S)
        with pytest.raises(ChannelClosed):
            channel.receive()
        channel.close()
    steady.expect("batches")


def test_everything_killed_at_once_leaves_nothing(run: Run) -> None:
    """Promise 6: producer, its workers, two consumers, all SIGKILL in one go; `no_leftovers` looks."""
    producer = run(ENDLESS)
    producer.expect("serving")
    first = run(STEADY, "first")
    first.expect("batches")
    second = run(STEADY, "second")  # waits for the next epoch: it is killed while it waits
    while len(status("s").consumers) < 2:
        time.sleep(0.02)
    for script in (producer, first, second):
        script.send(signal.SIGKILL)
