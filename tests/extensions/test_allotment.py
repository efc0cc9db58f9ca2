"""Torch's threads follow the balancer, unless somebody has chosen them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tsnb.balancing.told import Allotted, Threads
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.allotment import Allotment
from tsnb.machine.cores import text_of
from tsnb.stream.this_process import this_process

HOME = text_of(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def in_a_trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trials begin with one thread; afterwards this process has its own number again."""
    before = torch.get_num_threads()
    monkeypatch.setattr(this_process, "name", "cnn")
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_threads_are_set_and_put_back() -> None:
    """As told; 0 means as many as before."""
    allotment = Allotment()
    assert allotment.report() == Threads(1, 1, fixed=False)
    allotment.take(Allotted(3, "", HOME))
    assert torch.get_num_threads() == 3
    assert allotment.report() == Threads(3, 1, fixed=False)
    allotment.take(Allotted(0, "", HOME))
    assert torch.get_num_threads() == 1
    allotment.take(Allotted(2, "", HOME))
    allotment.put_back()
    assert torch.get_num_threads() == 1


def test_threads_that_were_asked_for_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--threads 1`: nothing the balancer says changes that, and it is told so."""
    monkeypatch.setattr(this_process, "threads_fixed", True)
    allotment = Allotment()
    assert allotment.report().fixed
    allotment.take(Allotted(3, "", HOME))
    assert torch.get_num_threads() == 1


def test_threads_that_the_code_sets_itself_stay_from_then_on() -> None:
    """Also over what was given before, and after it is put back."""
    allotment = Allotment()
    allotment.take(Allotted(3, "", HOME))
    torch.set_num_threads(2)
    assert allotment.look()
    assert not allotment.look(), "said once"
    assert allotment.report() == Threads(2, 2, fixed=True)
    allotment.take(Allotted(4, "", HOME))
    allotment.put_back()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("threads", "variable", "fixed"), [(None, False, False), (7, False, True), (None, True, True)]
)
def test_in_a_script_another_number_than_torchs_own_is_its_users(
    threads: int | None, variable: bool, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be asked; OMP_NUM_THREADS is a choice as well."""
    monkeypatch.setattr(this_process, "name", None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    assert Allotment().report().fixed is fixed


def test_a_producer_that_names_absurd_cores_is_not_followed() -> None:
    """Its message is malformed; nothing is changed."""
    allotment = Allotment()
    with pytest.raises(RemoteProtocolError, match="cores that no machine has"):
        allotment.take(Allotted(3, "0-99999999", HOME))
    assert torch.get_num_threads() == 1
