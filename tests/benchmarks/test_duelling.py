"""The benchmark of duels runs from end to end in its smallest form."""

from __future__ import annotations

import pytest

from benchmarks.duelling import main


@pytest.mark.slow
def test_pairs_vary_less_than_separate_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Real trainings, and no verdict of a planted gain is the wrong one."""
    main(["--quick"])
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line.startswith("null: other draws")]
    assert float(rows[0][-1]) > 1.5, said
    assert "worse" not in said.partition("1 deviation of a pair")[2]


@pytest.mark.slow
@pytest.mark.system
def test_a_duel_is_timed_beside_plain_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """On decoded photos: all of its seeds count, and each arm took what a plain run takes."""
    main(["--times", "--quick"])
    said = capsys.readouterr().out
    assert "4 runs one after another" in said and "2 seeds count" in said, said
