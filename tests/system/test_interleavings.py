"""Finalizers, forks and `close` in any order, in several threads: no crash, no hang, nothing left behind.

Batches die wherever their last reference goes: in another thread, inside the garbage collector, in a forked
child, at the interpreter's end. All of it runs in Python's development mode, which aborts on misuse of memory
and of the interpreter's lock, and with tracebacks of all threads for whatever crashes or hangs.
"""

from __future__ import annotations

import pytest

from tests.system.conftest import Run

pytestmark = pytest.mark.system

GUARD = """
    import faulthandler, gc, queue, random, threading
    faulthandler.dump_traceback_later(120, exit=True)
    random.seed(5)
"""
SERVING = """
    loader = DataLoader(Numbers(64000, 8), batch_size=8, num_workers=int(sys.argv[1]))
    with tsnb.serve(loader, name="s", window=4, late_join=0.0) as producer:
        say("serving")
        producer.wait()
"""


@pytest.fixture(autouse=True)
def development_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every script of these tests run as `python -X dev`."""
    monkeypatch.setenv("PYTHONDEVMODE", "1")


def clean(script: object) -> bool:
    """Return whether a script said nothing of a crash or of an error in a finalizer."""
    words = ("Fatal Python error", "Exception ignored", "Segmentation", "Exception in thread")
    return not [line for line in script.lines if line.startswith(words)]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_threads_drop_last_references_while_another_closes(run: Run) -> None:
    """Eight threads let go of batches at random moments; the loop's own thread closes, attaches and goes on."""
    run(SERVING, "0").expect("serving")
    script = run(
        GUARD
        + """
    work, wrong = queue.Queue(), []
    def let_go():
        while (item := work.get()) is not None:
            images, labels = item
            if not torch.equal(images[:, 0].long(), labels): wrong.append(labels)
            time.sleep(random.uniform(0, 0.002))
            del item, images, labels
    threads = [threading.Thread(target=let_go) for _ in range(8)]
    for thread in threads: thread.start()
    for turn in range(60):
        consumer = tsnb.attach(f"c{turn % 3}")
        for step, batch in enumerate(consumer):
            work.put(batch)
            if step == turn % 17: break
        if turn % 2: consumer.close()
        del batch
        if turn % 5 == 0: gc.collect()
    for _ in threads: work.put(None)
    for thread in threads: thread.join()
    from tsnb.stream.consumer import detach_all
    detach_all()
    say("wrong", len(wrong))
    deadline = time.monotonic() + 60
    while tsnb.streams.status("s").consumers and time.monotonic() < deadline: time.sleep(0.01)
    say("attached", len(tsnb.streams.status("s").consumers))
    say("slots", tsnb.streams.status("s").slots_used)
        """
    )
    assert script.expect("wrong") == "0"
    assert script.expect("attached") == "0"
    assert int(script.expect("slots")) <= 4 + 2, "what is kept is the window's, nobody's leases"
    assert script.end() == 0 and clean(script)


@pytest.mark.slow
def test_two_threads_close_the_same_consumer_while_a_third_iterates_it(run: Run) -> None:
    """Again and again: the loop ends with an error that says so, the descriptors are back, the name is free."""
    run(SERVING, "0").expect("serving")
    script = run(
        GUARD
        + """
    said = set()
    for turn in range(30):
        consumer = tsnb.attach("c")
        def loop():
            try:
                for batch in consumer: pass
            except tsnb.errors.ConsumerReplaced as error: said.add("replaced")
        threads = [threading.Thread(target=loop)]
        threads += [threading.Timer(random.uniform(0, 0.01), consumer.close) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.collect()
        if turn == 5: before = len(os.listdir("/proc/self/fd"))
    say("said", *said, len(os.listdir("/proc/self/fd")) - before)
        """
    )
    assert script.expect("said") == "replaced 0"
    assert script.end() == 0 and clean(script)


