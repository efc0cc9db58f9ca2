"""What does the panel cost: bytes and kernel time a tick, opening it, memory over a day?

What is isolated: the notebook's side of a panel, fed with readings of an imagined stream, time by hand; with `--page`
also a page in Chromium that opens with hours of history. Jupyter's own envelope and sockets are not measured.

    python -m benchmarks.panel [--quick] [--page] [--json FILE]

- a tick: bytes of its message (numbers and words), and the kernel's CPU milliseconds for it: to read the producer's
  JSON, to feed the stream's state and history, and to write the message; median, and the 95th percentile;
- opening: CPU milliseconds and bytes of all that a page is given after so many readings;
- a day: resident memory after each quarter of a simulated day at four readings a second; with `--page` also the heap of
  a page that was open all the time, a reading a second, as DevTools tells it after a collection of garbage;
- 20 streams: a tick of each in one process.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tsnb.panel.tape import Message, Tape
from tsnb.telemetry.readings import ConsumerReading, HostReading, ProcessReading, StreamReading

if TYPE_CHECKING:
    from playwright.sync_api import Browser

GOALS = {"bytes 3": 300, "bytes 50": 3000, "ms 3": 0.2, "ms 50": 1.0, "opening ms": 1000.0, "page ms": 1000.0}
"""What the panel is to cost at most."""

EVERY_S = 0.25
_BEGIN_S = 1_790_000_000.0


def reading(number: int, trials: int, name: str = "stream") -> StreamReading:
    """Return the reading of that number of an imagined stream: all trials take a batch in each, and log two numbers."""
    now_s = number * EVERY_S
    host = None
    if number % 8 == 0:
        processes = {
            f"cnn-{k}": ProcessReading(0.1 + 0.01 * (k % 7), (200 + k) << 20, 1) for k in range(trials)
        }
        host = HostReading(8, 4.0, 8 << 30, 32 << 30, ProcessReading(0.5, 300 << 20, 2), processes, ())
    return StreamReading(
        host=host,
        time_s=_BEGIN_S + now_s,
        name=name,
        pid=100,
        state="serving",
        epoch=number // 500,
        published=number % 500,
        epoch_batches=500,
        window=8,
        window_fill=6,
        batches=number,
        loading_s=0.2 * now_s,
        blocked_s=0.6 * now_s,
        workers=2,
        slots_used=10,
        slots=16,
        slot_bytes=16 << 20,
        touched_bytes=212 << 20,
        in_place=number,
        copied=0,
        consumers=tuple(_trial(k, number, now_s) for k in range(trials)),
    )


def _trial(k: int, number: int, now_s: float) -> ConsumerReading:
    return ConsumerReading(
        name=f"cnn-{k}",
        pid=1000 + k,
        state="sets the pace" if k == 0 else "held back",
        epoch=number // 500,
        position=number % 500,
        fill=6 if k == 0 else k % 3,
        lag=6 if k == 0 else k % 3,
        batches=number,
        samples=64 * number,
        computing_s=now_s * (0.9 if k == 0 else 0.3),
        waiting_s=0.05 * now_s,
        held_s=now_s * (0.0 if k == 0 else 0.6),
        metrics={
            "loss": 2 * math.exp(-number / 5000) + 0.01 * (number % 7),
            "accuracy": 0.9 + 0.0001 * (number % 11),
        },
    )


def size(message: Message) -> int:
    """Return the bytes of a message without Jupyter's envelope."""
    return len(message.frame) + len(json.dumps(message.content, separators=(",", ":")))


def ticks(trials: int, count: int, streams: int = 1) -> dict[str, float]:
    """Return bytes and milliseconds a tick, those of all `streams` together."""
    tapes = [Tape() for _ in range(streams)]
    sizes, took_ms = [], []
    for number in range(count):
        sent = [reading(number, trials, f"stream-{at}").to_json(brief=True) for at in range(streams)]
        began_s = time.thread_time()
        messages = [tape.feed(StreamReading.from_json(text)) for tape, text in zip(tapes, sent, strict=True)]
        took_ms.append(1000 * (time.thread_time() - began_s))
        sizes.append(sum(size(message) for message in messages))
    settled = count // 4  # the first ticks carry the names
    return {
        "bytes": statistics.mean(sizes[settled:]),
        "ms": statistics.median(took_ms[settled:]),
        "ms p95": statistics.quantiles(took_ms[settled:], n=20)[-1],
    }


def told(trials: int, count: int) -> Tape:
    """Return a tape that was told so many readings."""
    tape = Tape()
    for number in range(count):
        tape.feed(reading(number, trials))
    return tape


def opening(tape: Tape) -> dict[str, float]:
    """Return what a page is given as it opens, and how long that takes to put together."""
    took_ms = []
    for _ in range(5):
        began_s = time.thread_time()
        scene, history, curves = json.dumps(tape.scene()), tape.history(), tape.curves()
        took_ms.append(1000 * (time.thread_time() - began_s))
    return {"ms": statistics.median(took_ms), "bytes": len(scene) + len(history) + len(curves)}


