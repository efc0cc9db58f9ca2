"""A cache under memory pressure and SIGKILL: memory comes back, and nothing is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_groups import limited_group
from tests.system.conftest import Run

pytestmark = pytest.mark.system

MIB = 1 << 20
LIMIT = 560 * MIB

SERVING = """
class Large(Dataset):
    '''Samples of 1 MiB that are costly to make.'''
    def __len__(self): return 128
    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.full((1 << 18,), float(i)), i

def epoch(consumer):
    seen = []
    for images, labels in consumer:
        assert (images[:, 7] == labels).all() and (images[:, -1] == labels).all()
        seen += labels.tolist()
    assert sorted(seen) == list(range(128)), seen

producer = tsnb.serve(
    DataLoader(Large(), 4, shuffle=True, num_workers=2), name="kept", seed=1, cache="300MiB", window=2, late_join=0
)
consumer = tsnb.attach("one", "kept")
for _ in range(3): epoch(consumer)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    with limited_group(LIMIT) as made:
        yield made


@pytest.mark.slow
def test_memory_is_given_back_before_the_control_group_kills(run: Run, group: Path) -> None:
    """In a container that another process fills: the cache shrinks, nobody is killed, no sample is lost."""
    code = f"""
    open("{group}/cgroup.procs", "w").write(str(os.getpid()))
    """
    script = run(
        code.strip()
        + "\n"
        + SERVING
        + f"""
full = producer.status().cache
say("full", full.kept, full.kept_bytes)
from tsnb.native.ties import tie_to_parent
parent, hog = os.getpid(), os.fork()
if hog == 0:
    tie_to_parent(parent)
    held = []
    while len(held) < 60:  # 360 MiB, at a pace at which a data set is read
        held.append(bytearray(os.urandom(6 << 20)))
        time.sleep(0.05)
    while True: time.sleep(1)
while producer.status().cache.given_bytes <= 32 << 20: time.sleep(0.05)  # it gives back as the other one takes
epoch(consumer)
least = producer.status().cache
say("least", least.kept, least.given_bytes)
assert os.waitpid(hog, os.WNOHANG) == (0, 0), "the system killed it"
os.kill(hog, 9); os.waitpid(hog, 0)
epoch(consumer)
consumer.close(); producer.stop()
say("done", open("{group}/memory.failcnt").read().strip() if os.path.exists("{group}/memory.failcnt") else 0)
"""
    )
    kept, size = map(int, script.expect("full", 120.0).split())
    assert kept > 100
    assert size > 100 * MIB
    fewer, given = map(int, script.expect("least", 120.0).split())
    assert fewer < kept
    assert given > 32 * MIB
    script.expect("done", 120.0)
    assert script.end() == 0


@pytest.mark.slow
def test_sigkill_of_the_producer_leaves_no_memory(run: Run) -> None:
    """Its workers end with it, and the memory had no name."""

    def shared() -> int:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))

    before = shared()
    script = run(SERVING + "say('kept', producer.status().cache.kept_bytes)\nos.kill(os.getpid(), 9)")
    assert int(script.expect("kept", 120.0)) > 100 * MIB
    assert script.end() == -9
    deadline = time.monotonic() + 30
    while shared() > before + 64 * MIB:
        assert time.monotonic() < deadline, "what samples took is still in use"
        time.sleep(0.1)
