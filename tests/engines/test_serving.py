"""What `engine=` refuses before anything is started."""

from __future__ import annotations

import socket
import sys

import pytest
import torch

import tsnb
from tsnb.clusters import address_of, namespace
from tsnb.engines import membership
from tsnb.errors import ExtraMissing, TsnbError
from tsnb.producer import serve as serve_here
from tsnb.streams.served import ServeOptions
from tsnb.telemetry import observer

pytestmark = pytest.mark.timeout(
    120, func_only=True
)  # the cluster, which others have used, may end behind the last


def test_an_engine_is_this_machine_or_a_cluster() -> None:
    """Whatever else is said is refused, with the words that would do."""
    assert address_of("local") is None
    assert address_of("ray") == ""
    assert address_of("ray://head:6379") == "head:6379"
    for word in ("dask", "rays", "", "Ray"):
        with pytest.raises(ValueError, match='say "local", "ray" or'):
            address_of(word)
        with pytest.raises(ValueError, match="say"):
            tsnb.serve([1], name="x", engine=word)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and nothing is served."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[ray\]'"):
        tsnb.serve([1], name="x", engine="ray")
    assert not tsnb.producers()


def test_an_address_where_nobody_is_is_told_at_once() -> None:
    """Ray itself would try for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", "head"):
            with pytest.raises(TsnbError, match=rf"no Ray cluster at '{address}': .*`ray start --head`"):
                membership._require_answer(address)


def test_a_stream_of_a_cluster_is_not_started_again_by_itself() -> None:
    """Consumers on other machines would not wait for it: said before a kernel is started."""
    assert ServeOptions(engine="ray").engine == "ray"
    with pytest.raises(ValueError, match="Leave out"):
        ServeOptions(engine="ray", restart="on-crash")


def test_a_stream_of_a_cluster_keeps_all_in_step() -> None:
    """Other modes and moved cores are refused before anything is started, and by its part on any machine."""
    for chosen in ({"mode": "free"}, {"mode": "weights", "weights": {"a": 2.0}}, {"rebalance": True}):
        with pytest.raises(ValueError, match="on one machine only"):
            ServeOptions(engine="ray", **chosen)
        with pytest.raises(ValueError, match="on one machine only"):
            tsnb.serve([1], name="x", engine="ray", **chosen)
    with serve_here([torch.ones(2)], name="part", in_step=True) as producer:
        with pytest.raises(ValueError, match="on one machine only"):
            producer.balance("free")
        with pytest.raises(ValueError, match="on one machine only"):
            producer.rebalance()
        with pytest.raises(TsnbError, match="on one machine only"):
            observer.balance("part", "free")
        with pytest.raises(TsnbError, match="on one machine only"):
            observer.rebalance("part", on=True)
        assert (observer.balance("part", "pace").mode, producer.status().rebalancing) == ("pace", "off")
        producer.rebalance(on=False)


def test_names_in_the_cluster_are_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the user's name, or by a word that is set where that differs from machine to machine."""
    monkeypatch.delenv("TSNB_RAY_NAMESPACE", raising=False)
    assert namespace().startswith("tsnb-")
    monkeypatch.setenv("TSNB_RAY_NAMESPACE", "team")
    assert namespace() == "team"
