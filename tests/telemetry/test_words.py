"""A terminal writes numbers and states as the panel does: the same values through both."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.panel.streams import three_models
from tests.panel.test_frontend import node
from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.panel.tape import Tape
from tsnb.reports.story import story
from tsnb.show import words
from tsnb.show.view_text import as_text
from tsnb.telemetry.forecast.eta import NO_ETA, Eta
from tsnb.telemetry.readings import CONSUMER_STATES, PRODUCER_STATES, CacheReading, StreamReading
from tsnb.text import numbers
from tsnb.top.view import screen

SOURCE = Path(words.__file__).parents[1] / "panel/frontend/src"
NUMBERS = [
    0,
    0.4,
    1,
    9.63,
    9.94,
    9.95,
    9.96,
    10,
    12.5,
    63.7,
    99.94,
    99.96,
    100.2,
    612.3,
    999.4,
    1234567.8,
    0.0001,
    3599.6,
]
SIZES = [0, 3 / (1 << 20), 0.0029, 0.04, 0.094, 0.096, 9.9, 9.96, 212.4, 999.6, 1000, 3200, 150000]
LOGGED = [
    ["loss", 0.142], ["loss", 12.34], ["loss", 123.4], ["lr", 3e-4], ["lr", 2.5e-12], ["steps", 1.5e5], ["acc", 0.958],
    ["valAcc", 0.5], ["top1acc", 0.5], ["acc@1", 0.5], ["ACC", 0.5], ["TEST_ACCURACY", 0.5], ["accuracies/a", 0.5],
    ["grad_accum", 1], ["accumulated_loss", 0.5], ["acceleration", 0.5], ["vaccinated", 0.5], ["ACCEPTED", 0.5],
    ["accuracy", 0], ["accuracy", 2.5], ["val_Acc", 1], ["loss", -0.02], ["loss", 0], ["loss", 9.9996],
    ["loss", 0.00113], ["loss", -0.0044], ["loss", 0.01], ["loss", 0.001], ["loss", 0.0099999],
]  # fmt: skip
STATES = [
    [state, seconds, live]
    for state in (*CONSUMER_STATES, "queued", "starting")
    for seconds in (0, 72.4)
    for live in (True, False)
]

ETAS: list[tuple[float, int]] = [(750, 3), (70.4, 0), (4e6, 2), (3700, 1), (0, 5)]
"""Seconds left, and epochs in all."""

NOON_S = datetime(2026, 11, 25, 12).astimezone().timestamp()
"""Of a day on this machine's clock, in seconds since 1970."""

SCRIPT = f"""
import * as w from {json.dumps((SOURCE / "words.js").as_uri())};
const numbers = {json.dumps(NUMBERS)}, sizes = {json.dumps(SIZES)}, logged = {json.dumps(LOGGED)};
const states = {json.dumps(STATES)}, streams = {json.dumps([*PRODUCER_STATES, "absent"])};
console.log(JSON.stringify({{
  count: numbers.map(w.count), pace: numbers.map(w.pace), clock: numbers.map(w.clock),
  percent: numbers.map(w.percent), sizes: sizes.map(w.mebibytes), used: sizes.map((v) => w.usedOf(v, 4 * v + 1)),
  short: numbers.map((v) => w.milliseconds(v)),
  nan: [w.milliseconds(NaN), w.count(NaN), w.percent(NaN), w.mebibytes(NaN)],
  logged: logged.map(([name, value]) => w.metric(name, value)),
  states: states.map(([state, s, live]) => w.consumerState(state, s, live)),
  streams: streams.map((state) => [w.streamWord(state), w.tone(state), w.LIVE.has(state)]),
  left: {json.dumps(ETAS)}.map(([leftS, epochs]) => w.remaining({{ leftS, epochs }})),
  all: w.allLeft({{ leftS: 750, lowS: 600, highS: 900 }}, {1000 * NOON_S}),
  none: w.allLeft(w.NO_ETA, 0) + w.remaining(w.NO_ETA),
  progress: [-1, 2.667, 0, 1].map((epochs) => [w.progress({{ epochs }}, 63), w.progress({{ epochs }}, null)]),
}}));
"""


def plain(text: str) -> str:
    """A panel keeps a number and its unit together by a space that does not break; a terminal has none."""
    return text.replace("\u00a0", " ")


