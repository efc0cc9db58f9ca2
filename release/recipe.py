"""The conda recipe of a release: what it needs comes from the sdist, and is what pip installs."""

from __future__ import annotations

from email.message import Message
from typing import Any

import yaml
from packaging.requirements import Requirement

__all__ = ["needs", "recipe"]

CONDA_NAMES = {"jupyter-client": "jupyter_client", "torch": "pytorch"}
"""Packages that have another name on conda-forge than on PyPI."""


def needs(metadata: Message) -> list[str]:
    """Return what a package needs at run time, with the names of conda-forge.

    Args:
        metadata: The PKG-INFO of its sdist.
    """
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    plain = [need for need in required if need.marker is None or "extra" not in str(need.marker)]
    return [f"python {metadata['Requires-Python']}", *map(_as_conda, plain)]


def _as_conda(need: Requirement) -> str:
    return f"{CONDA_NAMES.get(need.name, need.name)} {need.specifier}".strip()


def recipe(metadata: Message, host: list[str], digest: str) -> str:
    """Return the recipe (recipe.yaml, as rattler-build and conda-forge read it) of an sdist.

    Args:
        metadata: Its PKG-INFO.
        host: What builds it, as [build-system] of its pyproject.toml says.
        digest: Its SHA-256.
    """
    name, version = metadata["Name"], metadata["Version"]
    parts: dict[str, Any] = {
        "package": {"name": name, "version": version},
        "source": {
            "url": f"https://pypi.org/packages/source/{name[0]}/{name}/{name}-{version}.tar.gz",
            "sha256": digest,
        },
        "build": {
            "number": 0,
            "noarch": "python",
            "script": "${{ PYTHON }} -m pip install . -vv --no-deps --no-build-isolation",
            "python": {"entry_points": [f"{name} = tsnb.cli:main"]},
        },
        "requirements": {
            "host": [f"python {metadata['Requires-Python']}", "pip", *map(_as_conda, map(Requirement, host))],
            "run": [*needs(metadata), "__unix"],
        },
        "tests": [{"python": {"imports": [name], "pip_check": True}}, {"script": [f"{name} doctor"]}],
        "about": {
            "summary": metadata["Summary"],
            "license": metadata["License-Expression"],
            "license_file": "LICENSE",
        },
    }
    return str(yaml.safe_dump(parts, sort_keys=False, allow_unicode=True, width=1000))
