"""Which program shows this notebook, where that is not JupyterLab, and what the panel needs there.

A kernel's environment tells: these programs start the kernels themselves. What they set was read in their own sources
and in reports of their users. Some set the same in their terminals. A process without a kernel does not count, since it
shows no panel. A kernel that a Jupyter server started does not count either, wherever that server was started.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_path

from tsnb.checks.findings import Finding

__all__ = ["editor", "panel_elsewhere"]

EDITORS = {
    "Positron": ("POSITRON",),
    "Cursor": ("CURSOR_TRACE_ID",),
    "VS Code": ("VSCODE_PID", "VSCODE_CWD"),
}
"""Editors, and variables that each sets in the kernels that it starts. Those that build on VS Code set its too."""

JUPYTER = "JPY_SESSION_NAME"
"""What a Jupyter server sets in each kernel that it starts for a notebook."""


def editor() -> tuple[str, str] | None:
    """Return the editor that started this kernel, and the variable that tells; None: another program, or no kernel."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None or JUPYTER in os.environ:
        return None
    signs = ((name, sign) for name, several in EDITORS.items() for sign in several)
    return next(((name, sign) for name, sign in signs if os.environ.get(sign)), None)


def panel_elsewhere() -> Finding | None:
    """Return the finding on the panel where marimo or an editor shows the notebook; None elsewhere."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        says = f"marimo {_version('marimo')} shows the panel with mo.ui.anywidget(tsnb.dashboard())."
        return Finding("panel", "works", says)
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
