"""The documentation site (Sphinx): `make docs` builds it into artifacts/site. The pages are those of this folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

project = "tsnb"
author = "The tsnb authors"
version = release = re.findall(r'__version__ = "(.*)"', (ROOT / "tsnb/__init__.py").read_text())[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["performance.json"]
default_role = "code"  # docstrings write `names` as the pages do
html_theme = "furo"
html_title = f"tsnb {version}"

myst_heading_anchors = 3
# the pages are read as files too: links to notebooks and sources lead somewhere in the repository, not on the site
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
add_module_names = False


def setup(app: Any) -> dict[str, bool]:
    """Read docstrings as they are written, with code between fences."""
    app.connect("autodoc-process-docstring", _fences)
    return {"parallel_read_safe": True}


def _fences(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn fenced code into what Sphinx takes for code."""
    inside, made = False, []
    for line in lines:
        if line.strip().startswith("```"):
            inside = not inside
            made += ["", "::", ""] if inside else [""]
        else:
            made.append(f"    {line}" if inside else line)
    lines[:] = made
