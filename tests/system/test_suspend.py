"""The laptop is closed: everything stands still together, and the wall clock jumps. Nobody loses a place for it."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from tests.system.conftest import Run
from tests.system.test_signals import COUNTING, serve_endlessly

pytestmark = pytest.mark.system


@pytest.mark.parametrize("first", ["producer", pytest.param("consumers", marks=pytest.mark.slow)])
def test_all_stopped_and_continued_lose_nothing_and_nobody_is_parked(run: Run, first: str) -> None:
    """A pause of everything, longer than stall timeout (a paused container, a closed lid): whoever wakes up first."""
    producer = serve_endlessly(run, "1.5")
    consumers = [run(COUNTING, "slow", "2", "0.03"), run(COUNTING, "held-back", "2", "0")]
    for consumer in consumers:
        consumer.expect("batches")
    workers = psutil.Process(producer.process.pid).children(recursive=True)
    everybody = [psutil.Process(script.process.pid) for script in (producer, *consumers)] + workers
    for process in everybody:
        process.suspend()
    time.sleep(4)
    for process in everybody if first == "producer" else reversed(everybody):
        process.resume()
    for consumer in consumers:
        taken = int(consumer.expect("batches"))
        for more in range(1, 4):
            assert int(consumer.expect("batches")) == taken + 20 * more


@pytest.mark.slow
def test_one_that_stays_behind_after_everything_was_paused_is_parked(run: Run) -> None:
    """What is forgiven is the common pause, not a consumer that stands still by itself."""
    producer = serve_endlessly(run, "1.5")
    stays, goes = run(COUNTING, "stays", "2"), run(COUNTING, "goes", "2")
    stays.expect("batches")
    goes.expect("batches")
    for script in (stays, goes, producer):
        script.send(signal.SIGSTOP)
    time.sleep(4)
    for script in (producer, goes):
        script.send(signal.SIGCONT)
    continued = time.monotonic()
    while time.monotonic() - continued < 6:
        goes.expect("batches")
    stays.send(signal.SIGCONT)
    assert "they continued without it" in stays.expect("ConsumerTimedOut")


CLOCK = """
    import threading, random
    true_time, random_jumps = time.time, random.Random(7)
    time.time = lambda: true_time() + random_jumps.choice((-86400.0, 0.0, 3600.0, 1e9, -1e9))
"""


def test_the_wall_clock_matters_to_nothing(run: Run) -> None:
    """It jumps by hours and years at every look, in the producer and in the consumers: epochs, timeouts, readings."""
    producer = run(
        CLOCK
        + """
    with tsnb.serve(DataLoader(Numbers(1600), batch_size=16, num_workers=2), name="s", window=4, stall_timeout_s=2,
                    late_join=1.0) as producer:
        say("serving")
        producer.wait()
        """
    )
    producer.expect("serving")
    trains = [
        run(
            CLOCK
            + """
    for epoch in range(3):
        consumer = tsnb.attach(sys.argv[1])
        rows = [x for _, labels in (consumer if epoch else together(consumer, 2)) for x in labels.tolist()]
        assert rows == list(range(1600)), len(rows)
    stats = consumer.stats()
    assert 0 <= stats.waited_s <= stats.inside_s < 60, stats
    say("done")
            """,
            f"c{i}",
        )
        for i in range(2)
    ]
    watcher = run(
        CLOCK
        + """
    from tsnb.telemetry.observer import Observer
    from tsnb.telemetry.shown.diagnosis import diagnose
    observer = Observer("s")
    earlier = observer.read()
    for _ in range(6):
        later = observer.read()
        said = diagnose(earlier, later).text
        assert "-" not in said.replace("-bound", ""), said
    say("said", said)
        """
    )
    watcher.expect("said")
    for train in trains:
        train.expect("done")
