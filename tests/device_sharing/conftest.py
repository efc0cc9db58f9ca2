"""The surroundings of trials, as the tests of kernels have them."""

from tests.kernels.conftest import nothing_goes_on, page, until

__all__ = ["nothing_goes_on", "page", "until"]