def a_day(trials: int, count: int) -> list[float]:
    """Return MiB of resident memory after each quarter of so many readings, less those before the first."""
    process, tape, found = psutil.Process(), Tape(), []
    gc.collect()
    before = process.memory_info().rss
    for number in range(count):
        tape.feed(reading(number, trials))
        if (number + 1) % (count // 4) == 0:
            gc.collect()
            found.append((process.memory_info().rss - before) / 2**20)
    return found


def page_ms(tape: Tape) -> dict[str, float]:
    """Return milliseconds until a page of that history has its first picture, and what a tick takes in it."""
    from tests.browser.chromium import chromium
    from tests.browser.host import Host

    with chromium() as browser:
        host = Host(browser, 1200)
        host.tape = tape
        host.page.evaluate("() => { window.began = performance.now(); }")
        host.page.evaluate(
            """() => new MutationObserver(() => {
              if (!window.first && Number(document.querySelector('.tsnb-panel')?.dataset.history) > 0)
                requestAnimationFrame(() => { window.first ??= performance.now(); });
            }).observe(document.body, {subtree: true, attributes: true, childList: true})"""
        )
        host.page.evaluate(
            """() => { const open = window.host.open;
              window.host.open = (...all) => { window.began = performance.now(); return open(...all); }; }"""
        )
        host.open()
        host.page.wait_for_function("() => window.first", timeout=60_000)
        first = float(host.page.evaluate("() => window.first - window.began"))
        drawn = []
        latest = tape.ticks
        for number in range(latest, latest + 24):
            host.feed(reading(number, len(tape.view.rows)))
            host.settle()
            drawn.append(float(host.facts()["drawMs"]))
    return {"first": first, "draw": statistics.median(drawn)}


def page_day(browser: Browser, trials: int, count: int) -> dict[str, list[float]]:
    """Return a page's heap in MiB after each quarter of so many readings, one a second, and the most objects in each.

    Those are the kernel's: it thins what it keeps again and again, so their number goes up and down.

    Args:
        browser: Where the page is opened.
        trials: How many take part.
        count: Readings; 86,400 are a day.
    """
    from tests.browser.host import Host

    host = Host(browser, 1200)
    host.open([reading(0, trials)])
    tools = host.page.context.new_cdp_session(host.page)
    heap, objects, most = [], [], 0
    for begin in range(1, count, 1200):
        host.hear_all(
            [host.tape.feed(reading(4 * k, trials)) for k in range(begin, min(count, begin + 1200))]
        )
        gc.collect()
        most = max(most, sys.getallocatedblocks())
        if (begin + 1199) * 4 // count != (begin - 1) * 4 // count:
            host.settle()
            tools.send("HeapProfiler.collectGarbage")
            heap.append(tools.send("Runtime.getHeapUsage")["usedSize"] / 2**20)
            objects.append(float(most))
            most = 0
    assert not host.errors
    return {"heap": heap, "objects": objects}


def measured(quick: bool, page: bool) -> dict[str, Any]:
    """Measure all of it."""
    few, many = (400, 120) if quick else (4000, 800)
    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
    found["tick"] = {"3": ticks(3, few), "50": ticks(50, many), "20 streams of 3": ticks(3, many, 20)}
    lives = {"3": [3000] if quick else [3000, 50_000], "50": [600] if quick else [3000]}
    found["opening"], found["page"] = {}, {}
    for trials, counts in lives.items():
        for count in counts:
            tape = told(int(trials), count)
            found["opening"][f"{trials} trials, {count} readings"] = opening(tape)
            if page:
                found["page"][f"{trials} trials, {count} readings"] = page_ms(tape)
    found["page day"] = None
    if page:
        from tests.browser.chromium import chromium

        with chromium() as browser:
            found["page day"] = page_day(browser, 3, 9600 if quick else 86_400)["heap"]
    found["day MiB"] = a_day(3, 8000 if quick else 345_600)
    return found


def table(found: dict[str, Any]) -> str:
    """Return what was measured as Markdown."""
    lines = [f"{found['cores']} cores, load {found['load']}", "", "| what | | aim |", "|---|--:|--:|"]
    for what, tick in found["tick"].items():
        lines.append(f"| bytes a tick, {what} | {tick['bytes']:.0f} | {GOALS.get(f'bytes {what}', '')} |")
        spread = f"{tick['ms']:.3f} (p95 {tick['ms p95']:.3f})"
        lines.append(f"| kernel ms a tick, {what} | {spread} | {GOALS.get(f'ms {what}', '')} |")
    for what, one in found["opening"].items():
        lines.append(f"| opening, {what}: ms | {one['ms']:.1f} | {GOALS['opening ms']:.0f} |")
        lines.append(f"| opening, {what}: kB | {one['bytes'] / 1000:.0f} | |")
    for what, one in found["page"].items():
        lines.append(f"| first picture, {what}: ms | {one['first']:.0f} | {GOALS['page ms']:.0f} |")
        lines.append(f"| drawing a tick, {what}: ms | {one['draw']:.1f} | |")
    quarters = ", ".join(f"{one:.0f}" for one in found["day MiB"])
    lines.append(f"| memory after each quarter of the day, MiB | {quarters} | flat |")
    if found.get("page day"):
        quarters = ", ".join(f"{one:.1f}" for one in found["page day"])
        lines.append(f"| a page's heap after each quarter of the day, MiB | {quarters} | flat |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser("benchmarks.panel", description="What the panel costs.")
    parser.add_argument("--quick", action="store_true", help="short: only to see that it works")
    parser.add_argument("--page", action="store_true", help="in Chromium too")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where the figures are written too")
    given = parser.parse_args(arguments)
    found = measured(given.quick, given.page)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    if not given.page:
        print("\nNot measured: a page (--page), Jupyter's envelope and sockets.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
