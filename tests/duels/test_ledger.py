"""The ledger of duels: what survives, what continues, and what a series has spent."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tsnb.duels.data import Data
from tsnb.duels.evidence import level_in_series
from tsnb.duels.ledger import FILE, Ledger, seed_of
from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import judge
from tsnb.errors import TsnbError
from tsnb.private.directories import make_private

BLOCK = Block(1, 7, 0.5, math.nan, (100, 90), (10, 9), ("", "ValueError: x"), "weights", "incumbent")
RULES = Rules("acc", "max")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(make_private(tmp_path / ".tsnb", below=tmp_path) / FILE)


def left_by_another(ledger: Ledger, lines: str) -> None:
    """Have another process work on the ledger, and kill it."""
    program = f"""
    import math, os, signal
    from pathlib import Path
    from tsnb.duels.ledger import Ledger
    from tsnb.duels.seeds import Block, Rules
    ledger = Ledger(Path({str(ledger.path)!r}))
    BLOCK = Block(1, 7, 0.5, math.nan, (100, 90), (10, 9), ("", "ValueError: x"), "weights", "incumbent")
    RULES = Rules("acc", "max")
    {lines}
    os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)


def test_a_killed_duel_continues_with_its_seeds_level_and_blocks(ledger: Ledger) -> None:
    """The same code under the same name; once it has a verdict, a new one begins."""
    left_by_another(
        ledger, "asked, _ = ledger.begin('d', 'code', RULES, root=3); ledger.add(asked.duel, BLOCK)"
    )
    asked, blocks = ledger.begin("d", "code", RULES)
    assert (asked.root == 3 and blocks == [BLOCK]) or math.isnan(blocks[0].candidate)
    assert (blocks[0].seed, blocks[0].raised, blocks[0].paired) == (7, ("", "ValueError: x"), "weights")
    verdict = judge([Block(k, k, 0.5, 0.6) for k in range(1, 9)], Rules("acc", "max"))
    ledger.end(asked.duel, verdict)
    again, none = ledger.begin("d", "code", RULES)
    assert again.duel != asked.duel and not none


def test_other_code_or_another_live_process_is_another_duel(ledger: Ledger) -> None:
    """Nor does what has no hash continue."""
    first, _ = ledger.begin("d", "code", RULES)
    ledger.add(first.duel, BLOCK)
    assert ledger.begin("d", "code", RULES)[0].duel != first.duel  # this process lives
    left_by_another(ledger, "ledger.begin('e', 'code', RULES)")
    assert ledger.begin("e", "other", RULES)[0].root != 0
    kinds = [json.loads(line)["kind"] for line in ledger.path.read_text().splitlines()]
    assert kinds == ["asked", "block", "asked", "asked", "asked"]


def test_one_that_was_stopped_here_continues_here(ledger: Ledger) -> None:
    """Undecided: with the seeds that it has, and as many as are asked now. Not where an arm fails with every seed."""
    first, _ = ledger.begin("d", "code", RULES)
    ledger.add(first.duel, BLOCK)
    ledger.end(first.duel, judge([BLOCK], Rules("acc", "max"), ended="it was stopped"))
    again, blocks = ledger.begin("d", "code", RULES)
    assert again.duel == first.duel and len(blocks) == 1
    ledger.end(first.duel, judge([BLOCK], Rules("acc", "max", most=1)))
    more = ledger.begin("d", "code", Rules("acc", "max", most=60))[0]
    assert (more.duel, more.root, more.rules) == (first.duel, first.root, Rules("acc", "max", most=60))
    broken = [Block(k, k, 0.5, math.nan, raised=("", "ValueError: x")) for k in (1, 2)]
    ledger.end(first.duel, judge(broken, RULES))
    assert ledger.begin("d", "code", RULES)[0].duel != first.duel


def test_a_duel_of_a_series_goes_on_with_its_level(ledger: Ledger) -> None:
    """A larger number of seeds is no new duel: it spends no more of the error."""
    first, _ = ledger.begin("d", "code", Rules("acc", "max", most=5), "night")
    ledger.end(first.duel, judge([BLOCK], replace(first.rules, most=1)))
    again, _ = ledger.begin("d", "code", Rules("acc", "max", most=9), "night")
    assert (again.number, again.rules.level, again.rules.most) == (1, first.rules.level, 9)
    assert len(ledger.series("night")) == 1


def test_a_duel_continues_only_on_the_data_that_it_began_on(ledger: Ledger) -> None:
    """As far as both are known; back on the first data it continues there."""
    began = Data("a", 900, 64, "x")
    first, _ = ledger.begin("d", "code", RULES, data=began)
    ledger.add(first.duel, BLOCK)
    ledger.end(first.duel, judge([BLOCK], RULES, ended="it was stopped"))
    changed = (Data("b"), Data("a", 300), Data("a", 900, 32), Data("a", 900, 64, "y"))
    for now in changed:
        other, blocks = ledger.begin("d", "code", RULES, data=now)
        assert other.duel != first.duel and not blocks, now
        ledger.end(other.duel, judge([], RULES, ended="it was stopped"))
    other, _ = ledger.begin("d", "code", RULES, data=changed[-1])
    assert not ledger.other_data(other), "the one before it has no seeds"
    for now in (began, Data("a", 900, 64, "x", "z")):
        again, blocks = ledger.begin("d", "code", RULES, data=now)
        assert again.duel == first.duel and len(blocks) == 1, now
        ledger.end(again.duel, judge([BLOCK], RULES, ended="it was stopped"))
    assert again.data == Data("a", 900, 64, "x", "z")
    assert [told["seeds"] for told in ledger.told()] == [1], "the one that was continued last"
    assert began.change(Data("a")) == began.change(Data()) == Data("a").change(began) == ""
    assert "on the stream 'a'" in Data("a").change(Data("b"))


