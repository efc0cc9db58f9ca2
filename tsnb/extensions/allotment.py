"""What a producer's balancer has given this process, cores and torch threads, and putting it back.

The balancer moves the process from outside; threads are set here, between two steps, in the thread that iterates
(torch's number of threads is that thread's own). If the producer dies, this process puts things back itself, as soon
as it notices.
"""

from __future__ import annotations

import os

import psutil
import torch

from tsnb.balancing.affinity import move
from tsnb.balancing.told import Allotted, Threads
from tsnb.errors import RemoteProtocolError
from tsnb.machine.cores import CoreSet, cores_in, usable_cores
from tsnb.stream.protocol.extension import Extension, Remote
from tsnb.stream.this_process import this_process
from tsnb.text.foreign import pack, unpack

__all__ = ["Allotment"]


class Allotment(Extension):
    """One consumer's, over one producer after the other. Used in the thread that iterates."""

    name = "cores"

    def __init__(self) -> None:
        self._peer: Remote | None = None
        self._told: Allotted | None = (
            None  # what this process was given last, to be followed at the next step
        )
        self._own = self._now = torch.get_num_threads()
        self._fixed = this_process.threads_fixed or self._chosen()
        self._home: CoreSet = ()
        self._given: set[CoreSet] = set()

    def _chosen(self) -> bool:
        """Whether the user has chosen this number, rather than torch by default.

        Trials of ours begin with one thread, unless the user asks for more.
        """
        if this_process.name is not None:
            return False
        if "OMP_NUM_THREADS" in os.environ:
            return True
        try:
            usual = {psutil.cpu_count(), psutil.cpu_count(logical=False), usable_cores()}
        except OSError:  # no descriptor is left to look with: then they stay as they are
            return True
        return self._now not in usual

    def met(self, peer: Remote) -> None:
        """Tell a new producer on how many threads this process computes."""
        self._peer = peer
        peer.tell(self.name, pack(self.report()))

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Keep what the balancer says until the next step.

        Raises:
            RemoteProtocolError: It is something else.
        """
        try:
            self._told = unpack(Allotted, payload)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None

    def step(self) -> None:
        """Follow what this process was given, and say so; or that its user has chosen anew."""
        if self._told is None and torch.get_num_threads() == self._now:
            return  # once a batch
        told, self._told = self._told, None
        if told is not None:
            self.take(told)
        if (self.look() or told is not None) and self._peer is not None:
            self._peer.tell(self.name, pack(self.report()))

    def parted(self) -> None:
        """Give this process its own cores and threads back: no balancer gives it any."""
        self.step()
        self.put_back()

    def report(self) -> Threads:
        """Return what the producer needs to know."""
        return Threads(self._now, self._own, self._fixed)

    def look(self) -> bool:
        """Note whether the user has set the number of threads since it was last looked at: then it is the user's."""
        now = torch.get_num_threads()
        if now == self._now:
            return False
        self._own = self._now = now
        self._fixed = True
        return True

    def take(self, told: Allotted) -> None:
        """Follow what the balancer says. Called between two steps.

        Args:
            told: The cores are for `put_back` only; the producer changes them itself.

        Raises:
            RemoteProtocolError: It names something that is not a core.
        """
        self.look()
        try:
            home, cores = cores_in(told.home), cores_in(told.cores)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        self._home = home
        if cores:
            self._given.add(cores)
        else:
            self._given.clear()
        if not self._fixed:
            torch.set_num_threads(max(0, min(told.threads, _MOST)) or self._own)
            self._now = torch.get_num_threads()

    def put_back(self) -> None:
        """Be as if nothing had been given. What the user has set since stays."""
        if torch.get_num_threads() == self._now != self._own:
            torch.set_num_threads(self._own)
        self._now = torch.get_num_threads()
        if self._given and self._home:
            move(os.getpid(), self._home, self._given)
        self._given.clear()


_MOST = 1024
"""More threads than any machine has cores for: a producer that says so is broken."""
