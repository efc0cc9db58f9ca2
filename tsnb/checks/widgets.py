"""The check of the live panel: its bundle, and the front-end packages of the environment that JupyterLab runs from."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from jupyter_core.paths import jupyter_path

from tsnb.checks.findings import Finding
from tsnb.checks.packages import installed

__all__ = ["panel"]

NEEDED = {"ipywidgets": "@jupyter-widgets/jupyterlab-manager", "anywidget": "anywidget"}
"""Packages, and the front-end parts that they bring into the JupyterLab of the environment they are installed in."""


def panel() -> Finding:
    """Look whether a notebook could show the panel."""
    spec = find_spec("tsnb.panel")
    bundle = Path(str(spec.origin)).parent / "static" / "panel.js" if spec else Path()
    if not bundle.is_file():
        advice = (
            "Install tsnb again (pip install --force-reinstall --no-deps tsnb), or in a checkout: make lab."
        )
        return Finding("panel", "fails", f"Its bundle is missing: {bundle}.", advice)
    folders = [Path(folder) for folder in jupyter_path("labextensions")]
    missing = [
        name for name, part in NEEDED.items() if not any((folder / part).is_dir() for folder in folders)
    ]
    lab = installed("jupyterlab")
    if missing:
        says = f"The front-end part of {' and '.join(missing)} is not installed here."
        return Finding("panel", "limited", says, f"pip install --force-reinstall {' '.join(missing)}")
    if lab is None:
        says = "The notebook side is here, and no JupyterLab in this environment."
        advice = "Where JupyterLab runs from another environment, that one needs: pip install ipywidgets anywidget."
        return Finding("panel", "limited", says, advice)
    return Finding("panel", "works", f"JupyterLab {lab} of this environment can show it.")
