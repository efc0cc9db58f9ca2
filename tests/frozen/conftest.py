"""Scripts as system tests have them, and an IPython as tests of the notebook have it."""

from tests.notebook.conftest import ipython, shell
from tests.system.conftest import run

__all__ = ["ipython", "run", "shell"]
