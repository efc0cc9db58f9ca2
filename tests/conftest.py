"""What all tests share: private runtime and project directories, and a look at what is left behind.

`no_leftovers` runs around every test: whatever a test starts, ends or kills, afterwards there is no child
process, no socket of ours, no registry entry and no name in /dev/shm that was not there before. What other programs of
the machine hold does not count (`tests/leftovers.py`).
"""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

from tests import quarantine
from tests.leftovers import leftovers, new_leftovers

SETTLE_S = 60.0
"""How long what was stopped or killed may take to be gone; a leftover stays. A spawned worker of a DataLoader looks for
its parent every five seconds only."""


TOGETHER = (
    "browser/test_hostile_page",
    "browser/test_lab",
    "browser/test_log_pane",
    "browser/test_lost_kernel",
    "browser/test_marimo",
    "browser/test_panel_page",
    "browser/test_report_picture",
    "browser/test_saved_elsewhere",
    "browser/test_saved_picture",
    "cluster/test_cluster",
    "house/test_clean_install",
    "house/test_pinned_notebook",
    "house/test_public_surface.py::test_the_example",
    "house/test_site",
    "house/test_wheel",
    "notebook/test_live_output",
    "panel/test_a_day",
)
"""What begins so stays in one process of a run in parts: a fixture of it is costly, or there must be one only."""

settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("here")
"""How long an example takes says how busy the machine is, and nothing about the code. The same examples in each run:
what fails fails again. `make soak` is for luck."""

SLOW_FILE = re.compile(r"^pytestmark = (\[[^\]]*|.*)\bmark\.slow\b", re.MULTILINE)

KEPT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGHUP)

signal.signal(signal.SIGINT, signal.default_int_handler)
"""Started in a shell's background, this process ignores interrupts, and all that tests start would inherit it."""


@pytest.fixture(scope="session", autouse=True)
def project_directory() -> Iterator[Path]:
    """Keep the records of this session's trials out of the repository."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-project-", ignore_cleanup_errors=True) as path:
        os.environ["TSNB_PROJECT_DIR"] = path
        yield Path(path)


@pytest.fixture(scope="session", autouse=True)
def runtime_directory() -> Iterator[Path]:
    """Keep this session's producers apart from the user's own."""
    with tempfile.TemporaryDirectory(prefix="tsnb-test-") as path:
        os.environ["TSNB_RUNTIME_DIR"] = str(Path(path) / "run")
        yield Path(path) / "run"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests in quarantine fail without failing the run; all others fail it."""
    for item in items:
        if reason := quarantine.reason(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In parts (`pytest -n 3`) the tests that share something costly stay in one: a Ray cluster, a server, a site.

    `--dist loadgroup` does not do that: with pytest 9.2, xdist 3.8 reads no marks.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Parts(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((shared for shared in TOGETHER if shared in nodeid), nodeid)

    return Parts(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which nothing runs: some import whole frameworks, in each process of a run in parts.

    That is one that is slow as a whole where slow tests are left out, and one without a slow test where these run only.
    """
    wanted = config.getoption("markexpr")
    if wanted not in {"slow", "not slow"} or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return (bool(SLOW_FILE.search(text)) if wanted == "not slow" else "mark.slow" not in text) or None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let an interrupt that a test sends itself at a wrong moment fail this test, and not end the run in parts."""
    try:
        return (yield)
    except KeyboardInterrupt:
        if "PYTEST_XDIST_WORKER" in os.environ:  # the user's own reaches the process that directs the workers
            pytest.fail("an interrupt came outside of what expected it")
        raise


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What has been printed since the test began, for one that waits for another thread's line.

    `readouterr` reads what there is and then empties it: a line that comes in between is lost.
    """
    return lambda: cast("io.StringIO", sys.stdout).getvalue()


@pytest.fixture(scope="module", autouse=True)
def light_collections() -> None:
    """Leave what is there before a file's tests out of all collections: modules, for the most part.

    IPython's `reset` and many tests collect: among the objects of all test modules and packages that took a third of a
    second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_leftovers(runtime_directory: Path) -> Iterator[None]:
    """Fail a test that leaves a process, a socket, a registry entry or a shared-memory name behind."""
    before = leftovers()
    yield
    deadline = time.monotonic() + SETTLE_S
    while new := new_leftovers(before):
        if time.monotonic() > deadline:
            _end_streams(new)
            pytest.fail("left behind: " + "; ".join(sorted(new)))
        _sweep()
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def no_watches() -> Iterator[None]:
    """Watch no stream any more that a test began to watch: the next one may ask that nothing is watched."""
    before = _watches()
    yield
    for name, watch in _watches().items():
        if before.get(name) is not watch:
            watch.release()
            watch.close()
            sys.modules["tsnb.telemetry.watching"]._watches.pop(name, None)


def _watches() -> dict[str, Any]:
    watching = sys.modules.get("tsnb.telemetry.watching")
    return {} if watching is None else watching.watched()


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """Put back what a test, or a package that it imported, has changed of this process.

    Its signals: Ray Tune leaves a handler of its own behind (`tune.run`), which swallows the next interrupt. Its
    environment: packages of the ecosystem set variables that count when Python starts, so that no script of a later
    test could be forked. Torch's seed, which trials take. And which way metrics are good, and what was logged: later
    tests have not said so.
    """
    handlers = {number: signal.getsignal(number) for number in KEPT_SIGNALS}
    environment = dict(os.environ)
    yield
    if (torch := sys.modules.get("torch")) is not None and torch.initial_seed() < 2**32:
        torch.default_generator.seed()  # its trials and streams would take the seed
    for number, action in handlers.items():
        if signal.getsignal(number) is not action:
            signal.signal(number, action)
    for name in os.environ.keys() - environment.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    for name, value in environment.items():
        if name != "PYTEST_CURRENT_TEST" and os.environ.get(name) != value:
            os.environ[name] = value
    if scores := sys.modules.get("tsnb.records.scores"):
        scores._told.clear()
    if metrics := sys.modules.get("tsnb.telemetry.metrics"):
        metrics._latest.clear()


def _end_streams(new: set[str]) -> None:
    """Stop what a failed test still serves: else `tsnb.attach` has two to choose from hereafter."""
    producers = sys.modules.get("tsnb.serving.stream")
    for producer in list(producers._serving) if producers is not None else ():
        if f"producers {producer.name}.json" in new:
            producer.stop()


def _sweep() -> None:
    """Look as the next user would: stale entries of killed producers go, and what only a cycle still holds.

    A DataLoader that a test itself went through keeps its workers until it is collected.
    """
    from tsnb.discovery import registry

    gc.collect()
    registry.entries()