def in_the_panel() -> dict[str, Any]:
    done = subprocess.run(
        [node(), "--input-type=module", "-e", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(plain(done.stdout))
    return found


def test_the_terminal_and_the_panel_speak_alike() -> None:
    """Numbers, sizes, times, logged numbers, states and their tones."""
    panel = in_the_panel()
    ours: dict[str, Any] = {
        "count": [numbers.count(n) for n in NUMBERS],
        "pace": [numbers.pace(n) for n in NUMBERS],
        "clock": [numbers.clock(n) for n in NUMBERS],
        "percent": [numbers.percent(n) for n in NUMBERS],
        "sizes": [numbers.mebibytes(n) for n in SIZES],
        "used": [numbers.used_of(n, 4 * n + 1) for n in SIZES],
        "short": [numbers.milliseconds(n / 1000) for n in NUMBERS],
        "nan": [
            numbers.milliseconds(math.nan),
            numbers.count(math.nan),
            numbers.percent(math.nan),
            numbers.mebibytes(math.nan),
        ],
        "logged": [numbers.metric(str(name), float(str(value))) for name, value in LOGGED],
        "states": [words.consumer_state(*state) for state in STATES],  # type: ignore[arg-type]
        "streams": [
            [words.stream_word(s), words.tone(s), s in words.LIVE] for s in (*PRODUCER_STATES, "absent")
        ],
        "left": [words.remaining(Eta(left_s, 0, 0, epochs)) for left_s, epochs in ETAS],
        "all": words.all_left(Eta(750, 600, 900, 1), NOON_S),
        "none": words.all_left(NO_ETA) + words.remaining(NO_ETA),
        "progress": [[words.progress(epochs, whole) for whole in (63, None)] for epochs in (-1, 2.667, 0, 1)],
    }
    panel["states"] = [(state["label"], state["tone"]) for state in panel["states"]]
    for kind, said in ours.items():
        assert said == panel[kind], kind


FLOW = f"""
import {{ flowWords }} from {json.dumps((SOURCE / "strip.js").as_uri())};
import {{ Store }} from {json.dumps((SOURCE / "store.js").as_uri())};
import {{ readFileSync }} from "node:fs";
const told = [];
for (const line of readFileSync(0, "utf8").trim().split("\\n")) {{
  const [scene, history] = JSON.parse(line), bytes = Buffer.from(history, "base64"), store = new Store(() => 0);
  store.load(scene, new DataView(new Uint8Array(bytes).buffer));
  told.push(flowWords(store));
}}
console.log(JSON.stringify(told));
"""


def lagging(reading: StreamReading) -> StreamReading:
    """Return a reading in which the last trial is further behind than the window."""
    *others, last = reading.consumers
    return replace(reading, consumers=(*others, replace(last, lag=300, fill=308)))


def test_status_top_and_the_panels_strip_say_alike_how_a_stream_flows() -> None:
    """From before the first trial until one is parked, and while one stops, with far more than the window kept."""
    stream, tape, given, ours, shown = three_models(), Tape(), [], [], ""
    for k, reading in enumerate(stream.run(90)):
        tape.feed(reading if k % 60 or not reading.consumers else lagging(reading))
        if k % 30 == 0 or k > 350:
            history = base64.b64encode(tape.history()).decode()
            given.append(json.dumps([tape.scene(), history]))
            ours.append(words.flow(tape.view))
            shown = as_text(tape.view, "mnist")
            console = Console(width=200, file=io.StringIO(), color_system=None)
            console.print(screen(tape.view, 200))
            assert isinstance(console.file, io.StringIO)
            lines = console.file.getvalue() + shown
            for title, said in words.flow(tape.view).items():
                assert lines.count(f"{title.lower()} {said}") == 2 * bool(tape.view.shown(1))
    done = subprocess.run(
        [node(), "--input-type=module", "-e", FLOW],
        input="\n".join(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(plain(done.stdout)) == ours
    assert "behind: resnet18-wide" in shown and " of 8 prepared" in shown
    assert any(flow["Buffer"] == "308 prepared" for flow in ours)


def test_numbers_of_status_stand_below_their_heads_however_long_a_name_is() -> None:
    """A sweep's trials are called by their parameters: the column of names is as wide as the longest."""
    tape = Tape()
    for reading in three_models().run(30):
        long = (replace(one, name=f"train-width1024-lr0.0003-{one.name}") for one in reading.consumers)
        tape.feed(replace(reading, consumers=tuple(long)))
    lines = as_text(tape.view, "mnist").splitlines()
    head = next(line for line in lines if line.startswith("trial "))
    rows = lines[lines.index(head) + 1 :][:3]
    for row in rows:
        assert row.startswith("train-width1024-")
        assert row[head.index("state") - 1] == " " != row[head.index("state")]
        assert row[: head.index("samples/s") + len("samples/s")][-1].isdigit()


def test_when_all_are_done_is_not_said_while_others_are_to_come() -> None:
    """Those that are queued, or wait for a place in a sweep, take their time after those that are there."""
    tape, readings = Tape(), list(three_models().run(60))
    planned = [replace(r, consumers=tuple(replace(c, planned=20) for c in r.consumers)) for r in readings]
    for reading in planned:
        tape.feed(reading)
    assert tape.view.eta.whole and story(planned).left
    for more in ({"to_come": 2}, {"pending": {"cnn": "queued: it starts when 'mlp' is done"}}):
        told = replace(planned[-1], time_s=planned[-1].time_s + 1, **more)
        tape.feed(told)
        assert not tape.view.eta.known and "all done in" not in as_text(tape.view, "mnist")
        assert not story([*planned, told]).left
        assert all(row.eta.whole for row in tape.view.rows.values() if row.here), "of each it is"


def test_what_is_not_known_to_be_left_is_not_shown() -> None:
    """Of an epoch that is all published, or at a standstill, neither `status` nor `top` says how long it takes."""
    for left_s, share, said in (
        (90.0, 0.5, ", 1:30 left"),
        (0.0, 1.0, ""),
        (math.nan, 0.5, ""),
        (4e5, 0.5, ""),
    ):
        assert words.epoch_left(left_s, share) == said
    tape, made = Tape(), three_models()
    readings = list(made.run(30))
    for reading in readings:
        tape.feed(reading)
    whole = readings[-1].epoch_batches
    assert whole is not None
    last = readings[-1]
    for later, (published, times) in enumerate(((whole // 2, 1), (whole, 0)), 1):
        now = replace(last, time_s=last.time_s + later, batches=last.batches + 4 * later)
        tape.feed(replace(now, published=published))
        console = Console(width=200, file=io.StringIO(), color_system=None)
        console.print(screen(tape.view, 200))
        assert isinstance(console.file, io.StringIO)
        heads = as_text(tape.view, "mnist").splitlines()[0], console.file.getvalue().splitlines()[0]
        assert [head.count(" left") for head in heads] == [times, times], heads


def test_a_trial_has_the_panels_colour() -> None:
    """One palette; wherever the panel's sources keep it, in this order."""
    sources = " ".join(path.read_text(encoding="utf-8") for path in SOURCE.glob("*.js"))
    palettes = [
        tuple(re.findall(r"#[0-9a-fA-F]{6}", found))
        for found in re.findall(r"COLOURS = \[(.*?)\]", sources, re.DOTALL)
    ]
    assert words.COLOURS in palettes


def test_the_weight_of_a_group_belongs_to_its_ranks() -> None:
    """A weight is given by the group's name, and is not said to be nobody's while its ranks are attached."""
    ranks = [consumer(f"bert[{rank}]") for rank in range(2)]
    reading = replace(stream(*ranks), pacing="weights", weights={"bert": 2.0, "cnn": 3.0})
    assert words.balanced(reading)[1:] == [
        "note: no trial named 'cnn' is attached yet. Its weight takes effect when it attaches. Attached: bert"
    ]


def test_trials_that_wait_for_the_same_are_one_line_where_they_are_many() -> None:
    """Three have a line each; of twenty the first are named, and all are counted."""
    why, other = (
        "queued: it starts when another trial of its sweep ends",
        "queued: it starts when 'a' is done",
    )
    assert words.waiting({"b": other, **dict.fromkeys("xyz", why)}) == [
        f"b {other}",
        *(f"{n} {why}" for n in "xyz"),
    ]
    many = dict.fromkeys((f"cnn-{k}" for k in range(20)), why)
    assert words.waiting({**many, "b": other}) == [
        f"20 trials, each {why} (cnn-0, cnn-1, cnn-2, …)",
        f"b {other}",
    ]


def test_a_cache_is_told_with_its_shares_and_its_sizes() -> None:
    """300 of 400 samples came from it, 100 of them from other machines; 6 MiB were given back."""
    reading = CacheReading(
        "serving", "", 50, 20, 3 << 20, 4 << 20, 6 << 20, 300, 100, 1.5, 2, 25, 5 << 20, 100
    )
    assert plain(words.cached(reading)) == (
        "cache: serving, 20 of 50 samples in 3.0 MiB of 4.0 MiB, 25 in 5.0 MiB of 2 other machines, "
        "75 % of samples served from it (25 % fetched), 6.0 MiB freed"
    )
