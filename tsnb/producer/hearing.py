"""What a message means to the producer, once its connection has said who it is. Used by the serving thread only."""

from __future__ import annotations

import time

from tsnb.errors import RemoteProtocolError
from tsnb.producer import events as ev
from tsnb.producer.core import Core
from tsnb.producer.guard import Guard
from tsnb.producer.session import Session
from tsnb.telemetry.readings import EndReading
from tsnb.wire import messages as ms

__all__ = ["hear_consumer", "hear_observer"]

_EVENTS: dict[type[object], type[ev.Took | ev.WaitingForBatch | ev.LeftEpoch | ev.Rested]] = {
    ms.Take: ev.Took,
    ms.Waiting: ev.WaitingForBatch,
    ms.Leave: ev.LeftEpoch,
    ms.Rest: ev.Rested,
}


def hear_observer(core: Core, guard: Guard, session: Session, message: ms.Message) -> None:
    """Do what an observer asks for.

    Raises:
        RemoteProtocolError: Observers ask for no such thing.
    """
    if isinstance(message, ms.StopProducer):
        core.successor_s = message.reconnect_s
        core.stop_asked.set()
    elif isinstance(message, (ms.Balance, ms.Rebalance)):
        try:
            if isinstance(message, ms.Balance):
                core.balance(*guard.divided(message))
            else:
                core.rebalance(message.on)
        except ValueError as error:
            with core.lock:
                session.send(ms.Refused("in-step", str(error).removesuffix(".")))
    elif isinstance(message, ms.StopConsumer):
        core.ask_to_end(message.name)
    elif isinstance(message, ms.TrialEnded):
        core.note_end(guard.ended(message))
    else:
        raise RemoteProtocolError(f"{type(message).__name__} from an observer")


def hear_consumer(core: Core, session: Session, message: ms.Message) -> None:
    """Turn what a consumer says into an event, or note it.

    Raises:
        RemoteProtocolError: Consumers say no such thing.
    """
    kind = _EVENTS.get(type(message))
    if kind is not None:
        core.step(kind(session.key))
    elif isinstance(message, ms.Release):
        core.step(ev.Released(session.key, message.lease))
    elif isinstance(message, ms.Ask) and session.role == "leaving":
        pass  # of a thread that had not heard of the close in another
    elif isinstance(message, ms.Ask):
        held = frozenset(message.held)
        with core.lock:
            session.forget_layouts()
        core.step(ev.Asked(session.key, *message[:-1], held))
    elif isinstance(message, ms.Metrics):
        with core.lock:
            session.log(message.numbers)
    elif isinstance(message, ms.Threads):
        with core.lock:
            session.threads = message
    elif isinstance(message, ms.DeviceRefused):
        core.leave_device(session.key)
    elif isinstance(message, ms.Bye):
        # its name is free from now on; its slots come back as it lets go of them, or with the connection
        session.role = "leaving"
        pid, logged = session.channel.peer.pid, dict(session.metrics)
        core.note_end(EndReading(session.name, "left", time.time(), pid, metrics=logged))
        core.step(ev.Detached(session.key))
    else:
        raise RemoteProtocolError(f"{type(message).__name__} from a consumer")
