"""A failing test fails the run, but for the few that stand in `tests/quarantine.py` for a while."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quarantine import LONGEST_DAYS, QUARANTINE, Quarantined, reason

ROOT = Path(__file__).parents[2]
TODAY = dt.date(2026, 11, 22)
ENTRY = Quarantined("tests/a/test_b.py::test_c", "Ada", TODAY, TODAY + dt.timedelta(days=7), "one in 50")


def test_no_entry_has_outlived_its_time() -> None:
    """An entry past its last day fails the run, and so does one without an owner, a reason or an end."""
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    assert [fault for entry in QUARANTINE if (fault := entry.fault(today))] == []


def test_every_entry_names_a_test_that_exists() -> None:
    """A test that was renamed or removed is not excused by its old name."""
    for entry in QUARANTINE:
        path, _, name = entry.test.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text()


@pytest.mark.parametrize(
    ("entry", "today", "word"),
    [
        (ENTRY, TODAY, None),
        (ENTRY, ENTRY.until, None),
        (ENTRY, ENTRY.until + dt.timedelta(days=1), "ended"),
        (replace(ENTRY, until=TODAY + dt.timedelta(days=LONGEST_DAYS + 1)), TODAY, "longer"),
        (replace(ENTRY, owner=""), TODAY, "owner"),
        (replace(ENTRY, why=""), TODAY, "reason"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(entry: Quarantined, today: dt.date, word: str | None) -> None:
    """The day after its last one, too long a time, no owner and no reason each have their sentence."""
    fault = entry.fault(today)
    assert (word in fault) if word and fault else fault is word


def test_parameters_share_the_entry_and_other_tests_do_not() -> None:
    """The name alone counts."""
    assert "Ada" in (reason(ENTRY.test + "[spawn-1]", (ENTRY,)) or "")
    assert reason(ENTRY.test + "_too", (ENTRY,)) is None


@pytest.mark.slow
def test_a_test_in_quarantine_may_fail_and_any_other_fails_the_run(tmp_path: Path) -> None:
    """What the conftest does with the list, in a run of its own."""
    (tmp_path / "test_it.py").write_text(
        "def test_known():\n    assert False\n\ndef test_other():\n    assert {}\n"
    )
    (tmp_path / "conftest.py").write_text(
        "import datetime\nfrom tests import quarantine\nfrom tests.conftest import pytest_collection_modifyitems\n"
        "day = datetime.date.max\n"
        "entry = quarantine.Quarantined('test_it.py::test_known', 'Ada', day, day, 'x')\n"
        "quarantine.reason.__defaults__ = ((entry,),)\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")

    def run(chosen: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-rx", "-k", chosen]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout

    status, printed = run("known")
    assert (status, "Ada, until" in printed) == (0, True)
    assert run("other")[0] == 1
