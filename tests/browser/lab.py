"""A JupyterLab of one's own on loopback, and what a test does with it through Playwright.

HOME and all JUPYTER directories are private to the server, so that neither the user's settings nor their
running kernels meddle. `expose_app_in_browser` gives tests `window.jupyterapp`: commands are run and
notebooks awaited through it, since pixels and CSS classes change with every JupyterLab.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page

_READY = """async (name) => {
  const shell = window.jupyterapp.shell;
  for (const panel of shell.widgets('main')) {
    if (!panel.context || panel.context.path !== name) continue;
    await panel.context.ready;
    await panel.revealed;
    await panel.sessionContext.ready;
    const kernel = panel.sessionContext.session?.kernel;
    return Boolean(kernel) && kernel.status === 'idle' && panel.content.widgets.length > 0;
  }
  return false;
}"""

_SELECT = """([name, index]) => {
  for (const panel of window.jupyterapp.shell.widgets('main')) {
    if (!panel.context || panel.context.path !== name) continue;
    window.jupyterapp.shell.activateById(panel.id);
    panel.content.deselectAll();
    panel.content.activeCellIndex = index;
  }
}"""

_CELLS = """(name) => {
  for (const panel of window.jupyterapp.shell.widgets('main'))
    if (panel.context && panel.context.path === name)
      return panel.content.widgets.map((cell) => ({
        count: cell.model.executionCount ?? null,
        state: cell.model.executionState ?? null,
        outputs: cell.model.outputs ? JSON.parse(JSON.stringify(cell.model.outputs.toJSON())) : [],
      }));
}"""


class Lab:
    """A running JupyterLab server; a context manager that leaves no process behind.

    Args:
        home: An empty directory: the server's HOME.
        notebooks: The directory that it shows.
        **variables: Added to its environment.
    """

    def __init__(self, home: Path, notebooks: Path, **variables: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "lab.log"
        self._quiet(home)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._command(notebooks),
                env=self._environment(home) | variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Lab:
        try:
            self._wait_until_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server in good order; kill what is left of it and its kernels after that."""
        family = (
            psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        )
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        _, left = psutil.wait_procs(family, timeout=5)
        for child in left:
            child.kill()

    def end_kernels(self) -> None:
        """Shut every notebook's kernel down, as its menu does: the next test starts with none.

        One that starts again just now cannot be ended yet: the server answers with an error, and is asked once more.
        """
        deadline = time.monotonic() + 60
        while sessions := self._sessions():
            for session in sessions:
                url = f"{self.url}/api/sessions/{session['id']}"
                try:
                    urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30).close()
                except urllib.error.HTTPError as error:
                    if time.monotonic() > deadline:
                        raise AssertionError(f"{error}:\n{self.log.read_text()[-3000:]}") from None
                    time.sleep(0.5)

    def _sessions(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/sessions", timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found

    def save_widgets(self, save: bool) -> None:
        """Have notebooks saved with their widgets or without, which is the default of a new JupyterLab."""
        name = "@jupyter-widgets/jupyterlab-manager:plugin"
        body = json.dumps({"raw": json.dumps({"saveState": save})}).encode()
        url = f"{self.url}/lab/api/settings/{name}"
        urllib.request.urlopen(urllib.request.Request(url, body, method="PUT"), timeout=60).close()

    def _wait_until_up(self, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/api/status", timeout=1).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"JupyterLab did not come up:\n{self.log.read_text()[-3000:]}")

    def _command(self, notebooks: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.password=",
            "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={notebooks}",
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
        ]

    def _environment(self, home: Path) -> dict[str, str]:
        own = {
            "HOME": str(home),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
            "IPYTHONDIR": str(home / "ipython"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        return {k: v for k, v in os.environ.items() if k != "JPY_PARENT_PID"} | own

    def _quiet(self, home: Path) -> None:
        """No question about news over the notebook; notebooks are saved with their widgets."""
        settings = {
            "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
            "@jupyter-widgets/jupyterlab-manager/plugin": {"saveState": True},
        }
        for name, values in settings.items():
            path = home / "config" / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(values))


class Notebook:
    """A notebook open in a page.

    Args:
        page: A Playwright page.
        lab: The server.
        name: The notebook's path below the server's root.
        app: Which of the server's pages shows it: JupyterLab, "lab/tree", or Notebook 7, "notebooks".
    """

    def __init__(self, page: Page, lab: Lab, name: str, app: str = "lab/tree") -> None:
        self.page, self.lab, self.name, self.app = page, lab, name, app

    def open(self, timeout_s: float = 180.0) -> None:
        """Load the page (again) and wait for an idle kernel."""
        # networkidle never comes: the page polls; reset: no other test's notebook is open beside it
        self.page.goto(
            f"{self.lab.url}/{self.app}/{self.name}?reset", wait_until="domcontentloaded", timeout=120_000
        )
        self.page.wait_for_function("() => Boolean(window.jupyterapp)", timeout=timeout_s * 1000)
        self.page.evaluate("async () => { await window.jupyterapp.restored }")
        self._until(lambda: bool(self.page.evaluate(_READY, self.name)), timeout_s, "the kernel")

    def run(self, index: int, timeout_s: float = 120.0) -> dict[str, Any]:
        """Run one cell as the toolbar's button does, wait for its end, and return it.

        Raises:
            AssertionError: It raised, or did not end in time.
        """
        before = self.cells()[index]["count"]
        self.start(index)

        def done() -> bool:
            cell = self.cells()[index]
            return cell["count"] not in (None, before) and cell["state"] != "running"

        self._until(done, timeout_s, f"the end of cell {index}")
        cell = self.cells()[index]
        errors = [o for o in cell["outputs"] if o["output_type"] == "error"]
        assert not errors, f"cell {index} raised {errors[0]['ename']}: {errors[0]['evalue']}"
        return cell

    def start(self, index: int) -> None:
        """Select a cell and start it; returns at once."""
        self.page.evaluate(_SELECT, [self.name, index])
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")

    def cells(self) -> list[dict[str, Any]]:
        """Return execution count, state and outputs of every cell."""
        cells: list[dict[str, Any]] = self.page.evaluate(_CELLS, self.name)
        return cells

    def _until(self, done: Any, timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
            time.sleep(0.1)
