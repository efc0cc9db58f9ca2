"""The limits of the machine and of the stream: each is a clear error that says the numbers and what to do next."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.system.conftest import Run
from tests.system.scripts import PRELUDE, ROOT
from tsnb.errors import ArenaFull
from tsnb.machine.memory import Free, free_memory
from tsnb.native.memfd import portable
from tsnb.stream.producer.core import MAX_CONSUMERS
from tsnb.stream.producer.limits import certain_batches, require_memory

pytestmark = pytest.mark.system
MIB = 1 << 20

TRIED = """
    def tried(word, call):
        try: say(word, "went well", call())
        except Exception as error:
            say(word, type(error).__name__, str(error).split(chr(10) * 2)[0].replace(chr(10), " "))
"""


def in_a_namespace(mounts: str, code: str, timeout_s: float = 90.0) -> str:
    """Run a script with file systems of its own mounted; return what it says. Skips where that is not permitted."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    command = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if subprocess.run(
        [*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no mount namespaces here")
    text = PRELUDE + textwrap.dedent(TRIED) + textwrap.dedent(code)
    done = subprocess.run(
        [*command, "sh", "-ec", f'{mounts}\nexec "$0" -c "$1"', sys.executable, text],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- memory -------------------------------------------------------------------------------------------------


def test_the_look_before_allocating_names_the_numbers_and_the_option() -> None:
    """Pure: what is needed for certain against what is free."""
    free = Free(100 * MIB, "of the machine's memory")
    require_memory(8, 8, None, 4, 6 * MIB, free)
    require_memory(10**6, 10**6, None, 4, MIB, None)
    with pytest.raises(
        ArenaFull, match=r"15 batches of 10.0 MiB .* 150.0 MiB in total, but only 100.0 MiB are free"
    ):
        require_memory(8, 8, None, 4, 10 * MIB, free)
    with pytest.raises(ArenaFull, match="window=2 or less and late_join=0"):
        require_memory(8, 8, None, 4, 10 * MIB, free)
    with pytest.raises(
        ArenaFull, match=r"100 batches are for the late-join window.*Serve with a smaller late_join="
    ):
        require_memory(8, 100, None, 4, 2 * MIB, free)
    with pytest.raises(ArenaFull, match="fewer workers="):
        require_memory(8, 8, None, 16, 20 * MIB, free)
    with pytest.raises(ArenaFull, match="smaller batch_size"):
        require_memory(1, 1, None, 0, 200 * MIB, free)
    require_memory(8, 8, 2, 0, 20 * MIB, free)
    assert certain_batches(8, 8, 2, 0) == 5, "an epoch of two batches never fills the window"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_free_memory_is_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    """Version 2 with a limit on a parent; version 1; a container's own root.

    What is cached of files counts as free, read once or often: with a data set on a disk it is most of the memory.
    """
    write(tmp_path, {"proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    1000 kB\n"})
    assert free_memory(tmp_path) == Free(1000 * 1024, "of the machine's memory")
    group = "sys/fs/cgroup/a/b"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b/c\n",
            f"{group}/c/memory.max": "max\n",
            f"{group}/c/memory.current": "5000\n",
            f"{group}/memory.max": "600000\n",
            f"{group}/memory.current": "500000\n",
            f"{group}/memory.stat": "anon 1\ninactive_file 60000\nactive_file 40000\nshmem 3000\nfile 103000\n",
        },
    )
    found = free_memory(tmp_path)
    assert found is not None
    assert found.size == 200_000
    assert found.where.endswith(group)
    write(tmp_path, {f"{group}/memory.current": "900000\n"})
    assert free_memory(tmp_path) == found._replace(size=0), "over its limit already"
    old = tmp_path / "old"
    write(
        old,
        {
            "proc/meminfo": "MemAvailable: 1000 kB\n",
            "proc/self/cgroup": "3:cpu:/x\n4:memory:/docker/0123\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "300000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "100000\n",
            "sys/fs/cgroup/memory/memory.stat": "active_file 8\ninactive_file 7\n"
            "total_inactive_file 20000\ntotal_active_file 30000\n",
        },
    )
    found = free_memory(old)
    assert found is not None and found.size == 250_000, "the path is the host's, the mount is ours"
    write(old, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert free_memory(old) == Free(1000 * 1024, "of the machine's memory")
    assert free_memory(tmp_path / "nothing") is None
    real = free_memory()
    assert real is not None and real.size > MIB


def test_a_stream_larger_than_memory_is_refused_before_anything_is_allocated(run: Run) -> None:
    """The window asks for far more than the machine has; nothing was touched."""
    script = run(
        TRIED
        + """
    def make(epoch):
        while True: yield torch.zeros(1 << 20)
    def peak():  # not ru_maxrss: a child inherits the one of the process that started it
        return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
    before = peak()
    tried("large", lambda: tsnb.serve(make, name="s", window=10**7))
    tried("slots", lambda: tsnb.serve(make, name="s", window=10**10))
    tried("room", lambda: tsnb.serve(make, name="s", max_batch_bytes=1 << 60))
    say("grown", peak() - before)
    with tsnb.serve(make, name="s"): say("free", tsnb.streams.list()[0].name)
    """
    )
    large = script.expect("large LoaderFailed")
    assert re.search(r"10,000,003 batches of 4.0 MiB .* GiB in total, but only .* GiB are free", large)
    assert "Serve with window=" in large and "of the machine's memory" in large
    for word in ("slots", "room"):
        said = script.expect(f"{word} LoaderFailed")
        assert "smaller window=, late_join= or max_batch_bytes" in said or "Serve with window=" in said
    assert int(script.expect("grown")) < 100, "MiB; three tries, each of which looked at one batch of 4 MiB"
    assert script.expect("free") == "s"


@pytest.mark.slow
def test_a_control_groups_limit_counts_though_the_machine_has_more() -> None:
    """A container of 512 MB on a large host, as its own /sys/fs/cgroup shows it."""
    said = in_a_namespace(
        """
        mount -t tmpfs none /sys/fs/cgroup
        mkdir /sys/fs/cgroup/memory
        for where in /sys/fs/cgroup /sys/fs/cgroup/memory; do
            echo 536870912 > $where/memory.max; echo 268435456 > $where/memory.current
            echo 536870912 > $where/memory.limit_in_bytes; echo 268435456 > $where/memory.usage_in_bytes
        done
        """,
        """
        def make(epoch):
            for _ in range(1000): yield torch.zeros(1 << 23)
        tried("large", lambda: tsnb.serve(make, name="s", window=8))
        with tsnb.serve(make, name="s", window=2, late_join=0): say("fits")
        """,
    )
    assert "11 batches of 32.0 MiB" in said and "352.0 MiB in total, but only 256.0 MiB are free" in said
    assert "memory limit of this container" in said
    assert "Serve with window=3 or less" in said
    assert "fits" in said


def test_what_the_formula_says_is_what_a_stream_uses(run: Run) -> None:
    """Two consumers drift apart by the window: the arena holds what was reckoned, not much more."""
    script = run(
        """
        import threading
        def train(name, pause):
            for images, _ in tsnb.attach(name): time.sleep(pause)
        loader = DataLoader(Numbers(640, width=65536), batch_size=16, num_workers=2)
        with tsnb.serve(loader, name="s", window=6, late_join=0.0) as producer:
            threads = [threading.Thread(target=train, args=x) for x in (("slow", 0.03), ("fast", 0))]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            say("touched", producer.status().touched_bytes / (16 * 65536 * 4))
        """
    )
    touched = float(script.expect("touched"))
    certain = certain_batches(6, 6, 40, 4)
    # on top: what the two hold and have been granted
    assert certain * 0.6 <= touched <= certain + 2 * 6 + 4


def test_a_batch_larger_than_a_slot_says_both_sizes_and_the_option(run: Run) -> None:
    """From a worker too; the stream lives on, and the next epoch is a new attempt."""
    script = run(
        TRIED
        + """
    class Growing(Numbers):
        def __getitem__(self, i): return torch.zeros(1000 if i < 8 else 1_000_000), i
    for workers in (0, 1):
        with tsnb.serve(DataLoader(Growing(16), batch_size=4, num_workers=workers), name="s", max_batch_bytes="64KiB"):
            for attempt in range(2): tried("large", lambda: len(list(tsnb.attach("c"))))
    with tsnb.serve(DataLoader(Growing(16), batch_size=4), name="s", max_batch_bytes=20_000_000):
        tried("fits", lambda: len(list(tsnb.attach("c"))))
    """
    )
    for _ in range(4):
        said = script.expect("large LoaderFailed")
        assert re.search(
            r"at least 16,000,\d+ bytes, but a buffer of the stream's memory has 65,536\. ", said
        ), said
        assert "max_batch_bytes=32000" in said and "--max-batch-bytes" in said
    assert script.expect("fits") == "went well 4"


def test_a_small_first_batch_is_no_measure_of_the_others(run: Run) -> None:
    """The rest of an epoch, short texts, a folder that has just begun to fill; from workers, without, and a function.

    A process with a limit on its addresses gets fewer, and the room that a first batch asks for.
    """
    script = run(
        """
    class Growing(Numbers):
        def __getitem__(self, i): return torch.full((100 if i < 4 else 300_000,), float(i)), i
    def make(epoch):
        for k in (1, 1000, 5_000_000): yield torch.full((k,), float(k))
    def same(batches): return all(torch.equal(x[:, 0].long(), i) for x, i in batches)
    for workers in (0, 2):
        with tsnb.serve(DataLoader(Growing(24), batch_size=4, num_workers=workers), name="s"):
            for epoch in range(2): say("loader", same(tsnb.attach("c")))
    with tsnb.serve(make, name="s") as producer:
        say("function", [len(x) for x in tsnb.attach("c")])
        say("addresses", producer.core.arena.slots * producer.core.arena.slot_bytes)
    import resource
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (8 << 30),) * 2)
    with tsnb.serve([torch.zeros(1 << 10)] * 3, name="s") as producer:
        say("fewer", producer.core.arena.slots * producer.core.arena.slot_bytes)
        say("served", len(list(tsnb.attach("c"))))
    """
    )
    for _ in range(4):
        assert script.expect("loader") == "True"
    assert script.expect("function") == "[1, 1000, 5000000]"
    assert 1 << 41 < int(script.expect("addresses")) < 1 << 43
    assert int(script.expect("fewer")) < 8 << 30
    assert script.expect("served") == "3"


def test_the_rubber_band_counts_whole_pages_and_the_largest_batch(run: Run) -> None:
    """1 GiB at most: of tiny batches, each of which takes a page, and of those that grow."""
    script = run(
        """
    class Endless:
        def __len__(self): return 10**7
        def __iter__(self):
            yield torch.zeros(3)
            while True: yield torch.zeros(1 << 20)
    with tsnb.serve(Endless(), name="s", late_join=1.0) as producer:
        band = producer.core.dispatch.epochs
        say("tiny", band.band)
        batches = iter(tsnb.attach("c"))
        for _ in range(3): next(batches)
        say("large", band.band)
        for _ in range(300): next(batches)
        say("kept", band.kept)
    """
    )
    assert script.expect("tiny") == str((1 << 30) // 4096)
    assert script.expect("large") == "256"
    assert int(script.expect("kept")) < 30, "past the band nothing is kept for latecomers"


def test_a_consumer_that_may_not_map_so_much_is_told(run: Run) -> None:
    """`ulimit -v`: the arena is mostly addresses, and says so. The producer and the others do not mind."""
    script = run(
        TRIED
        + """
    import resource
    with tsnb.serve([torch.zeros(1 << 24)] * 3, name="s", late_join=1.0):
        pid = os.fork()
        if pid == 0:
            now = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (now + (100 << 20),) * 2)
            tried("limited", lambda: list(tsnb.attach("c")))
            os._exit(0)
        os.waitpid(pid, 0)
        tried("free", lambda: len(list(tsnb.attach("d"))))
    """
    )
    said = script.expect("limited ArenaFull")
    assert "ulimit -v" in said and "bytes of shared memory" in said
    assert script.expect("free") == "went well 3"


def test_a_limit_on_file_sizes_is_told(run: Run) -> None:
    """`ulimit -f` counts for shared memory too, which nobody expects."""
    script = run(
        TRIED
        + """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    tried("limited", lambda: tsnb.serve([torch.zeros(1 << 20)] * 3, name="s"))
    """
    )
    assert "ulimit -f" in script.expect("limited LoaderFailed")


@pytest.mark.slow
@pytest.mark.skipif(
    portable(), reason="POSIX shared memory lies there: see test_portable.py for what is told then"
)
def test_a_stream_needs_no_dev_shm() -> None:
    """A container's 64 MB, and less: 2 workers, 32 MB a batch, and not a byte of them in /dev/shm."""
    said = in_a_namespace(
        "mount -t tmpfs -o size=256k none /dev/shm",
        """
        for method in ("fork", "spawn"):
            loader = DataLoader(Numbers(48, width=1 << 20), batch_size=8, num_workers=2, multiprocessing_context=method)
            with tsnb.serve(loader, name="s"):
                labels = torch.cat([labels.clone() for images, labels in tsnb.attach("c")])
                say(method, labels.tolist() == list(range(48)), os.listdir("/dev/shm"))
        """,
    )
    assert "fork True []" in said, said
    assert "spawn True" in said, said


# -- consumers and versions ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_consumer_too_many_is_told_how_many_there_are(run: Run) -> None:
    """And is taken as soon as another has gone."""
    script = run(
        TRIED
        + f"""
    with tsnb.serve([torch.zeros(1)] * 3, name="s"):
        held = [tsnb.attach(f"c{{i}}") for i in range({MAX_CONSUMERS})]
        tried("more", lambda: tsnb.attach("more"))
        held[0].close()
        tried("again", lambda: tsnb.attach("more").name)
    """
    )
    assert f"{MAX_CONSUMERS} trials are attached" in script.expect("more JoinRefused")
    assert script.expect("again") == "went well more"


def test_versions_that_differ_say_which_and_what_to_install(run: Run) -> None:
    """A consumer, and an observer, of another protocol."""
    script = run(
        TRIED
        + """
    from tsnb.stream.protocol import messages as ms
    from tsnb.telemetry.observer import Observer, status
    with tsnb.serve([torch.zeros(1)] * 3, name="s"):
        ms.PROTOCOL = 99  # the producer compares with it, and a Hello says its own version all the same
        tried("consumer", lambda: tsnb.attach("c"))
        tried("observer", lambda: status("s"))
    """
    )
    for who in ("consumer", "observer"):
        said = script.expect(f"{who} JoinRefused")
        assert "protocol 99" in said and "Install the same version of tsnb in both" in said


def test_names_with_odd_characters_are_refused_on_both_sides(run: Run) -> None:
    """Each message says what a name may be."""
    names = ["a b", "../up", "ünïcode", "a" * 65, "-dash", ".hidden", "new\nline", "a\0b", "\ud800"]
    script = run(
        TRIED
        + f"""
    for name in {["", *names]!r}: tried("producer", lambda: tsnb.serve([torch.zeros(1)], name=name))
    with tsnb.serve([torch.zeros(1)] * 3, name="s"):
        for name in {names!r}: tried("consumer", lambda: tsnb.attach(name))
    """
    )
    for word in ["producer"] * (len(names) + 1) + ["consumer"] * len(names):
        assert "Use 1 to 64 letters, digits" in script.expect(f"{word} ValueError")


# -- files, descriptors, permissions ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    """The registry's entry cannot be written: out of blocks, out of inodes, at each step."""
    said = in_a_namespace(
        f"""
        mkdir {tmp_path}/full {tmp_path}/inodes {tmp_path}/none
        mount -t tmpfs -o size=4k,mode=700 none {tmp_path}/full && echo x > {tmp_path}/full/x
        mount -t tmpfs -o nr_inodes=2,mode=700 none {tmp_path}/inodes
        mount -t tmpfs -o nr_inodes=1,mode=700 none {tmp_path}/none
        """,
        f"""
        for where in ("full", "inodes", "none"):
            os.environ["TSNB_RUNTIME_DIR"] = "{tmp_path}/" + where
            tried(where, lambda: tsnb.serve([torch.zeros(3)], name="s"))
            say("left", [name for _, _, names in os.walk("{tmp_path}/" + where) for name in names if name != "x"])
        """,
    )
    for where in ("full", "inodes", "none"):
        assert re.search(
            rf"^{where} TsnbError tsnb cannot .*No space left on device.*TSNB_RUNTIME_DIR", said, re.MULTILINE
        ), said
    assert said.count("left []") == 3


def test_a_runtime_directory_that_cannot_be_used_says_why(run: Run, tmp_path: Path) -> None:
    """Open to others, a file, a broken link, read-only; each with the way out."""
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "redirected").symlink_to(tmp_path / "elsewhere")
    script = run(
        TRIED
        + """
    for where in ("open", "file", "file/below", "link", "redirected"):
        os.environ["TSNB_RUNTIME_DIR"] = os.path.join(sys.argv[1], where)
        tried("serve", lambda: tsnb.serve([torch.zeros(3)], name="s"))
        tried("attach", lambda: tsnb.attach("c"))
    """,
        str(tmp_path),
    )
    for _ in range(5):
        for word in ("serve", "attach"):
            assert "Set TSNB_RUNTIME_DIR to a directory that only you can enter" in script.expect(
                f"{word} TsnbError"
            )


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_somebody_elses_directory_and_one_without_permission_say_so(run: Run, tmp_path: Path) -> None:
    """As another user: root's directory, one under a directory that cannot be written."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o777 == 0o700:  # pytest's own: several, deeper where it runs in halves
            path.chmod(0o755)
    (tmp_path / "roots").mkdir(mode=0o700)
    script = run(
        TRIED
        + """
    tsnb.serve, tsnb.attach  # loaded while this may still read them
    os.setgid(65534); os.setuid(65534)
    for where in ("roots", "new"):
        os.environ["TSNB_RUNTIME_DIR"] = os.path.join(sys.argv[1], where)
        tried(where, lambda: tsnb.serve([torch.zeros(3)], name="s"))
    """,
        str(tmp_path),
    )
    assert "not your own directory" in script.expect("roots TsnbError")
    assert "Permission denied" in script.expect("new TsnbError")


@pytest.mark.slow
def test_a_read_only_file_system_is_told(tmp_path: Path) -> None:
    """Even root cannot write there."""
    said = in_a_namespace(
        f"mount -t tmpfs -o ro,mode=700 none {tmp_path}",
        f"""
        for where in ("", "/below"):
            os.environ["TSNB_RUNTIME_DIR"] = "{tmp_path}" + where
            tried("serve", lambda: tsnb.serve([torch.zeros(3)], name="s"))
        """,
    )
    assert said.count("serve TsnbError") == 2 and said.count("TSNB_RUNTIME_DIR") == 2, said


FILL = """
    import resource
    def limit(more):
        low = len(os.listdir("/proc/self/fd")) - 1 + more
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


def test_a_consumer_without_descriptors_is_told_at_each_step_and_leaves_none(run: Run) -> None:
    """From none left to enough: every call that needs one fails in the same clear way."""
    run(
        """
        with tsnb.serve([torch.zeros(3)] * 5, name="s", stall_timeout_s=1) as producer:
            say("serving")
            producer.wait()
        """
    ).expect("serving")
    script = run(
        TRIED
        + FILL
        + """
    list(tsnb.attach("c"))
    tsnb.stream.consumer.detach_all()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = len(os.listdir("/proc/self/fd"))
    for more in range(8):
        limit(more)
        tried(f"step{more}", lambda: len(list(tsnb.attach("c"))))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        tsnb.stream.consumer.detach_all()
        say("left", len(os.listdir("/proc/self/fd")) - before, tsnb.streams.list()[0].name)
    """
    )
    outcomes = []
    for more in range(8):
        said = script.expect(f"step{more}")
        assert script.expect("left") == "0 s", (
            "no descriptor, and the producer's entry was not taken for stale"
        )
        outcomes.append(said.split()[0])
        assert said == "went well 5" or "ulimit -n" in said, said
    assert outcomes[0] == "TsnbError" and outcomes[-1] == "went", outcomes


def test_a_producer_without_descriptors_says_so_and_serves_those_it_has(run: Run, tmp_path: Path) -> None:
    """It neither dies nor spins; with descriptors again it takes newcomers again."""
    serving = run(
        FILL
        + """
    with tsnb.serve(DataLoader(Numbers(64000), batch_size=16), name="s") as producer:
        say("serving")
        sys.stdin = open("/dev/null")
        while len(producer.status().consumers) < 1: time.sleep(0.01)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit(0)
        say("limited")
        while not os.path.exists(sys.argv[1]): time.sleep(0.05)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        say("lifted")
        producer.wait()
    """,
        str(tmp_path / "lift"),
    )
    serving.expect("serving")
    first = run(
        """
        for step, (images, labels) in enumerate(tsnb.attach("first")):
            time.sleep(0.002)
            if step % 50 == 0: say("step", step)
        """
    )
    first.expect("step")
    serving.expect("limited")
    late = run(
        TRIED
        + """
    while True:
        tried("late", lambda: tsnb.attach("late").name)
        time.sleep(0.1)
    """
    )
    assert "Raise the limit (`ulimit -n`)" in late.expect("late JoinRefused")
    first.expect("step")
    (tmp_path / "lift").touch()
    serving.expect("lifted")
    late.expect("late went well")
    first.expect("step")


@pytest.mark.slow
def test_a_producer_that_cannot_even_turn_somebody_away_does_not_spin(run: Run) -> None:
    """Another thread was quicker to take the last descriptor: who waits is looked at once a second."""
    script = run(
        FILL
        + """
    with tsnb.serve([torch.zeros(3)] * 5, name="s") as producer:
        listener = producer._server._listener
        listener.turn_away = lambda packet: False
        pid = os.fork()
        if pid == 0:
            time.sleep(0.5)
            say("attached", len(list(tsnb.attach("c"))))
            os._exit(0)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        stat = open(f"/proc/self/task/{producer._server.native_id}/stat")  # while there is a descriptor for it
        def ticks():
            stat.seek(0)
            return sum(map(int, stat.read().split()[13:15]))
        limit(0)
        time.sleep(1.0)
        then = ticks()
        time.sleep(2.0)
        say("ticks", ticks() - then)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        del listener.turn_away
        os.waitpid(pid, 0)
    """
    )
    assert int(script.expect("ticks")) < 20, "hundredths of a second, of two whole ones"
    assert script.expect("attached") == "5"


def test_serving_without_descriptors_is_told_at_each_step_and_leaves_none(run: Run) -> None:
    """Arena, pipe, socket, epoll, registry, first batch."""
    script = run(
        TRIED
        + FILL
        + """
    import gc
    def once():
        with tsnb.serve([torch.zeros(3)] * 5, name="s"): return "served"
    once()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = len(os.listdir("/proc/self/fd"))
    for more in range(14):
        limit(more)
        tried(f"step{more}", once)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        gc.collect()
        say("left", len(os.listdir("/proc/self/fd")) - before)
    """
    )
    outcomes = []
    for more in range(14):
        said = script.expect(f"step{more}")
        outcomes.append(said.split()[0])
        assert said == "went well served" or "ulimit -n" in said, said
        assert script.expect("left") == "0", said
    assert outcomes[0] == "TsnbError" and outcomes[-1] == "went", outcomes


def test_loader_workers_without_descriptors_are_told_with_the_loaders_own_error(run: Run) -> None:
    """The DataLoader opens pipes for each worker."""
    script = run(
        TRIED
        + FILL
        + """
    tsnb.serve([torch.zeros(3)], name="warm").stop()
    limit(14)
    tried("workers", lambda: tsnb.serve(DataLoader(Numbers(64), batch_size=4, num_workers=8), name="s"))
    """
    )
    said = script.expect("workers LoaderFailed")
    assert "Too many open files" in said


def test_memory_comes_back_when_nobody_lags_any_more(run: Run) -> None:
    """After a wide lag: with everybody attached, and once more with nobody, where no clock would tick."""
    script = run(
        """
        from tsnb.stream.memory import slots
        from tsnb.stream.producer import server
        slots.COLD_LOOKS, server.TICK_S = 3, 0.05
        def make(epoch): return (torch.full((1 << 18,), float(i)) for i in range(60))
        with tsnb.serve(make, name="s", pacing="free") as producer:
            mib = lambda: producer.core.arena.touched_bytes() >> 20
            def comes_down(to):
                until = time.monotonic() + 60
                while mib() > to and time.monotonic() < until: time.sleep(0.02)
                return mib() <= to
            def lag(last):
                fast, slow = tsnb.attach("fast"), tsnb.attach("slow")
                loops = together(fast, 0), iter(slow)
                next(loops[1])
                seen = [int(batch[0]) for batch in loops[0]]
                say("high", mib() > 50)
                seen += [int(batch[-1]) for batch in loops[1]]
                say("whole", seen == [*range(60), *range(1, 60)])
                del loops
                if last: tsnb.stream.consumer.detach_all()
            lag(False)
            say("attached", comes_down(24), mib())
            lag(True)
            say("nobody", comes_down(24), mib())
            waits = producer._server._stall_timeout_s
            until = time.monotonic() + 60
            while waits() != server.ENTRY_S and time.monotonic() < until: time.sleep(0.02)
            say("sleeps", waits() == server.ENTRY_S)
        """
    )
    for when in ("attached", "nobody"):
        assert script.expect("high") == "True"
        assert script.expect("whole") == "True"
        said = script.expect(when)
        assert said.startswith("True"), said
    assert script.expect("sleeps") == "True"


def test_the_end_of_a_stream_gives_its_memory_back_though_a_forked_child_lives_on(run: Run) -> None:
    """A trial's persistent workers keep it mapped. What somebody holds stays, and what a user's function keeps."""
    script = run(
        """
        from torch.utils.data import default_collate
        from tsnb.native.ties import tie_to_parent
        constant = []
        def collate(samples):
            images, labels = default_collate(samples)
            if not constant: constant.append(images)
            return images, labels
        loader = DataLoader(Numbers(256, width=1 << 14), batch_size=16, collate_fn=collate)
        producer = tsnb.serve(loader, name="s", window=8, late_join=1.0)
        loop = iter(tsnb.attach("c"))
        held = [next(loop) for _ in range(3)]
        for _ in range(8): images, labels = next(loop)
        descriptor = os.dup(producer.core.arena.fd)
        here = os.getpid()
        child = os.fork()
        if child == 0:
            tie_to_parent(here)
            time.sleep(100)
            os._exit(0)
        say("before", os.fstat(descriptor).st_blocks // 2048)
        producer.stop()
        say("after", os.fstat(descriptor).st_blocks // 2048)
        say("held", [bool((images[:, 0] == labels).all()) for images, labels in held], int(held[2][1][0]))
        say("constant", bool((constant[0][:, 3] == torch.arange(16)).all()))
        os.kill(child, 9)
        os.waitpid(child, 0)
        say("done")
        """
    )
    assert int(script.expect("before")) >= 11
    assert int(script.expect("after")) <= 6, (
        "MiB: three that are held, the last one, and what the function keeps"
    )
    assert script.expect("held") == "[True, True, True] 32"
    assert script.expect("constant") == "True"
    script.expect("done")


def test_without_proc_it_is_told_at_once_what_is_missing() -> None:
    """A chroot that nobody mounted /proc in: it was a FileNotFoundError of the loader's, as it said."""
    said = in_a_namespace(
        "mount -t tmpfs none /proc",
        """
        tried("serve", lambda: tsnb.serve([1, 2], name="s"))
        tried("attach", lambda: tsnb.attach("me", stream="s"))
        tried("run", lambda: tsnb.run(print))
        """,
    )
    for word in ("serve", "attach", "run"):
        assert re.search(rf"{word} UnsupportedPlatform .*/proc.* `mount -t proc proc /proc`", said), said