@pytest.mark.slow
def test_an_error_that_ends_a_loop_keeps_no_batch(run: Run) -> None:
    """Nor its frame: without a run of the garbage collector, the slots of a failed loop are free at once."""
    script = run(
        GUARD
        + """
    gc.disable()
    def fails(epoch):
        yield from torch.arange(6.0).split(2)
        raise ValueError("rotten")
    def train(consumer):
        kept = []
        try:
            for batch in consumer: kept.append(batch)
        except tsnb.errors.LoaderFailed: return len(kept)
    with tsnb.serve(fails, name="s"):
        consumer = tsnb.attach("c")
        for epoch in range(3): say("took", train(consumer), "held", consumer.stats().held)
        """
    )
    for _ in range(3):
        assert script.expect("took") == "3 held 0"


@pytest.mark.slow
def test_forks_inside_next_release_and_read_nothing_of_the_parents(run: Run) -> None:
    """A thread forks all the while: children end by every way, holding batches; the parent's epoch is whole."""
    run(SERVING.replace("64000", "1600"), "0").expect("serving")
    script = run(
        GUARD
        + """
    forked = []
    held = []
    stop = threading.Event()
    def fork():
        while not stop.is_set():
            pid = os.fork()
            if pid == 0:
                del held[:]
                gc.collect()
                if len(forked) % 2: os._exit(0)
                try: sys.exit(0)          # runs Python's own end, as a child that returns from its function
                finally: os._exit(0)
            forked.append(pid)
            os.waitpid(pid, 0)
    thread = threading.Thread(target=fork)
    thread.start()
    for epoch in range(3):
        rows = []
        for images, labels in tsnb.attach("c"):
            assert torch.equal(images[:, 0].long(), labels)
            held[:] = [images]
            rows += labels.tolist()
            time.sleep(0.002)
        assert rows == list(range(1600)), len(rows)
    stop.set()
    thread.join()
    say("forked", len(forked))
        """
    )
    assert int(script.expect("forked")) >= 3
    assert script.end() == 0 and clean(script)


@pytest.mark.slow
@pytest.mark.parametrize("portable", ["0", "1"])
def test_a_batch_handed_to_a_forked_child_stays_as_it_was(
    run: Run, monkeypatch: pytest.MonkeyPatch, portable: str
) -> None:
    """The parent lets go and trains on, the slot is written anew; with many children, little is copied, and once."""
    monkeypatch.setenv("TSNB_PORTABLE", portable)
    run(SERVING, "0").expect("serving")
    script = run(
        GUARD
        + """
    consumer = tsnb.attach("c")
    loop = iter(consumer)
    own = consumer._inner._line.connection.unpacker._own
    children, taken = [], []
    for turn in range(40):
        held = [next(loop) for _ in range(3)]
        taken += [x for _, labels in held for x in labels.tolist()]
        arrays = [(images.numpy()[:, 0], labels) for images, labels in held]
        if turn % 10 == 0:
            wait, go = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.read(wait, 1)    # until the parent has had dozens of batches since
                was = taken[-24:]
                here = [int(x) for column, _ in arrays for x in column]
                here += [x for _, rows in arrays for x in rows.tolist()]
                os._exit(0 if here == was + was else 1)
            os.close(wait)
            children.append((pid, go))
        for fork in range(3):       # as the workers of a loader
            worker = os.fork()
            if worker == 0: os._exit(0)
            os.waitpid(worker, 0)
        assert 3 <= len(own.slots) <= 4, own.slots
        del held, arrays
    assert taken == list(range(40 * 24)), taken
    for pid, go in children: os.close(go)
    say("children", *[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in children])
    del loop
    if os.fork() == 0: os._exit(0)
    os.wait()
    say("own", len(own.slots))
        """
    )
    assert script.expect("children") == "0 0 0 0"
    assert script.expect("own") == "0"
    assert script.end() == 0 and clean(script)


