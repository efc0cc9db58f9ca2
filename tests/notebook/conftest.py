"""A real IPython with the extension loaded, and an end to what a test started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython import get_ipython
from IPython.testing.globalipapp import start_ipython

from tests.telemetry.watches import forget_watches
from tsnb.experiments import trials
from tsnb.experiments.cells import set_up
from tsnb.hosting import producer_kernels
from tsnb.notebook.report_cells import recorders


@pytest.fixture(scope="session")
def ipython() -> Any:
    """Return this process's one shell: another folder's tests may have started it."""
    return start_ipython() or get_ipython()  # type: ignore[no-untyped-call]


@pytest.fixture
def shell(ipython: Any) -> Iterator[Any]:
    """Return the shell with `%load_ext tsnb` done and no variables of another test."""
    ipython.reset(new_session=False)
    forget_watches()  # another folder's test may have watched a stream of the same name in this process
    ipython.run_line_magic("load_ext", "tsnb")
    yield ipython
    set_up("", {})
    trials.clear()
    for kernel in producer_kernels.values():
        kernel.stop()
    producer_kernels.clear()
    for recorder in recorders.values():
        recorder.stop()
    recorders.clear()
    forget_watches()
    ipython.run_line_magic("unload_ext", "tsnb")
