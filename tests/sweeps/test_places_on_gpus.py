"""How many trials of a sweep start at once on GPUs, by the memory that is free there. With made-up GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machine.fake_nvml import GIB, H200, FakeNvml
from tsnb.experiments.functions import plan_function
from tsnb.experiments.running.engine import ThisMachine
from tsnb.machine import placement
from tsnb.machine.gpus import Gpus
from tsnb.sweeps import starting

FULL = {**H200, "uuid": "GPU-aa", "memory": (139 * GIB, 140 * GIB)}
FREE = {**H200, "uuid": "GPU-bb", "memory": (0, 20 * GIB)}


class Asked(Exception):
    """Stops a sweep where it has asked for places."""


@pytest.mark.parametrize(
    ("devices", "option", "places"),
    [
        ([None], None, 1),
        (["cuda:1"], None, 5),
        (["cuda:0", "cuda:1"], None, 5),
        (["cpu"], None, 32),
        ([None], "cuda:1", 5),
    ],
    ids=["the first one", "another one", "two by turns", "none", "one for all"],
)
def test_the_gpus_that_a_sweep_names_count(
    devices: list[str | None], option: str | None, places: int, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `device=`, or as a parameter, as the guide on GPUs says: the first GPU counted in any case."""
    found: list[tuple[int, str]] = []

    class Machine(ThisMachine):
        def places(self, plan: Any, trials: int) -> tuple[int, str]:
            found.append(super().places(plan, trials))
            raise Asked

    monkeypatch.setattr(placement, "_this_machine", lambda: Gpus(FakeNvml(FULL, FREE)))
    monkeypatch.setattr("tsnb.experiments.running.engine.usable_cores", lambda: 16)
    monkeypatch.setattr(starting, "engine_of", lambda plan: Machine())
    monkeypatch.delenv(placement.VISIBLE, raising=False)
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def train(x): return x", made)
    given = [{"x": x, **({"device": name} if name else {})} for name in devices for x in range(40)]
    params = {f"t-{number}": one for number, one in enumerate(given)}
    plan = plan_function(made["train"], {"x": 1}, name="t-0", sweep="t", device=option)
    with pytest.raises(Asked):
        starting.start("t", plan, params, None, None, page)
    ((most, why),) = found
    assert most == places
    limited = "one per 4 GiB of the 1 GiB free" if places == 1 else "one per 4 GiB of the 2"
    assert why.startswith("two per core, on 16 cores" if places == 32 else limited)