@pytest.mark.parametrize("portable", ["0", "1"])
def test_a_forked_child_keeps_its_batches_and_nothing_of_the_arena(
    run: Run, monkeypatch: pytest.MonkeyPatch, portable: str
) -> None:
    """A producer that is killed gives no memory back: who outlives it, and all trials, must not keep it."""
    monkeypatch.setenv("TSNB_PORTABLE", portable)
    producer = run(SERVING, "0")
    producer.expect("serving")
    script = run(
        GUARD
        + """
    def parts():  # of shared memory: mapped, and open
        with open("/proc/self/maps") as maps:
            mapped = [line for line in maps if "/memfd:tsnb" in line or "/dev/shm/tsnb" in line]
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return len(mapped), sum("tsnb" in os.readlink(link) for link in links if os.path.lexists(link))
    alone, other = tsnb.attach("alone"), tsnb.attach("other")
    loops = iter(alone), iter(other)
    for _ in range(5): held = [next(loop) for loop in loops]
    before = parts()
    pid = os.fork()
    if pid == 0:
        mine = parts()
        os.close(os.open("/dev/null", os.O_RDONLY))
        whole = [bool(torch.equal(images[:, 0].long(), labels)) for images, labels in held]
        say("child", mine, whole, held[0][1][0].item())
        grandchild = os.fork()
        if grandchild == 0: os._exit(0 if torch.equal(held[0][0][:, 0].long(), held[0][1]) else 1)
        status = os.waitpid(grandchild, 0)[1]
        del held
        for consumer in (alone, other): consumer.close()
        gc.collect()
        say("ended", status)
        sys.stdin.close()
        os._exit(0)
    os.waitpid(pid, 0)
    for loop in loops: next(loop)
    say("parent", before[0] > 0 < before[1], parts()[1] == before[1])
        """
    )
    assert script.expect("child") == "(0, 0) [True, True] 32"
    assert script.expect("ended") == "0"
    assert script.expect("parent") == "True True"
    assert script.end() == 0 and clean(script)


def test_batches_in_reference_cycles_die_in_the_collector_of_any_thread(run: Run) -> None:
    """gc.collect in one thread frees what another one's loop made, in the middle of its own sends."""
    run(SERVING.replace("64000", "1600"), "0").expect("serving")
    script = run(
        GUARD
        + """
    gc.freeze()  # what torch brought along is no part of this, and makes each collection take a tenth of a second
    gc.set_threshold(7, 2, 2)
    stop = threading.Event()
    def collect():
        while not stop.is_set(): gc.collect()
    thread = threading.Thread(target=collect)
    thread.start()
    consumer = tsnb.attach("c")
    rows = []
    for images, labels in consumer:
        cycle = [images]
        cycle.append(cycle)
        rows += labels.tolist()
    assert rows == list(range(1600)), len(rows)
    stop.set()
    thread.join()
    del images, labels, cycle
    gc.collect()
    say("held", consumer.stats().held)
        """
    )
    assert script.expect("held") == "0"
    assert script.end() == 0 and clean(script)


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["", "consumer.close()", "producer.stop()", "loop = None"])
@pytest.mark.parametrize("workers", [0, 1])
def test_the_interpreter_ends_with_batches_held(run: Run, closing: str, workers: int) -> None:
    """In globals, in a cycle, in a thread that never ends, in an object whose `__del__` reads them: exit status 0."""
    script = run(
        GUARD
        + f"""
    producer = tsnb.serve(DataLoader(Numbers(6400, 8), batch_size=8, num_workers={workers}), name="s", window=4)
    consumer = tsnb.attach("c")
    loop = iter(consumer)
    kept = [next(loop) for _ in range(7)]
    kept.append(kept)
    class Reads:
        def __init__(self): self.batch = next(loop)
        def __del__(self): assert self.batch[0].sum() >= 0
    reads = Reads()
    def forever(batch=next(loop)):
        while True: time.sleep(0.001)  # no torch in here: a daemon thread inside torch at the end aborts by itself
    threading.Thread(target=forever, daemon=True).start()
    weight = torch.ones(8, requires_grad=True)
    graph = (next(loop)[0] * weight).sum()
    {closing or "pass"}
    say("ends")
        """
    )
    script.expect("ends")
    assert script.end() == 0
    assert clean(script)


