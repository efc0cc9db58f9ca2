"""What becomes of a stream of the cluster when its hub stands still, or a machine cannot reach it."""

from __future__ import annotations

import socket
from typing import Any

import psutil
import pytest
import ray
import torch

import tsnb
from tests.cluster.conftest import Machines, hub_of, status
from tests.cluster.takers import Taker
from tsnb.cluster import offer
from tsnb.cluster.relay_port import RelayPort
from tsnb.discovery import registry
from tsnb.errors import JoinRefused
from tsnb.stream.protocol.messages import PROTOCOL

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]


def test_stopping_a_stream_does_not_wait_for_a_hub_that_stands_still(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped, as in a debugger: the stream's name is free here afterwards."""
    producer = tsnb.serve([torch.ones(2)], name="stuck", engine="ray")
    monkeypatch.setattr(offer, "STOP_S", 0.5)
    hub = psutil.Process(status("stuck")["pid"])
    hub.suspend()
    try:
        producer.stop()
        assert not [entry for entry in registry.entries() if entry.name == "stuck"]
    finally:
        hub.kill()


def test_a_machine_behind_a_firewall_is_told_which_port_it_cannot_reach(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever attaches there gets an error with host and port, and no relay stays. Where the port opens, it works."""
    real = RelayPort.__init__
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        port = closed.getsockname()[1]

        def behind(self: RelayPort, *arguments: Any) -> None:
            real(self, *arguments)
            self.address = self.address._replace(host="127.0.0.1", port=port)

        monkeypatch.setattr(RelayPort, "__init__", behind)
        with tsnb.serve([torch.ones(2)], name="walled", engine="ray"):
            actor: Any = ray.remote(Taker)
            there = actor.options(num_cpus=0, scheduling_strategy=machines.at(2)).remote()
            try:
                with pytest.raises(
                    tsnb.errors.TsnbError, match=rf"cannot reach TCP port {port} of 127\.0\.0\.1.*firewall"
                ):
                    ray.get(there.start.remote("c", "walled"))
                assert status("walled")["relays"] == []
                with pytest.raises(JoinRefused, match="firewall"):
                    ray.get(hub_of("walled").relay_on.remote(machines.ids()[2], "/tmp", PROTOCOL))
            finally:
                ray.kill(there)
