"""What `engine=` refuses before anything is started."""

from __future__ import annotations

import sys

import pytest

import tsnb
from tsnb.clusters import address_of, namespace
from tsnb.errors import ExtraMissing
from tsnb.streams.served import ServeOptions


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


def test_a_stream_of_a_cluster_is_not_started_again_by_itself() -> None:
    """Consumers on other machines would not wait for it: said before a kernel is started."""
    assert ServeOptions(engine="ray").engine == "ray"
    with pytest.raises(ValueError, match="Leave out"):
        ServeOptions(engine="ray", restart="on-crash")


def test_names_in_the_cluster_are_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the user's name, or by a word that is set where that differs from machine to machine."""
    monkeypatch.delenv("TSNB_RAY_NAMESPACE", raising=False)
    assert namespace().startswith("tsnb-")
    monkeypatch.setenv("TSNB_RAY_NAMESPACE", "team")
    assert namespace() == "team"
