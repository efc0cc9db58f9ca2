"""Duels of real trials: both arms on one stream, from one seed, and a verdict that survives what happens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.telemetry.watches import forget_watches
from tests.waiting import wait_until as until
from tsnb.duels.ledger import FILE, Ledger
from tsnb.duels.seeds import ARMS
from tsnb.duels.verdict import BETTER, NONE, OPEN, WORSE
from tsnb.errors import ProducerNotFound
from tsnb.experiments import trials
from tsnb.records.project import project_directory
from tsnb.show.view_text import as_text
from tsnb.telemetry.watching import watch

pytestmark = pytest.mark.system

LIMIT_S = 120

SOURCE = """
def first(gain=0.0, noise=0.01, length=1, bad="", hold=0.0, epochs=1, net=True):
    import os, time, torch, tsnb
    start = torch.rand(()).item()
    if net:
        layer = torch.nn.Linear(1, 1)
    if gain:
        own = torch.rand(3)
    if net:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    taken = 0.0
    for _ in range(epochs):
        for (numbers,) in tsnb.attach():
            taken = taken * 0.9 + float(numbers.mean())
            if net:
                layer(numbers[:, None].float()).mean().backward()
                optimizer.step()
            time.sleep(hold)
    if bad == "raise":
        raise ValueError("bad " + "arm")
    if bad == "die":
        os.kill(os.getpid(), 9)
    tsnb.log(**{"other" if bad == "silent" else "acc": start + taken + gain + noise * float(torch.randn(()))})

def second(**given):
    first(**{"gain": 0.1, **given})

def same(**given):
    first(**given)

def changed(**given):
    import torch
    torch.rand(3)
    first(**given)

def broken():
    first(bad="raise")

def silent():
    first(bad="silent")

def dies():
    first(bad="die")

def hours():
    first(hold=0.3, epochs=200)

def long():
    first(epochs=3)

def fails_soon():
    for k, batch in enumerate(tsnb_batches()):
        if k == 2:
            raise ValueError("bad arm")

def tsnb_batches():
    import tsnb
    return tsnb.attach()

def astray():
    import tsnb
    list(tsnb.attach(stream="gone"))

def slow():
    first(hold=0.05, gain=0.1)
"""


@pytest.fixture(autouse=True)
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tsnb.streams.Producer]:
    """Serve numbers in an order of its own each epoch, for a project without records."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers") as producer:
        yield producer
        trials.clear()


@pytest.fixture(scope="module")
def arms() -> dict[str, Any]:
    """Functions that travel by value: this file cannot be imported in a trial."""
    import __main__

    exec(compile(SOURCE, "<cell>", "exec"), vars(__main__))
    return vars(__main__)


@pytest.mark.slow
def test_a_better_change_is_found_and_both_arms_of_a_seed_had_the_same(arms: dict[str, Any]) -> None:
    """The same batches, seed and first weights: what a seed brings is no part of the difference."""
    duel = tsnb.duel(arms["first"], arms["second"], metric="acc", at_once=4).wait(LIMIT_S)
    verdict = duel.verdict
    assert verdict.word == BETTER and verdict.effect == pytest.approx(0.1, abs=0.03), str(verdict)
    assert 6 <= len(verdict.blocks) <= 12 and duel.over
    assert {block.paired for block in verdict.blocks} == {"weights"} and (verdict.pairing or 0) > 5
    assert all(block.samples == (40, 40) and block.batches == (10, 10) for block in verdict.blocks)
    assert "same first weights and the same batches" in repr(duel) and "<svg" in duel._repr_html_()
    assert len({block.seed for block in verdict.blocks}) == len(verdict.blocks)
    assert [verdict for _, verdict in Ledger().series("")] == [BETTER]


