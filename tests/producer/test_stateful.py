"""Every event in any order: Hypothesis drives the decisions, and shrinks what breaks an invariant to a few steps.

`Dispatch.check` runs after every step, consumers check the order of all they get, and at the end of every run
whoever is alive must be able to go on.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.producer.simulation import SimConsumer, Simulation
from tsnb.stream.decisions import events as ev
from tsnb.stream.protocol import messages as ms

WHO = st.integers(0, 5)


class Stream(RuleBasedStateMachine):
    """One stream: a loader that goes on, raises, or whose process dies; consumers that do whatever they like."""

    @initialize(
        window=st.sampled_from([1, 2, 4]),
        band=st.sampled_from([1, 3, 9]),
        batches=st.sampled_from([1, 2, 5, 9]),
        turn=st.sampled_from([None, None, (1, 1), (2, 1), (4, 2)]),
        kind=st.sampled_from(["plain", "plain", "rounds", "parts", "without a seed"]),
    )
    def begin(self, window: int, band: int, batches: int, turn: tuple[int, int] | None, kind: str) -> None:
        self.simulation = Simulation(
            0, rounds=kind == "rounds", parts=kind == "parts", seeded=kind != "without a seed"
        )
        self.simulation.turn = turn
        self.simulation.window, self.simulation.band, self.simulation.batches = window, band, batches
        self.simulation.start(0)
        self.join(False)

    def one(self, who: int) -> SimConsumer:
        consumers = list(self.simulation.consumers.values())
        return consumers[who % len(consumers)]

    @rule(skips=st.booleans(), turns=st.booleans())
    def join(self, skips: bool, turns: bool = True) -> None:
        if len(self.simulation.consumers) == 4:
            return
        self.simulation.join(skips, turns)

    @rule(times=st.integers(1, 3))
    def load(self, times: int) -> None:
        for _ in range(times):
            self.simulation.load()

    @rule()
    def loader_raises(self) -> None:
        wanted = self.simulation.dispatch.wanted
        if wanted is not None and wanted.run == self.simulation.loading:
            self.simulation.step(ev.LoaderRaised(wanted.run, "boom", "Traceback"))

    @rule(who=WHO, steps=st.integers(1, 25), keeps=st.booleans())
    def go_on(self, who: int, steps: int, keeps: bool) -> None:
        """Take what is there, or ask for the next epoch, while the loader goes on."""
        consumer = self.one(who)
        for _ in range(steps):
            self.simulation.load()
            consumer.receive()
            if consumer.iterating:
                consumer.step()
            else:
                consumer.ask()
            while len(consumer.held) > (3 if keeps else 0):
                consumer.release(consumer.held.pop(0))
            self.simulation.poll()

    @rule(who=WHO, which=st.integers(0, 9))
    def release(self, who: int, which: int) -> None:
        consumer = self.one(who)
        if consumer.held:
            consumer.release(consumer.held.pop(which % len(consumer.held)))
            self.simulation.poll()

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        consumer = self.one(who)
        if consumer.iterating:
            consumer.leave_early()
            self.simulation.poll()

    @rule(who=WHO, lost=st.integers(0, 2))
    def be_interrupted(self, who: int, lost: int) -> None:
        """It says where it is, and what it still has; what it had received may be lost."""
        consumer = self.one(who)
        consumer.receive()
        consumer.interrupt(lost)
        self.simulation.poll()

    @rule(who=WHO, on=st.booleans())
    def pause_or_go_on(self, who: int, on: bool) -> None:
        """Others are not held up by one that is paused, and it loses nothing."""
        keys = list(self.simulation.consumers)
        self.simulation.pause(keys[who % len(keys)], on=on)

    @rule(who=WHO, first=st.booleans())
    def be_cloned(self, who: int, first: bool) -> None:
        """Its clone is given what it is given, from this place on."""
        keys = list(self.simulation.consumers)
        if len(keys) < 4:
            self.simulation.clone(keys[who % len(keys)], first)
            self.simulation.poll()

    @rule(who=WHO)
    def end(self, who: int) -> None:
        """A trial whose loop is over is done."""
        key, one = [*self.simulation.consumers.items()][who % len(self.simulation.consumers)]
        if len(self.simulation.consumers) > 1 and not (one.iterating or one.broken or one.session.paused):
            self.simulation.end(key)

    @rule(who=WHO, later_s=st.sampled_from([0.0, 60.0]))
    def be_extended(self, who: int, later_s: float) -> None:
        """One that is done, or was killed, goes on from a place that was kept of it, and is never refused it."""
        if self.simulation.seeded and self.simulation.gone and len(self.simulation.consumers) < 4:
            self.time_passes(later_s, False)
            self.simulation.extend(self.simulation.gone[who % len(self.simulation.gone)])
            self.simulation.poll()

    @rule()
    def a_round_is_due(self) -> None:
        """Once it has begun, it is given whole to all."""
        if self.simulation.rounds:
            self.simulation.due_round()

    @rule(who=WHO)
    def rest(self, who: int) -> None:
        self.one(who).say(ms.Rest())
        self.simulation.poll()

    @rule(who=WHO, message=st.sampled_from([ms.Take(), ms.Waiting(), ms.Leave(), ms.Release(12345)]))
    def say_what_it_should_not(self, who: int, message: ms.Message) -> None:
        """A confused peer harms nobody but itself."""
        consumer = self.one(who)
        if not consumer.iterating:
            consumer.say(message)
            self.simulation.poll()

    @rule(who=WHO)
    def be_killed(self, who: int) -> None:
        consumer = self.one(who)
        if len(self.simulation.consumers) == 1:
            return  # so that there is always one to go on with; all are killed at the end
        self.simulation.kill(next(k for k, c in self.simulation.consumers.items() if c is consumer))
        self.simulation.poll()

    @rule()
    def producer_is_killed(self) -> None:
        if self.simulation.seeded:
            self.simulation.kill_producer()
            self.simulation.poll()

    @rule(mode=st.sampled_from(["together", "weights", "free"]))
    def divide(self, mode: str) -> None:
        self.simulation.balance(mode)

    @rule(contended=st.booleans())
    def cores_come_free_or_not(self, contended: bool) -> None:
        self.simulation.step(ev.Contended(contended))

    @rule(seconds=st.sampled_from([0.1, 10.0, 60.0]), stopped=st.booleans())
    def time_passes(self, seconds: float, stopped: bool) -> None:
        self.simulation.now += seconds
        self.simulation.step(ev.Tick(seconds if stopped else 0.0))

    def teardown(self) -> None:
        """Nobody waits for good, and what nobody needs is free."""
        if not hasattr(self, "simulation"):
            return
        self.simulation.settle()
        self.simulation.check_samples()
        for key, member in self.simulation.dispatch.members.items():
            held = self.simulation.consumers[key].leases()
            assert len(member.leases) == len(held) + len(member.granted), "a lease that nobody has"
        for key in list(self.simulation.consumers):
            self.simulation.kill(key)
        self.simulation.poll()
        epochs = self.simulation.dispatch.epochs
        assert epochs.kept <= epochs.band
        assert len(self.simulation.slots) + epochs.kept == 400


Stream.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStream = Stream.TestCase
