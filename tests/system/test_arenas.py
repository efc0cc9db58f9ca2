"""What every memory that batches lie in keeps, one suite for all: the host's arena, a device, a device's stand-in.

The stand-in is memory of the CPU with late copies (tests/device_sharing/fake_device.py), between real processes over
the real socket. On a GPU: `pytest -m gpu`.
"""

from __future__ import annotations

import re
import signal

import pytest
import torch

from tests.system.conftest import Run

pytestmark = pytest.mark.system

HOST = "SHARE = {}\n"
FAKE = """
from tests.device_sharing.fake_device import install
install()
SHARE = {"device": "cpu", "share_on_device": True}
"""
CUDA = """
SHARE = {"device": "cuda:0", "share_on_device": True}
"""
KINDS = [
    pytest.param(HOST, id="host"),
    pytest.param(FAKE, id="fake device"),
    pytest.param(
        CUDA,
        id="cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
        ],
    ),
]
SERVE = """
loader = DataLoader(Numbers(320, width=512), batch_size=16, num_workers=1, persistent_workers=True)
with tsnb.serve(loader, name="s", window=4, stall_timeout_s=60) as producer:
    say("serving")
    producer.wait()
"""
WARM = """
def right(images, labels): return torch.equal(images[:, 0].long().cpu(), labels.cpu())

def warm(consumer):
    # starting a device takes a while, in which batches come as ever
    until = time.monotonic() + 50
    while time.monotonic() < until:
        for images, labels in consumer: assert right(images, labels)
        if not SHARE or consumer.stats().on_device: return
        time.sleep(0.02)
    raise AssertionError("nothing was shared")
"""


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_arrives_once_in_order_and_stays_as_it_is(kind: str, run: Run) -> None:
    """Bit for bit, in two processes over several epochs; one keeps cuts and autograd's own, past its hold."""
    run(kind + SERVE).expect("serving")
    plain = run(
        kind
        + WARM
        + """
consumer = tsnb.attach("plain", **SHARE)
warm(consumer)
for epoch in range(2):
    seen = []
    for images, labels in consumer:
        assert (images == images[:, :1]).all() and right(images, labels)
        assert images.shape == (16, 512) and images.dtype == torch.float32
        seen += labels.tolist()
    assert seen == list(range(320)), seen
say("done", consumer.stats().on_device)
"""
    )
    holder = run(
        kind
        + WARM
        + """
import random, warnings
warnings.simplefilter("ignore")
consumer = tsnb.attach("holder", **SHARE)
warm(consumer)
kept = []
for epoch in range(2):
    seen = []
    for images, labels in consumer:
        assert right(images, labels)
        seen += labels.tolist()
        weight = torch.ones(512, 1, device=images.device, requires_grad=True)
        product = images @ weight
        kept.append((images[3:5], int(labels[3]), product, weight, images.sum(0)))
        if len(kept) > 9: kept.pop(random.randrange(len(kept)))
        for cut, label, *_ in kept: assert (cut[0] == label).all(), (cut[0, :3], label)
    assert seen == list(range(320)), seen
for _, _, product, weight, expected in kept:
    product.sum().backward()
    assert torch.equal(weight.grad[:, 0], expected)
say("kept", consumer.stats().copied)
say("done", consumer.stats().on_device)
"""
    )
    assert int(holder.expect("kept")) > 0, "past its hold it gets copies"
    for taker in (holder, plain):
        assert (int(taker.expect("done")) > 0) == (kind != HOST)


