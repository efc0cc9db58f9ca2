"""What notebooks tell a stream of trials: fit to be shown, or refused; and who is told of it when."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tsnb
from tests.hostile import JUNK, changed_somewhere
from tests.promises import HANG_S, promptly
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.ends import MAX_ENDS, MAX_PENDING, TrialEnds
from tsnb.extensions.metrics import KeptNumbers
from tsnb.stream.decisions.timekeeping import TimeTaken
from tsnb.telemetry.trial_readings import (
    BesideReading,
    EndReading,
    OutcomeReading,
    OutcomeTold,
    PlannedReading,
    PlanReading,
    StreamsBeside,
    TrialEnded,
    TrialsPending,
    TrialsPlanned,
)
from tsnb.text.foreign import pack


def stream(*peers: Any) -> tuple[TrialEnds, Any]:
    dispatch = SimpleNamespace(members={}, drift=SimpleNamespace(blocked_s=lambda _now: 0.0))
    core: Any = SimpleNamespace(
        lock=threading.Condition(), news=0, sessions=dict(enumerate(peers)), dispatch=dispatch
    )
    return TrialEnds(core), core


def leave(ends: TrialEnds, core: Any, name: str, **fields: Any) -> None:
    """Let a consumer leave that had begun 2 epochs and taken 15 batches after those of its parent."""
    peer = observer(role="consumer", name=name, key=99, before=(1, 10), **fields)
    core.sessions[99] = peer
    share = SimpleNamespace(batches=15, passed=64, left_out=4)
    core.dispatch.members[99] = SimpleNamespace(
        begun=2, share=share, read=lambda _now, _blocked_s: TimeTaken(3.0, 2.0, 1.0, 0.5, 0.25, 0.0, 9.0)
    )
    ends.left(peer)
    del core.sessions[99], core.dispatch.members[99]


def observer(**fields: Any) -> Any:
    return SimpleNamespace(**{"role": "observer", "name": "notebook", "pid": 7, "notes": {}} | fields)


TOLD: list[msgspec.Struct] = [
    TrialEnded(EndReading("cnn", "failed", 1.79e9, 71, "ValueError: too bad", {"loss": math.nan}, 1.25, 1.0)),
    TrialsPending({"cnn": "queued: it needs 2.1 GiB, and 1.2 GiB are free (this machine)"}, 3),
    TrialsPlanned(PlanReading((PlannedReading("cnn", 1.5, 2.5, 0.5),), 4, 60.0, 5.5)),
    StreamsBeside((BesideReading("cars", 1.5, 1.79e9), BesideReading("birds", 0.25))),
    OutcomeTold(OutcomeReading(("churn",), {"churn": "min"}, "No trial waited.", "Duel d: better.")),
]


def test_what_a_notebook_tells_is_in_the_next_reading() -> None:
    """All of it, a loss that is nan as well; and it goes with its connection, but for ends."""
    mine = observer()
    ends, core = stream(mine)
    for told in TOLD:
        ends.hear(mine, pack(told))
    reading = ends.reading(0)
    assert [(e.name, e.state, e.time_s, e.error) for e in reading["ends"]] == [
        ("cnn", "failed", 1.79e9, "ValueError: too bad")
    ]
    assert math.isnan(reading["ends"][0].metrics["loss"])
    assert reading["pending"] == TOLD[1].states  # type: ignore[attr-defined]
    assert reading["to_come"] == 3
    assert reading["plans"] == (TOLD[2].plan,)  # type: ignore[attr-defined]
    assert reading["beside"] == TOLD[3].streams  # type: ignore[attr-defined]
    assert reading["outcome"] == TOLD[4].outcome  # type: ignore[attr-defined]
    ends.hear(mine, pack(TrialsPlanned(None)))
    assert ends.reading(0)["plans"] == ()
    core.sessions.clear()
    assert ends.reading(0)["pending"] == {} and len(ends.reading(0)["ends"]) == 1


def test_several_notebooks_compare_their_trials() -> None:
    """Each knows its own sweeps; what limited the stream says who has followed it for longest."""
    first, second = observer(), observer()
    ends, _ = stream(first, second)
    assert ends.reading(0)["outcome"] is None
    ends.hear(second, pack(OutcomeTold(OutcomeReading(("loss",), {"churn": "max"}, "cnn set the pace."))))
    ends.hear(first, pack(OutcomeTold(OutcomeReading(("churn",), {"churn": "min", "x": "up"}))))
    told = ends.reading(0)["outcome"]
    assert told == OutcomeReading(("churn", "loss"), {"churn": "min"}, "cnn set the pace.")
    ends.hear(first, pack(OutcomeTold(OutcomeReading(duels="Duel d:\nbetter."))))
    assert ends.reading(0)["outcome"] == OutcomeReading(
        ("loss",), {"churn": "max"}, "cnn set the pace.", "Duel d: better."
    )
    ends.hear(first, pack(OutcomeTold(OutcomeReading(limited="No trial waited."))))
    assert ends.reading(0)["outcome"].limited == "No trial waited."
    ends.hear(second, pack(OutcomeTold(OutcomeReading())))
    assert ends.reading(0)["outcome"] == OutcomeReading(limited="No trial waited.")


def test_an_observer_is_told_of_each_end_once_and_a_new_one_of_the_last() -> None:
    """Other news of the stream count on in between."""
    ends, core = stream()
    for number in range(MAX_ENDS + 8):
        leave(ends, core, f"trial-{number}")
        core.news += number % 2
    known = core.news
    assert len(ends.reading(0)["ends"]) == MAX_ENDS
    assert ends.reading(known)["ends"] == ()
    leave(ends, core, "last", notes={"metrics": KeptNumbers({"loss": 0.5})})
    (last,) = ends.reading(known)["ends"]
    assert (last.name, last.state, last.metrics) == ("last", "left", {"loss": 0.5})
    assert (last.epochs, last.batches) == (3, 25)


def test_more_than_readings_have_room_for_is_cut() -> None:
    """Names that are too many, and lines that are too long."""
    mine = observer()
    ends, _ = stream(mine)
    ends.hear(mine, pack(TrialsPending({f"t{n}": "x" * 999 for n in range(199)}, 1 << 40)))
    reading = ends.reading(0)
    assert len(reading["pending"]) == MAX_PENDING and reading["to_come"] == 10_000
    assert {len(said) for said in reading["pending"].values()} == {300}
    ends.hear(mine, pack(TrialEnded(EndReading("cnn", "failed", 1.79e9, 71, "x" * 999))))
    assert len(ends.reading(0)["ends"][0].error) == 600, "what to do stands at its end"


@pytest.mark.parametrize(
    "told",
    [
        TrialEnded(EndReading("no name", "failed", 1.0)),
        TrialEnded(EndReading("a", "asleep", 1.0)),
        TrialEnded(EndReading("a", "failed", math.nan)),
        TrialEnded(EndReading("a", "failed", math.inf)),
        TrialsPending({"no name": "queued"}),
        TrialsPlanned(PlanReading((PlannedReading("no name", 1.0, 2.0, 3.0),))),
        StreamsBeside((BesideReading("no name", 1.0),)),
    ],
)
def test_what_ours_would_not_tell_is_refused(told: msgspec.Struct) -> None:
    """Its connection ends; nothing of it is kept."""
    mine = observer()
    ends, core = stream(mine)
    with pytest.raises(RemoteProtocolError):
        ends.hear(mine, pack(told))
    assert core.news == 0 and not mine.notes
    with pytest.raises(RemoteProtocolError, match="consumer"):
        ends.hear(observer(role="consumer"), pack(TOLD[1]))


@given(st.sampled_from(TOLD), st.data())
def test_any_part_replaced_by_anything_is_refused_or_fit_to_be_shown(
    told: msgspec.Struct, data: st.DataObject
) -> None:
    """Its texts are printable lines then."""
    mine = observer()
    ends, _ = stream(mine)
    changed = changed_somewhere(msgspec.to_builtins(told), data, JUNK | st.just("\x1b]0;a\x07b\r\nc\u202e"))
    try:
        packed = msgspec.msgpack.encode(changed)
    except (OverflowError, UnicodeError, TypeError):
        return
    try:
        ends.hear(mine, packed)
    except RemoteProtocolError:
        return
    assert repr(ends.reading(0)).isprintable()
    for said in ends.reading(0)["pending"].items():
        assert all(text.isprintable() for text in said)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused_by_one_error(packed: bytes) -> None:
    """Whatever arrives, the serving thread lives."""
    ends, _ = stream()
    with pytest.raises(RemoteProtocolError):
        ends.hear(observer(), packed)


@pytest.mark.slow
@pytest.mark.system
def test_of_a_trial_that_was_killed_its_stream_says_what_it_had_taken() -> None:
    """Who looks later sees the speed and the shares that others saw."""
    code = "import tsnb,time\nfor _ in range(999):\n  for x in tsnb.attach('mine', stream='killing'): time.sleep(0.01)"
    with tsnb.serve([1, 2, 3, 4], name="killing"), subprocess.Popen([sys.executable, "-c", code]) as process:
        promptly(
            lambda: any(c.batches > 20 for c in tsnb.streams.status("killing").consumers), promised_s=HANG_S
        )
        process.kill()
        process.wait()
        promptly(lambda: not tsnb.streams.status("killing").consumers)
        (left,) = tsnb.streams.status("killing").ends
        assert (left.name, left.state) == ("mine", "left")
        assert left.batches > 20 and left.computing_s > 0.1
