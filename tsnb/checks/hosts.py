"""Which program shows this notebook, and what works there.

A kernel's environment tells: these programs start the kernels themselves. What they set was read in their own sources
and in reports of their users. Some set the same in their terminals. A process without a kernel does not count, since it
shows no panel. A kernel that a Jupyter server started is that server's, wherever the server was started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from jupyter_core.paths import jupyter_path

from tsnb.checks.findings import Finding

__all__ = ["editor", "panel_elsewhere", "server", "service"]

EDITORS = {
    "Positron": ("POSITRON",),
    "Cursor": ("CURSOR_TRACE_ID",),
    "VS Code": ("VSCODE_PID", "VSCODE_CWD"),
}
"""Editors, and variables that each sets in the kernels that it starts. Those that build on VS Code set its too."""

SERVICES = {"Google Colab": ("COLAB_RELEASE_TAG",), "Kaggle": ("KAGGLE_KERNEL_RUN_TYPE",)}
"""Services, and variables that each sets in its machines."""

SERVERS = {
    "jupyter-lab": "JupyterLab",
    "jupyterlab": "JupyterLab",
    "jupyter-notebook": "Notebook",
    "notebook": "Notebook",
    "jupyterhub-singleuser": "JupyterHub",
}
"""Programs and modules by which a Jupyter server is started, and its name."""

FIRST_WORDS = 4
"""Where in a command line they stand: behind Python, its options and `-m`."""

JUPYTER = "JPY_SESSION_NAME"
"""What a Jupyter server sets in each kernel that it starts for a notebook."""


def editor() -> tuple[str, str] | None:
    """Return the editor that started this kernel, and the variable that tells; None: another program, or no kernel."""
    return None if JUPYTER in os.environ else _known_by(EDITORS)


def service() -> tuple[str, str] | None:
    """Return the service that this kernel runs in, and the variable that tells; None: none that is known."""
    return _known_by(SERVICES)


def server() -> str:
    """Return the name of the Jupyter server that started this kernel; empty: another program, or no kernel."""
    if not _in_kernel() or JUPYTER not in os.environ:
        return ""
    try:
        words = psutil.Process(os.getppid()).cmdline()[:FIRST_WORDS]
    except psutil.Error:
        return ""
    return next((SERVERS[name] for name in (Path(word).name for word in words) if name in SERVERS), "")


def _in_kernel() -> bool:
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _known_by(hosts: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    if not _in_kernel():
        return None
    signs = ((name, sign) for name, several in hosts.items() for sign in several)
    return next(((name, sign) for name, sign in signs if os.environ.get(sign)), None)


def panel_elsewhere() -> Finding | None:
    """Return the finding on the panel where marimo, a service or an editor shows the notebook; None elsewhere."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        says = f"marimo {_version('marimo')} shows the panel with mo.ui.anywidget(tsnb.dashboard())."
        return Finding("panel", "works", says)
    served = service()
    if served is not None:
        name, sign = served
        says = (
            f"{name} shows this notebook ({sign} is set). tsnb is tested with its versions, without its page."
        )
        return Finding(
            "panel", "limited", says, "If the panel stays empty, call tsnb.report() or run `tsnb top`."
        )
    found = editor()
    if found is None:
        return None
    name, sign = found
    says = f"{name} shows this notebook ({sign} is set). tsnb has not been tested there."
    if not any(
        (Path(folder) / "anywidget" / "index.js").is_file() for folder in jupyter_path("nbextensions")
    ):
        says += " The JavaScript files of anywidget are missing in this environment."
        return Finding("panel", "limited", says, "pip install --force-reinstall anywidget")
    advice = (
        f"If {name} asks for permission to download widget scripts, allow it. tsnb's pages describe {name}."
    )
    return Finding("panel", "limited", says, advice)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