def test_a_line_that_was_cut_off_is_passed_over(ledger: Ledger) -> None:
    """By a kill or a full disk in the middle of it; the next line stands alone."""
    first, _ = ledger.begin("d", "code", RULES)
    with ledger.path.open("a") as file:
        file.write('{"kind": "block", "duel": "' + first.duel)
    ledger.add(first.duel, BLOCK)
    ledger.end(first.duel, judge([BLOCK], Rules("acc", "max"), ended="it was stopped"))
    assert len(ledger.begin("d", "code", RULES)[1]) == 1


def test_a_series_counts_its_duels_and_keeps(ledger: Ledger) -> None:
    """Those that never ended too: their part of the error is spent."""
    better = judge([Block(k, k, 0.5, 0.6) for k in range(1, 9)], Rules("acc", "max"))
    levels = []
    for number in range(1, 5):
        asked, _ = ledger.begin(f"d{number}", "", Rules("acc", "max", 0.1), "night")
        levels.append(asked.rules.level)
        if number in (1, 3):
            ledger.end(asked.duel, better)
    expected = [level_in_series(0.1, number, kept) for number, kept in ((1, 0), (2, 1), (3, 1), (4, 2))]
    assert levels == expected
    assert [verdict for _, verdict in ledger.series("night")] == ["better", "", "better", ""]
    assert ledger.begin("alone", "", Rules("acc", "max", 0.1))[0].rules.level == 0.1


def test_seeds_are_drawn_from_the_root() -> None:
    """Others for each root and block; the system's random numbers give the root."""
    seeds = [seed_of(root, number) for root in range(20) for number in range(1, 41)]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)


def test_a_file_that_is_not_ours_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A link to another file is not followed, and what somebody sent breaks nothing."""
    ledger.path.write_text('nonsense\n{"kind": "asked", "duel": 3}\n[[[[\n')
    ledger.path.chmod(0o600)
    assert ledger.begin("d", "code", RULES)[1] == []
    os.rename(ledger.path, tmp_path / "real")
    ledger.path.symlink_to(tmp_path / "real")
    with pytest.raises(TsnbError, match="ledger of duels"):
        ledger.begin("d", "code", RULES)


def test_status_shows_the_duels_of_the_project_while_no_stream_runs(ledger: Ledger, tmp_path: Path) -> None:
    """A duel's script ends with its stream: the next morning the command is where to look."""
    run = tmp_path / "run"
    run.mkdir(0o700)
    environment = {**os.environ, "TSNB_RUNTIME_DIR": str(run), "TSNB_PROJECT_DIR": str(tmp_path)}

    def status(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tsnb", "status", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert status().returncode == 1, "neither a stream nor a duel"
    asked, _ = ledger.begin("d", "code", RULES)
    verdict = judge([Block(k, k, 0.5, 0.6) for k in range(1, 4)], RULES, ended="it was stopped", name="d")
    for block in verdict.blocks:
        ledger.add(asked.duel, block)
    ledger.end(asked.duel, verdict)
    shown = status()
    assert shown.returncode == 0 and shown.stdout.startswith(
        "No stream is running. To start one, run: tsnb serve"
    )
    assert f"Duel d: {verdict.said}\n{verdict.needs}" in shown.stdout
    told = json.loads(status("--json").stdout)
    assert told == {"name": None, "consumers": [], "duels": [verdict.told("d", over=True)]}
    assert status("other").returncode == 1, "a stream was named"


def test_every_process_is_told_of_the_duels_of_its_project(ledger: Ledger) -> None:
    """Those that run, and those that are over; with the numbers that their own process shows."""
    asked, _ = ledger.begin("d", "code", RULES)
    pairs = [Block(k, k, 0.5, 0.6) for k in range(1, 4)]
    for block in pairs:
        ledger.add(asked.duel, block)
    assert ledger.told() == [judge(pairs, RULES, name="d").told("d", over=False)]
    verdict = judge(pairs, RULES, ended="it was stopped", name="d")
    ledger.end(asked.duel, verdict)
    assert ledger.told() == [verdict.told("d", over=True)]
    left_by_another(ledger, "asked, _ = ledger.begin('e', 'code', RULES); ledger.add(asked.duel, BLOCK)")
    here = ledger.told()[-1]
    assert (here["duel"], here["state"], here["why"]) == ("e", "undecided", "its process has ended")
    assert here["blocks"][0]["favours"] == "worse", "the incumbent lasted longer"
