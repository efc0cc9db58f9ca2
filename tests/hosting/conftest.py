"""The same surroundings as the tests of kernels."""

from tests.kernels.conftest import notebook, nothing_goes_on, page, until

__all__ = ["notebook", "nothing_goes_on", "page", "until"]
