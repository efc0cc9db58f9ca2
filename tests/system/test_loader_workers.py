"""The loader's workers: killed, crashed, stopped; and every way in which a DataLoader can be asked to run them."""

from __future__ import annotations

import pytest

from tests.promises import took
from tests.system.conftest import Run

pytestmark = pytest.mark.system

FALLS = """
    import signal, psutil
    def workers():
        return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    number, options = sys.argv[1], eval(f"dict({sys.argv[2]})")
    loader = DataLoader(Numbers(960, slow_s=0.001), batch_size=16, **options)
    with tsnb.serve(loader, name="s", window=4, late_join=1.0, stall_timeout_s=60) as producer:
        say("serving")
        while len(producer.status().consumers) < 2 or producer.status().batches < 16: time.sleep(0.01)
        workers()[-1].send_signal(getattr(signal, number))
        began = time.monotonic()
        while not producer.status().failure: time.sleep(0.01)
        noticed_s = time.monotonic() - began
        print()  # torch ends its own message by a NUL, on our line
        say("noticed", noticed_s)
        while producer.status().failure: time.sleep(0.01)
        while producer.status().consumers: time.sleep(0.01)
        core = producer._core
        with core.lock:
            free = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
        say("missing", core.arena.slots - free)
        say("workers", [p.status() for p in workers()].count("stopped"))
"""
TOLD = """
    consumer, failed = tsnb.attach(sys.argv[1]), ""
    try:
        for images, labels in together(consumer, 2):
            assert torch.equal(images[:, 0].long(), labels)
            time.sleep(0.004)
    except tsnb.errors.LoaderFailed as error: failed = error.summary
    say("told", failed)
    images = labels = None
    assert [x for _, labels in consumer for x in labels.tolist()] == list(range(960))
    say("again")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "options"),
    [
        ("SIGKILL", "num_workers=2"),
        ("SIGSEGV", "num_workers=2, persistent_workers=True"),
    ],
)
def test_a_worker_that_dies_is_an_error_everywhere_and_the_producer_lives_on(
    run: Run, number: str, options: str
) -> None:
    """Torch looks every 5 s; then LoaderFailed in each run, all slots come back, the next epoch is whole."""
    producer = run(FALLS, number, options)
    producer.expect("serving")
    consumers = [run(TOLD, "a"), run(TOLD, "b")]
    for consumer in consumers:
        told = consumer.expect("told")
        assert "DataLoader worker (pid(s) " in told and "exited unexpectedly" in told
        consumer.expect("again")
    took(float(producer.expect("noticed")), 10.0)  # torch looks every 5 s
    assert producer.expect("missing") == "0"
    assert producer.end() == 0


@pytest.mark.slow
def test_a_stopped_worker_is_an_error_by_the_loaders_own_timeout(run: Run) -> None:
    """`DataLoader(timeout=2)`; the stopped worker does not stay, nor make the failure late."""
    producer = run(FALLS, "SIGSTOP", "num_workers=2, timeout=2")
    producer.expect("serving")
    consumers = [run(TOLD, "a"), run(TOLD, "b")]
    for consumer in consumers:
        assert "timed out after 2 seconds" in consumer.expect("told")
        consumer.expect("again")
    took(float(producer.expect("noticed")), 6.0)
    assert producer.expect("missing") == "0"
    assert producer.expect("workers") == "0"
    assert producer.end() == 0


@pytest.mark.slow
def test_a_stopped_worker_is_told_to_those_who_wait_and_goes_on(run: Run) -> None:
    """Without `timeout=` it is waited for, and after SIGCONT nothing is missing."""
    producer = run(
        """
        import psutil
        loader = DataLoader(Numbers(6400), batch_size=16, num_workers=1)
        with tsnb.serve(loader, name="s", window=4) as producer:
            say("serving")
            while producer.status().batches < 20: time.sleep(0.01)
            worker = psutil.Process().children()[0]
            worker.suspend()
            say("stopped", worker.pid)
            time.sleep(6)
            worker.resume()
            producer.wait()
        """
    )
    producer.expect("serving")
    consumer = run(
        """
        rows = []
        for images, labels in tsnb.attach("c"):
            rows += labels.tolist()
            time.sleep(0.002)
        say("whole", rows == list(range(6400)))
        """
    )
    pid = producer.expect("stopped")
    line = ""
    while f"the loader of stream 's' (pid {pid}) is stopped" not in line:
        line = consumer.expect("")
    assert consumer.expect("whole") == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "num_workers=0",
        "num_workers=2, timeout=30",
        "num_workers=2, prefetch_factor=1, persistent_workers=True",
        "num_workers=2, pin_memory=True",
        "num_workers=1, multiprocessing_context='forkserver', persistent_workers=True",
        "num_workers=3, drop_last=True",
    ],
)
def test_every_way_to_run_a_dataloader_is_left_and_taken_again(run: Run, options: str) -> None:
    """Whole epochs after ones that were left in the middle, which is where workers and their slots get lost."""
    script = run(
        f"""
        loader = DataLoader(Numbers(100), batch_size=8, {options})
        want = list(range(96 if loader.drop_last else 100))
        with tsnb.serve(loader, name="s", window=2) as producer:
            for epoch in range(4):
                for step, batch in enumerate(tsnb.attach("c")):
                    if step == epoch: break
                del batch
                assert [x for _, labels in tsnb.attach("c") for x in labels.tolist()] == want, epoch
            core = producer._core
            with core.lock:
                free = len(core.slots._stack) + len(core.slots._issued) + core.dispatch.epochs.kept
            say("missing", core.arena.slots - free)
        """
    )
    assert script.expect("missing") == "0"
    assert script.end() == 0


@pytest.mark.slow
def test_a_worker_that_dies_does_not_end_a_script_that_had_iterated_a_loader_itself(run: Run) -> None:
    """Torch's SIGCHLD handler, in the main thread since then, raises for the workers of any loader."""
    producer = run(
        """
        import psutil, signal, threading
        loader = DataLoader(Numbers(960, slow_s=0.001), batch_size=16, num_workers=1)
        next(iter(loader))
        with tsnb.serve(loader, name="s", window=4, late_join=1.0) as producer:
            def kill():
                while producer.status().batches < 16: time.sleep(0.01)
                worker = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE][-1]
                worker.kill()
            threading.Thread(target=kill, daemon=True).start()
            say("serving")
            producer.wait()
            say("in good order")
        """
    )
    producer.expect("serving")
    consumer = run(
        """
        consumer = tsnb.attach("a")
        try:
            for batch in consumer: time.sleep(0.004)
        except tsnb.errors.LoaderFailed as error: say("told", error.summary)
        del batch
        say("again", sum(1 for batch in consumer))
        tsnb.streams.stop("s")
        """
    )
    assert "exited unexpectedly" in consumer.expect("told")
    assert consumer.expect("again") == "60"
    producer.expect("in good order")
    assert producer.end() == 0


def test_workers_start_while_the_script_waits_for_its_standard_input(run: Run) -> None:
    """A script that serves until its user presses Enter, in a pipe: each epoch forks workers from another thread."""
    script = run(
        """
        import threading
        def take():
            time.sleep(0.5)  # the main thread reads by now
            with tsnb.attach("c", stream="s") as consumer:
                say("epochs", [sum(len(batch) for batch in consumer) for epoch in range(3)])
            os._exit(0)
        with tsnb.serve(DataLoader(list(range(40)), 4, num_workers=1), name="s", seed=0):
            threading.Thread(target=take, daemon=True).start()
            sys.stdin.read()
        """,
        stdin=True,
    )
    assert script.expect("epochs") == "[40, 40, 40]"
    assert script.end() == 0