@pytest.mark.parametrize("kind", KINDS[1:])  # of the host's arena: tests/system/test_faults.py
def test_one_that_is_killed_with_batches_in_its_hands_holds_nobody(kind: str, run: Run) -> None:
    """The others get their epochs whole, several times round all the memory there is."""
    run(kind + SERVE).expect("serving")
    victim = run(
        kind
        + WARM
        + """
consumer = tsnb.attach("victim", **SHARE)
warm(consumer)
kept = []
for images, labels in consumer:
    kept.append(images)
    if len(kept) == 3: say("holding"); time.sleep(600)
"""
    )
    victim.expect("holding")
    survivor = run(
        kind
        + WARM
        + """
consumer = tsnb.attach("survivor", **SHARE)
say("attached")
warm(consumer)
for epoch in range(2):
    assert [label for _, labels in consumer for label in labels.tolist()] == list(range(320))
say("done")
"""
    )
    survivor.expect("attached")
    victim.send(signal.SIGKILL)
    survivor.expect("done")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_batch_is_copied_to_a_device_once_however_many_consumers_are_there(kind: str, run: Run) -> None:
    """Three in step: an epoch's bytes cross once, not three times."""
    served = run(
        kind
        + """
loader = DataLoader(Numbers(640, width=512), batch_size=16)
with tsnb.serve(loader, name="s", window=4, stall_timeout_s=60) as producer:
    say("serving")
    while sys.stdin.readline().strip() != "end": say("bytes", producer._core.devices.copied_bytes)
""",
        stdin=True,
    )
    served.expect("serving")
    takers = [
        run(
            kind
            + WARM
            + f"""
consumer = tsnb.attach("c{n}", **SHARE)
warm(consumer)
consumer._inner.rest()
say("warm"); sys.stdin.readline()
loop = iter(consumer)
say("asked"); sys.stdin.readline()
rows = sum(len(labels) for _, labels in loop)
say("done", rows); sys.stdin.readline()
""",
            stdin=True,
        )
        for n in range(3)
    ]

    def all_say(word: str) -> None:
        for taker in takers:
            taker.expect(word)

    all_say("warm")
    served.answer("?")
    before = int(served.expect("bytes"))
    for taker in takers:
        taker.answer("ask")
    all_say("asked")
    for taker in takers:
        taker.answer("go")
    all_say("done")
    served.answer("?")
    epoch = 640 * (512 * 4 + 8)
    copied = int(served.expect("bytes")) - before
    # an epoch may have been begun before the last of them asked: then it takes the next one
    assert epoch // 2 < copied < 2.5 * epoch, (copied, epoch)
    served.answer("end")


@pytest.mark.parametrize(
    ("serving", "attaching", "why"),
    [
        ("free=1000", "", "the device has no room"),
        ("", "closed='another driver'", "another driver"),
    ],
)
def test_what_cannot_be_shared_goes_through_the_host_with_one_warning(
    serving: str, attaching: str, why: str, run: Run
) -> None:
    """Nothing is lost, nobody waits; the warning says why, and what happens instead."""
    install = "from tests.device_sharing.fake_device import install; install({})\n"
    run(install.format(serving) + SERVE).expect("serving")
    taker = run(
        install.format(attaching)
        + """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    consumer = tsnb.attach("c", device="cpu", share_on_device=True)
    until = time.monotonic() + 50
    while not told and time.monotonic() < until:
        assert [x for _, labels in consumer for x in labels.tolist()] == list(range(320))
    for epoch in range(2):
        assert [x for _, labels in consumer for x in labels.tolist()] == list(range(320))
say("told", len(told), told[0].message)
say("on", consumer.stats().on_device)
"""
    )
    told = taker.expect("told")
    assert re.match(rf"1 'c' cannot share batches on its device: .*{why}.*copies its batches", told), told
    assert taker.expect("on") == "0"


def test_without_such_a_device_the_host_serves(run: Run) -> None:
    """As within the process that serves; and options that cannot be meant are refused."""
    script = run(
        """
import warnings
warnings.simplefilter("error")
with tsnb.serve(DataLoader(Numbers(64), batch_size=16), name="s"):
    try: list(tsnb.attach("c", device="cpu", share_on_device=True))
    except Warning as warning: say("said", warning)
    for wrong in ({"share_on_device": True}, {"device": "cpu", "share_on_device": True, "batch_size": 4}):
        try: tsnb.attach("d", **wrong)
        except ValueError as error: say("refused", error)
"""
    )
    assert "served by this same process" in script.expect("said")
    for _ in range(2):
        assert "Leave batch_size= out and pass device=" in script.expect("refused")
