"""What a trial that is larger than the memory is told to do: in a plan, and where its process died."""

from __future__ import annotations

import importlib.util
import math
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tsnb.errors import TsnbError
from tsnb.planners.fluid import Job, LoaderCost, Resources
from tsnb.planners.strategies import Strategy, by_trial
from tsnb.planning import predicting
from tsnb.planning.places import died, oversized, way_out
from tsnb.planning.profiling import profile_name
from tsnb.planning.trial_costs import Cost, Profile, Profiled
from tsnb.planning.ways import APART, IN_TURN, LISTED, STAGGERED, TOGETHER, chosen, foretold, why
from tsnb.text.words import bytes_of

GIB = float(1 << 30)
FEED = LoaderCost(0.001, 0.001, 0.0)


def test_what_is_too_large_for_all_of_it_is_named_with_a_limit() -> None:
    """Trials that fit alone are not named: they are run one after the other. Nor is any where memory is not known."""
    assert oversized({"a": 3 * GIB, "b": 4 * GIB}, 4 * GIB) == ""
    assert oversized({"a": 3 * GIB}, math.inf) == ""
    said = oversized({"a": 3 * GIB, "huge": 9 * GIB}, 4 * GIB)
    assert said.startswith("huge (9.0 GiB) does not fit into memory, even alone: 4.0 GiB are available. ")
    assert 'tsnb.offload(model, optimizer, limit="2048MiB")' in said and "a (" not in said
    assert "a (5.0 GiB), b (6.0 GiB) do not fit" in oversized({"a": 5 * GIB, "b": 6 * GIB}, 4 * GIB)


@pytest.mark.parametrize("memory", [1.0, 700.0 * (1 << 20), 3.3 * GIB, 80 * GIB, 81.9 * GIB])
def test_the_limit_is_a_size_of_half_the_memory_at_most(memory: float) -> None:
    """As `tsnb.offload` reads it."""
    found = re.search(r'limit="(\w+)"', way_out(memory))
    assert found is not None
    limit = bytes_of(found[1])
    assert limit <= max(memory / 2, 1 << 20) and (limit > 0.45 * memory or memory < 2 << 20)


def test_a_plan_with_a_trial_that_fits_nowhere_lets_it_run_alone() -> None:
    """No way fits, and it is not said that one does; nothing runs beside it."""
    jobs = [Job("huge", 1e4, 1e-3, 1e-3, 9.0), Job("small", 1e4, 1e-3, 1e-3, 1.0)]
    alike = by_trial({Strategy(): jobs})
    ways = foretold(alike, FEED, Resources(FEED, 8, 4.0), 0.1)
    assert not any(way.fits for way in ways)
    found = chosen(ways)
    assert found.way in {IN_TURN, LISTED} and "not enough memory" not in why(ways, found, "cores")
    schedule = found.schedule
    assert (
        schedule.ends_s["huge"] <= schedule.starts_s["small"]
        or schedule.ends_s["small"] <= schedule.starts_s["huge"]
    )
    assert all(way.fits for way in foretold(alike, FEED, Resources(FEED, 8, 20.0), 0.1))
    by_turns = {way.way: way.fits for way in foretold(alike, FEED, Resources(FEED, 8, 9.5), 0.1)}
    assert by_turns == {IN_TURN: True, APART: False, STAGGERED: False, TOGETHER: False, LISTED: True}


def test_a_plan_s_text_names_what_fits_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the choice, in the table's words and in the JSON; where all fit, nothing is said of it."""
    loading = SimpleNamespace(wall_s=0.001, cpu_s=0.001, taking_s=0.0)
    told = SimpleNamespace(
        plain=loading, served=loading, cores=2.0, off=0.1, storage=None, others=0.0, frozen=None
    )
    cost = Cost(0.001, 0.001, 9 * GIB, 0.0, 20, 0.1)
    monkeypatch.setattr(predicting, "stalls", lambda *_, **__: told)
    monkeypatch.setattr(predicting, "profiled", lambda *_, **__: {Strategy(): Profile({"huge": cost})})
    found = predicting.plan({"huge": print}, loader=[], samples=100, memory="4GiB")
    assert "huge (9.5 GiB) does not fit into memory, even alone" in found.text and found.text in repr(found)
    assert {row[3] for row in found.table[1:]} == {"does not fit"}
    assert found.to_dict()["text"] == found.text
    assert "tsnb.offload" not in predicting.plan({"huge": print}, loader=[], samples=100, memory="10GiB").text
    plain, ends_s = found.to_dict(), found.to_dict()["trials"][0]["ends_s"]
    low, high = plain["trials"][0]["ends_interval_s"]
    assert 0 < low < ends_s < high and plain["basis"].startswith("Predicted from 20 real batches")
    # how near the list is to the bound, and who says so
    scipy = importlib.util.find_spec("scipy") is not None
    assert found.proven == scipy == found.to_dict()["proven"] and found.soonest_s > 0
    by = r" \(proven by scipy's solver\)" if scipy else ""
    assert re.search(rf"can finish before \S+ s{by}; the list is within \d+% of that\.", repr(found))


def test_a_trial_that_died_while_it_was_profiled_says_with_how_much() -> None:
    """The system may have killed it: what to do then is named. One that raised says its own words."""
    lost = SimpleNamespace(name=profile_name("huge"), state="crashed", logs=str)
    with pytest.raises(TsnbError, match=r"process of trial 'huge' died .* with 4\.0 GiB.*limit=\"2048MiB\""):
        Profiled(cast("Any", lost), 1, memory_bytes=4 * GIB).cost()
    assert died("its process", 0.0) == "its process died while it was measured"
