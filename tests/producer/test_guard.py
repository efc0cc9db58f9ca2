"""What a connection may send: a trial that reports all it was given is never shown out, one that floods is."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tsnb.errors import RemoteProtocolError
from tsnb.extensions.rounds import Rounds
from tsnb.stream.consumer.losses import MOST, in_payloads
from tsnb.stream.producer.guard import BURST, EARNED_A_SECOND, MAX_POSITION, Guard
from tsnb.stream.producer.session import MAX_DRAWN
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import encode
from tsnb.text.foreign import pack

SENT_A_BATCH = 3
"""Packets that a producer sends for a batch and its samples, at least."""


class Connection:
    """A session as the guard sees it, whose turns cost no time but what the test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        self.packets: deque[bytes] = deque()
        session: Any = SimpleNamespace(
            key=1,
            outbox=SimpleNamespace(posted=0, limit_bytes=0),
            channel=SimpleNamespace(receive=lambda: self.packets.popleft() if self.packets else None),
        )
        self.admission = SimpleNamespace(next_epoch=1)
        dispatch = SimpleNamespace(members={}, admission=self.admission)
        core: Any = SimpleNamespace(dispatch=dispatch, extensions={"rounds": Rounds})
        self.session = session
        self.guard = Guard(core, "token")
        self.guard.enter(session)

    def send(self, *messages: ms.Message) -> int:
        """Send messages and have them heard; return how many were."""
        self.packets += [encode(message) for message in messages]
        heard = 0
        while self.packets:
            heard += sum(1 for _ in self.guard.messages(self.session))
        return heard


def losses_of(samples: int) -> list[ms.Extended]:
    drawn = np.arange(samples).astype("<u4").tobytes()
    return [ms.Extended("rounds", pack(p)) for p in in_payloads(drawn, np.ones(samples, np.float32))]


def test_a_trial_that_reports_every_batch_of_the_largest_is_never_shown_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand batches, as fast as they come: what tells their losses costs less than the batch earned."""
    connection = Connection(monkeypatch)
    told = losses_of(MAX_DRAWN)
    assert len(told) == 4
    for _ in range(1000):
        connection.session.outbox.posted += SENT_A_BATCH
        assert connection.send(ms.Ask(1), *told) == 5


def test_nobody_asks_for_an_epoch_after_which_none_could_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last that may be asked for is followed by as many again, one by one."""
    connection = Connection(monkeypatch)
    with pytest.raises(RemoteProtocolError, match="no stream reaches"):
        connection.send(ms.Ask(1, MAX_POSITION + 1))
    assert connection.send(ms.Ask(1, MAX_POSITION)) == 1
    connection.admission.next_epoch = MAX_POSITION + 1
    assert connection.send(ms.Ask(2, MAX_POSITION + 1)) == 1
    with pytest.raises(RemoteProtocolError, match="no stream reaches"):
        connection.send(ms.Ask(3, MAX_POSITION + 2))


def test_losses_that_nobody_asked_for_are_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is sent nothing is shown out after its first allowance, and time earns no more than it says."""
    (told,) = losses_of(MOST)
    heard = [0, 0]

    def flood(number: int, packets: int, every_s: float) -> None:
        connection = Connection(monkeypatch)
        for _ in range(packets):
            connection.now_s += every_s
            heard[number] += connection.send(told)

    with pytest.raises(RemoteProtocolError, match="far more packets"):
        flood(0, 2 * BURST, 0.0)
    with pytest.raises(RemoteProtocolError, match="far more packets"):
        flood(1, 40 * BURST, 1 / EARNED_A_SECOND)
    assert BURST / 3 < heard[0] < heard[1]