@pytest.mark.slow
def test_the_same_code_twice_differs_by_nothing(arms: dict[str, Any]) -> None:
    """In no block, so six are enough. All screens begin with that, and with no seed that is best."""
    forget_watches()
    duel = tsnb.duel(arms["first"], arms["same"], metric="acc", at_once=6).wait(LIMIT_S)
    verdict = duel.verdict
    assert (verdict.word, verdict.wins) == (NONE, (0, 0, 6)), str(verdict)
    said = f"Duel {duel.name}: {verdict.said.rstrip('.')}."
    view = watch("numbers").view
    until(lambda: view.outcome == (said, "12 done."), LIMIT_S)
    assert f"{said} 12 done." in as_text(view, "numbers")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "word", "why"),
    [
        ("broken", OPEN, "the candidate failed with every seed: ValueError: bad arm"),
        (
            "silent",
            OPEN,
            "the candidate never logged 'acc'. It logged other. Log it in both trainings, tsnb.log(acc=",
        ),
        (
            "dies",
            OPEN,
            "3 seeds in succession do not count. The last time, dies-against-first-3-candidate crashed",
        ),
        (
            "astray",
            OPEN,
            "trial astray-against-first-1-candidate has no stream: ProducerNotFound: No stream named 'gone'",
        ),
    ],
)
def test_an_arm_that_cannot_be_compared_ends_a_duel_early(
    candidate: str, word: str, why: str, arms: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """And says why and what to do, before whoever waits goes on; nothing is claimed to be compared."""
    duel = tsnb.duel(arms["first"], arms[candidate], metric="acc", at_once=2).wait(LIMIT_S)
    verdict, printed = duel.verdict, capfd.readouterr()
    assert verdict.word == word and why in verdict.why, str(verdict)
    assert f"duel {duel.name!r}: {verdict}\n" in printed.out
    assert "run the duel again" in str(verdict) or candidate == "astray"
    assert not verdict.compared and not verdict.about and "nan" not in repr(duel)
    assert ("block " in repr(duel)) == bool(verdict.blocks)
    assert "\x1b" not in printed.out + printed.err
    assert sum(line.endswith("] " + 75 * "-") for line in printed.err.splitlines()) <= 1, "one traceback"


def test_a_missing_stream_is_refused_before_anything_starts(
    arms: dict[str, Any], stream: tsnb.streams.Producer
) -> None:
    """One that was named, or any; with the way to one."""
    with pytest.raises(
        ProducerNotFound, match=r"No stream named 'nmbers' is running. Did you mean 'numbers'"
    ):
        tsnb.duel(arms["first"], arms["second"], metric="acc", stream="nmbers")
    stream.stop()
    with pytest.raises(ProducerNotFound, match=r"No stream is running. Start one: tsnb.serve\("):
        tsnb.duel(arms["first"], arms["second"], metric="acc")
    assert not list(trials) and not (project_directory() / FILE).exists()


@pytest.mark.slow
def test_the_command_fails_where_the_arms_cannot_be_compared(
    tmp_path: Path, stream: tsnb.streams.Producer
) -> None:
    """It exits with 1: of two arms that raise, which are no ties, and where there is no stream. Else with 0."""
    (tmp_path / "bad.py").write_text("raise ValueError('bad ' + 'arm')")
    (tmp_path / "good.py").write_text("import tsnb\nfor x in tsnb.attach(): pass\ntsnb.log(acc=1.0)")

    def run(*words: str) -> tuple[int, dict[str, Any], str]:
        command = [sys.executable, "-m", "tsnb", "duel", *words, "--metric", "acc", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr

    status, told, printed = run("bad.py", "bad.py")
    assert (status, told["why"]) == (1, "both arms failed with every seed: ValueError: bad arm")
    assert (told["ties"], told["neither"], told["about"]) == (0, told["seeds"], "")
    assert re.search("bad-against-bad-[12]-incumbent", told["needs"])
    assert "\x1b" not in printed and printed.count("Traceback (most recent call last)") == 1
    status, told, _ = run("good.py", "good.py", "--seeds", "2", "--at-once", "4")
    assert (status, told["verdict"], told["ties"]) == (0, "undecided", 2)
    assert "with seeds=6 or more" in told["needs"]
    status, told, printed = run("good.py", "bad.py", "--seeds", "1")
    assert status == 2 and "'1' is invalid" in told["error"] and "usage:" in printed
    stream.stop()
    status, told, _ = run("good.py", "bad.py")
    assert status == 1 and told["error"].startswith("No stream is running. Start one:")


GROWS = """
import tsnb, torch
for batch in tsnb.attach(): pass
tsnb.log(acc=float(torch.rand(())) + {gain})
"""


@pytest.mark.slow
def test_the_command_says_each_seed_and_the_verdict_once(tmp_path: Path) -> None:
    """And of an earlier duel of the name, with other code, that it is kept: its verdict is not shown any more."""
    (tmp_path / "old.py").write_text(GROWS.format(gain=0))

    def run(gain: float) -> str:
        (tmp_path / "new.py").write_text(GROWS.format(gain=gain))
        words = ["old.py", "new.py", "--metric", "acc", "--seeds", "2", "--at-once", "4"]
        command = [sys.executable, "-m", "tsnb", "duel", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    said = run(0.1)
    assert (
        len(
            re.findall(
                r"^\[new-against-old\] seed [12]: incumbent 0\..*, difference \+0\.1, evidence",
                said,
                re.MULTILINE,
            )
        )
        == 2
    )
    assert said.count("undecided after 2 seeds") == 1 and "earlier duel" not in said
    again = run(0.2)
    assert (
        "An earlier duel of this name, with other code or options, is kept: undecided after 2 seeds" in again
    )


LASTS = "import tsnb\nwhile True:\n    for batch in tsnb.attach(): pass\n"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["interrupt", "stream"])
def test_a_command_that_is_interrupted_or_loses_its_stream_says_so_in_a_sentence(
    tmp_path: Path, stream: tsnb.streams.Producer, end: str
) -> None:
    """With no traceback, and with no trial left."""
    (tmp_path / "lasts.py").write_text(LASTS)
    command = [
        sys.executable,
        "-m",
        "tsnb",
        "duel",
        "lasts.py",
        "lasts.py",
        "--metric",
        "acc",
        "--at-once",
        "2",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as run:
        assert run.stdout is not None
        printed, names = "", {f"lasts-against-lasts-1-{arm}" for arm in ARMS}
        until(lambda: {each.name for each in tsnb.streams.status("numbers").consumers} >= names)
        if end == "interrupt":
            run.send_signal(signal.SIGINT)
        else:
            stream.stop()
        printed = run.stdout.read()
    assert "Traceback" not in printed
    why = (
        "It was stopped"
        if end == "interrupt"
        else "Its stream was stopped. Serve it again, and run the same duel"
    )
    assert printed.count(f"undecided after 0 seeds. {why}") == 1, printed
    assert run.returncode == (130 if end == "interrupt" else 1)


@pytest.mark.slow
def test_an_undecided_duel_continues_with_more_seeds(arms: dict[str, Any]) -> None:
    """Under the same name and with the seeds that it has; with no more of them it stands as it is."""
    asked: dict[str, Any] = {"metric": "acc", "at_once": 4}
    first = tsnb.duel(arms["first"], arms["second"], seeds=2, **asked).wait(LIMIT_S)
    assert first.verdict.why == "all 2 seeds are spent" and "at least 4 more" in first.verdict.needs.lower()
    again = tsnb.duel(arms["first"], arms["second"], seeds=2, **asked).wait(LIMIT_S)
    assert again.verdict.blocks == first.verdict.blocks and not again.trials
    more = tsnb.duel(arms["first"], arms["second"], seeds=12, **asked).wait(LIMIT_S)
    assert more.resumed == 2 and more.verdict.blocks[:2] == first.verdict.blocks
    assert more.verdict.word == BETTER, str(more.verdict)


def numbers(first: int, number: int = 40) -> DataLoader[Any]:
    """Return a loader of other numbers than the stream's."""
    return DataLoader(TensorDataset(torch.arange(first, first + number).float()), batch_size=4, shuffle=True)


@pytest.mark.slow
def test_seeds_on_other_data_do_not_count_together(
    arms: dict[str, Any], stream: tsnb.streams.Producer, capfd: pytest.CaptureFixture[str]
) -> None:
    """On another stream, or on a stream of the same name that serves something else; on the first data they do."""
    asked: dict[str, Any] = {"metric": "acc", "at_once": 2, "seeds": 2}
    first = tsnb.duel(arms["first"], arms["second"], **asked).wait(LIMIT_S)
    stream.stop()
    with tsnb.serve(numbers(100), name="others"):
        other = tsnb.duel(arms["first"], arms["second"], **asked).wait(LIMIT_S)
    why = "they were on the stream 'numbers', and the duel is now on 'others'"
    said = f"The former 2 seeds do not count, because {why}. A new duel has begun"
    assert other.resumed == 0 and other.notes == [f"{said}."] and f"{said}." in repr(other)
    assert f"duel {other.name!r}: {said}\n" in capfd.readouterr().out
    assert not set(other.verdict.blocks) & set(first.verdict.blocks)
    with tsnb.serve(numbers(0, 20), name="others"):
        changed = tsnb.duel(arms["first"], arms["second"], **asked).wait(LIMIT_S)
    why = "the data of the stream 'others' has changed (40 samples, batch size 4 before, 20 samples, batch size 4 now)"
    assert changed.resumed == 0 and why in changed.notes[0]
    with tsnb.serve(numbers(50, 20), name="others"):
        changed = tsnb.duel(arms["first"], arms["second"], **asked).wait(LIMIT_S)
    assert (
        changed.resumed == 0 and "because the data of the stream 'others' has changed. A" in changed.notes[0]
    )
    with tsnb.serve(numbers(0), name="numbers"):
        again = tsnb.duel(arms["first"], arms["second"], stream="numbers", **asked).wait(LIMIT_S)
    assert again.resumed == 2 and again.verdict.blocks == first.verdict.blocks and not again.notes


@pytest.mark.slow
def test_a_duel_stays_on_its_stream(arms: dict[str, Any], stream: tsnb.streams.Producer) -> None:
    """Though a second one comes up, and the first then goes. It ends where other data comes under its name."""
    duel = tsnb.duel(arms["first"], arms["slow"], metric="acc", at_once=2)
    until(lambda: any(t.attached for t in duel.trials.values()), LIMIT_S)
    with tsnb.serve(numbers(100), name="others"):
        until(lambda: len(duel.verdict.blocks) >= 2, LIMIT_S)
        read = {t.report.get("stream") for t in list(duel.trials.values())[:4]}
        assert read == {"numbers"}, read
        stream.stop()
        verdict = duel.wait(LIMIT_S).verdict
    assert {t.report.get("stream") for t in duel.trials.values()} <= {"numbers", "", None}
    assert verdict.word == OPEN and "stream" in verdict.why, str(verdict)


@pytest.mark.slow
def test_the_loaders_failure_is_no_arms(arms: dict[str, Any], stream: tsnb.streams.Producer) -> None:
    """Its seed does not count; nor does one that the end of the stream has cut off."""
    stream.stop()
    with tsnb.serve(BadOnce(), name="numbers"):
        duel = tsnb.duel(arms["first"], arms["second"], metric="acc", at_once=2, seeds=2).wait(LIMIT_S)
    assert [block.number for block in duel.verdict.blocks] == [2, 3], repr(duel)
    assert "Seed 1 does not count, because" in repr(duel) and "LoaderFailed" in duel.notes[0]
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40.0)), 4), name="numbers") as producer:
        duel = tsnb.duel(arms["first"], arms["hours"], metric="acc", at_once=2)
        until(lambda: any(t.attached for t in duel.trials.values()), LIMIT_S)
        producer.stop()
    verdict = duel.wait(LIMIT_S).verdict
    # whichever is heard of first: the trial's end, or the stream's
    ends = "has no stream: Producer", "its stream was stopped"
    assert any(said in verdict.why for said in ends) and not verdict.blocks, str(verdict)


