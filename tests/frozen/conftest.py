"""Scripts as system tests have them."""

from tests.system.conftest import run

__all__ = ["run"]