@pytest.mark.slow
def test_fork_and_spawn_inside_a_trial_do_no_harm(run: Run) -> None:
    """Processes that get a batch, attach by a name of their own, or just end: the trial's epoch is whole."""
    run(SERVING.replace("64000", "640"), "0").expect("serving")
    script = run(
        """
    import io, multiprocessing as mp, subprocess
    import torch.multiprocessing as tmp
    def check(batch, answers): answers.put(bool(torch.equal(batch[0][:, 0].long(), batch[1])))
    def attach(name, answers): answers.put(sum(len(labels) for _, labels in tsnb.attach(name)))
    CHECK = (
        "import io, sys, torch; images, labels = torch.load(io.BytesIO(sys.stdin.buffer.read())); "
        "assert torch.equal(images[:, 0].long(), labels)"
    )
    fork, answers = tmp.get_context("fork"), tmp.get_context("fork").Queue()
    rows = []
    for step, (images, labels) in enumerate(tsnb.attach("trial")):
        rows += labels.tolist()
        if step == 3:
            child = fork.Process(target=check, args=((images, labels), answers))   # inherits it
            child.start(); assert answers.get(); child.join()
            packed = io.BytesIO(); torch.save((images, labels), packed)
            subprocess.run([sys.executable, "-c", CHECK], input=packed.getvalue(), check=True)
            spawn = mp.get_context("spawn")
            pipe, there = spawn.Pipe()
            child = spawn.Process(target=print, args=((images, labels),))              # carries it by pickle
            child.start(); child.join(); assert child.exitcode == 0
        if step == 5:
            child = fork.Process(target=attach, args=("child", answers))
            child.start()
    assert rows == list(range(640)), len(rows)
    tsnb.attach("trial").close()
    say("child's", answers.get(timeout=240))
    child.join()
        """
    )
    assert script.expect("child's") == "640"
    assert script.end() == 0 and clean(script)


def test_loops_in_other_threads_are_left_alone(run: Run) -> None:
    """A failed cell ends the loops of its own thread; attaching reads no other thread's messages."""
    script = run(
        GUARD
        + """
    from tsnb.stream.consumer import rest_all
    producer = tsnb.serve([[i] for i in range(300)], name="s")
    taken = []
    def train():
        for epoch in range(2):
            taken.append(sum(1 for _ in tsnb.attach("background") if time.sleep(0.003) is None))
    thread = threading.Thread(target=train)
    thread.start()
    while not producer.status().consumers: time.sleep(0.01)
    while thread.is_alive():
        rest_all(failed=True)
        tsnb.attach("other").close()
        time.sleep(0.002)
    say("taken", taken)
    producer.stop()
        """
    )
    assert script.expect("taken") == "[300, 300]"
    assert script.end() == 0 and clean(script)


def test_a_late_ask_of_a_consumer_that_was_closed_holds_nobody(run: Run) -> None:
    """A thread in the middle of a step may ask once more after another thread has closed its consumer."""
    script = run(
        GUARD
        + """
    from tsnb.stream.protocol import messages as ms
    producer = tsnb.serve([[torch.ones(4)] for i in range(400)], name="s", window=2, stall_timeout_s=600)
    closed = tsnb.attach("closed")
    held = next(iter(closed))
    line = closed._inner._line.connection
    line.post(ms.Bye())
    line.post(ms.Ask(99, 0, 1, exact=True, held=line.unpacker.held))
    say("taken", sum(1 for _ in tsnb.attach("other")))
    producer.stop()
        """
    )
    assert script.expect("taken") == "400"
    assert script.end() == 0