class BadOnce:
    """A loader whose first pass fails."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for at in range(10):
            if self.passes == 1 and at == 5:
                raise OSError("disk")
            yield (torch.arange(4.0) + at,)


@pytest.mark.slow
def test_the_results_and_the_table_have_the_same_seeds(arms: dict[str, Any]) -> None:
    """Or it is said why one has a seed that the other has not: it ended after the verdict."""
    duel = tsnb.duel(arms["first"], arms["same"], metric="acc", at_once=16, seeds=8).wait(LIMIT_S)
    rows = duel.results().to_dict("records")
    done = {int(row["name"].split("-")[-2]) for row in rows if row["state"] == "done"}
    late = done - {block.number for block in duel.verdict.blocks}
    said = " ".join(duel.notes)
    assert len(duel.verdict.blocks) == 6 and done
    assert {int(word.strip(",")) for word in said.split() if word.strip(",").isdigit()} == late
    assert not late or said.endswith("do not count." if len(late) > 1 else "does not count.")
    assert said in repr(duel) and duel.told()["about"].endswith(said)


@pytest.mark.slow
def test_the_arm_that_outlasts_a_failed_one_is_stopped(arms: dict[str, Any]) -> None:
    """Nothing that it does can change the seed: it has lost or won. The records say which arm and seed a trial is."""
    duel = tsnb.duel(arms["hours"], arms["fails_soon"], metric="acc", at_once=2)
    with pytest.raises(
        TimeoutError, match=r"Duel '.*' is not over after 0.01 s, and continues. So far undecided"
    ):
        duel.wait(0.01)
    duel.wait(LIMIT_S)
    verdict = duel.verdict
    assert "the candidate failed with every seed: ValueError: bad arm" in verdict.why, str(verdict)
    assert [block.outlasted for block in verdict.blocks] == ["incumbent", "incumbent"]
    assert verdict.wins == (0, 2, 0) and all(block.samples[0] > block.samples[1] for block in verdict.blocks)
    states = {name.rpartition("-")[2]: trial.state for name, trial in duel.trials.items()}
    assert states == {"incumbent": "stopped", "candidate": "failed"}
    rows = tsnb.results(duel.name)
    kept = {(row["arm"], row["block"], row["seed"]) for row in rows.to_dict("records")}
    assert kept == {(arm, b.number, b.seed) for b in verdict.blocks for arm in ("incumbent", "candidate")}
    told = json.loads(status_of("numbers"))["duels"]
    assert told == [duel.told()]
    assert duel.told()["said"] in status_of("numbers", "")


def status_of(name: str, how: str = "--json") -> str:
    """Return what `tsnb status` prints in another process."""
    words = [sys.executable, "-m", "tsnb", "status", name, *filter(None, [how])]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_results_are_those_of_the_last_duel_of_a_name(arms: dict[str, Any]) -> None:
    """A former one may have had more seeds. With all runs, each row says which duel it is of."""
    asked: dict[str, Any] = {"metric": "acc", "at_once": 6, "name": "d"}
    tsnb.duel(arms["first"], arms["second"], seeds=3, **asked).wait(LIMIT_S)
    for seeds in (2, 2):  # the second time it continues, and has all its seeds
        last = tsnb.duel(arms["first"], arms["second"], seeds=seeds, error=0.1, **asked).wait(LIMIT_S)
    rows = tsnb.results("d").to_dict("records")
    numbers = {(row["seed"], row["block"], row["arm"], row["acc"]) for row in rows}
    blocks = last.verdict.blocks
    assert numbers == {(b.seed, b.number, arm, getattr(b, arm)) for b in blocks for arm in ARMS}
    assert {row["duel"] for row in rows} == {2}
    every = tsnb.results("d", all_runs=True).to_dict("records")
    assert sorted(row["duel"] for row in every) == [1] * 6 + [2] * 4


@pytest.mark.slow
def test_arms_of_other_lengths_are_compared_as_asked(arms: dict[str, Any]) -> None:
    """At their ends, which is said, or at equal samples."""
    verdict = tsnb.duel(arms["first"], arms["long"], metric="acc", at_once=4, seeds=2).wait(LIMIT_S).verdict
    assert verdict.unequal == "The candidate took 3 times the samples of the incumbent."
    assert verdict.why == "all 2 seeds are spent" or verdict.decided


@pytest.mark.slow
def test_a_killed_arm_costs_its_seed_only(arms: dict[str, Any]) -> None:
    """Another seed takes its place."""
    duel = tsnb.duel(arms["first"], arms["slow"], metric="acc", at_once=2, seeds=7)
    until(lambda: any(t.attached and t.pid for t in duel.trials.values()), LIMIT_S)
    killed = next(trial for trial in duel.trials.values() if trial.attached)
    os.kill(killed.pid or 0, signal.SIGKILL)
    verdict = duel.wait(LIMIT_S).verdict
    assert killed.state == "crashed"
    assert 1 not in {block.number for block in verdict.blocks} and verdict.word == BETTER, str(verdict)


@pytest.mark.slow
def test_a_duel_that_was_stopped_continues(arms: dict[str, Any]) -> None:
    """Or whose time is spent: with the blocks that it has, and the seeds that it would have had."""
    first = tsnb.duel(arms["first"], arms["slow"], metric="acc", at_once=2)
    until(lambda: len(first.verdict.blocks) >= 2, LIMIT_S)
    first.stop()
    ends = {trial.life.failure for trial in first.trials.values() if trial.state == "stopped"}
    assert ends <= {"with its duel"}, ends
    seen = first.verdict.blocks
    assert first.verdict.word == OPEN and first.verdict.why == "it was stopped"
    again = tsnb.duel(arms["first"], arms["slow"], metric="acc", at_once=2, budget_s=0.01).wait(LIMIT_S)
    assert again.resumed == len(seen) and again.verdict.why == "its budget of 0.01 s is spent"
    last = tsnb.duel(arms["first"], arms["slow"], metric="acc", at_once=4).wait(LIMIT_S)
    assert last.verdict.blocks[: len(seen)] == seen and last.verdict.word == BETTER


def test_an_interrupt_of_the_waiting_says_that_the_duel_continues(
    arms: dict[str, Any], printed: Callable[[], str]
) -> None:
    """And how to end it."""
    duel = tsnb.duel(arms["first"], arms["hours"], metric="acc", at_once=2)
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        duel.wait(LIMIT_S)
    said = "the duel continues while its stream is served. To end it, call its stop()"
    until(lambda: said in printed(), LIMIT_S)
    assert not duel.over
    duel.stop()
    assert duel.over and duel.verdict.why == "it was stopped"


@pytest.mark.slow
def test_the_duel_of_a_killed_notebook_continues(
    arms: dict[str, Any], tmp_path: Path, stream: tsnb.streams.Producer
) -> None:
    """Its trials go with it; its blocks are in the ledger."""
    program = SOURCE + textwrap.dedent("""
    import time, tsnb
    duel = tsnb.duel(first, slow, metric="acc", at_once=2)
    time.sleep(600)
    """)
    path = tmp_path / "night.py"
    path.write_text(program)
    with subprocess.Popen([sys.executable, str(path)]) as process:
        ledger = project_directory() / FILE
        until(lambda: ledger.exists() and ledger.read_text().count('"block"') >= 2, LIMIT_S)
        process.kill()
    told = ledger.read_text().count('"kind": "block"')
    path.write_text(program.replace("time.sleep(600)", "print(duel.resumed, duel.wait(100).verdict.word)"))
    said = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert f"{told} better" in said.stdout, said.stdout + said.stderr


@pytest.mark.slow
def test_a_series_is_stricter_than_a_duel_alone(arms: dict[str, Any]) -> None:
    """And says its level."""
    duel = tsnb.duel(arms["first"], arms["second"], metric="acc", series="night", at_once=4).wait(LIMIT_S)
    assert duel.verdict.rules.level == pytest.approx(0.01914, rel=1e-3) and duel.series == "night"
    worse = tsnb.duel(arms["second"], arms["first"], metric="acc", series="night", at_once=4).wait(LIMIT_S)
    assert worse.verdict.word == WORSE
    assert worse.verdict.rules.level == pytest.approx(2 * 0.00677, rel=1e-2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": 1}, "tsnb draws the seeds"),
        ({"error": 0.0}, "error=0.0 is invalid"),
        ({"seeds": 1}, "seeds=1 is invalid"),
        ({"at_once": 1}, "at_once=1 is invalid"),
        ({"equal": "words"}, "equal='words' is invalid"),
        ({"min_delta": -1.0}, "min_delta=-1.0 is invalid"),
        ({"name": "x" * 60}, "at most 44 characters"),
        ({"metric": "churn"}, "whether a high or a low 'churn'"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_starts(
    given: dict[str, Any], said: str, arms: dict[str, Any]
) -> None:
    """With what to give instead."""
    with pytest.raises(ValueError, match=said):
        tsnb.duel(arms["first"], arms["second"], **{"metric": "acc", **given})
    assert not list(trials)
    assert not (project_directory() / FILE).exists()


def test_a_duel_is_short(arms: dict[str, Any]) -> None:
    """Its blocks run side by side: eight trials at once, on one pass of the stream."""
    began_s = time.monotonic()
    duel = tsnb.duel(arms["first"], arms["changed"], metric="acc", at_once=8, seeds=4).wait(LIMIT_S)
    firsts = {t.metrics.rows[0].stream_epoch for t in list(duel.trials.values())[:8] if t.metrics.rows}
    assert len(firsts) == 1, f"{time.monotonic() - began_s:.1f} s"
