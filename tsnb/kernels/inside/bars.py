"""Progress bars of a background kernel are text: a widget of its own would open where nobody sees it.

`tqdm.auto` takes `tqdm.notebook` wherever it runs in a kernel. So that module is another one here: it has the names
of the real one, and behind them the bars for terminals.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["text_bars"]

_NOTEBOOK = "tqdm.notebook"
_CHOOSERS = ("tqdm.auto", "tqdm.autonotebook")
"""They look once, when they are imported."""


class _TextBars(MetaPathFinder, Loader):
    """Finds `tqdm.notebook`, and fills it from `tqdm.std`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for that one module. Called by the import system."""
        return ModuleSpec(fullname, self) if fullname == _NOTEBOOK else None

    def exec_module(self, module: ModuleType) -> None:
        """Give it what the real one has. Called by the import system, only where tqdm is installed."""
        std = importlib.import_module("tqdm.std")
        words = {"tqdm": std.tqdm, "trange": std.trange, "tqdm_notebook": std.tqdm, "tnrange": std.trange}
        vars(module).update(words, IProgress=object, WARN_NOIPYW="")


def text_bars() -> None:
    """Have `tqdm.auto` and `tqdm.notebook` draw text. Called once, before anything of the user's is imported."""
    for name in (_NOTEBOOK, *_CHOOSERS):
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _TextBars())
