"""Settings of a notebook reach its trials, and one that is unusual loses none of the others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests import forking

READ = """
import logging, sys
from tsnb.kernels.cargo.numerics import numerics_here
class Foreign(logging.Formatter):
    def __init__(self): pass
    def format(self, record): return "mine"
class Colours(logging.Formatter): pass
exec(sys.argv[1])
print(repr(numerics_here()[sys.argv[2]]))
"""

TAKE = """
import logging, sys
if sys.argv[2] == "torch": import torch
from tsnb.kernels.cargo.numerics import numerics_here, take_on
take_on({sys.argv[2]: eval(sys.argv[1])}, trial=True)
print(repr(numerics_here()[sys.argv[2]]))
logging.getLogger("mine").debug("seen")
"""


def run(program: str, code: str, package: str) -> tuple[Any, str]:
    """Run a program that prints settings; return them, and what it said besides."""
    if package == "torch":
        settings, _, besides = forking.output_of(program, code, package).partition("\n")
        return eval(settings), besides
    done = subprocess.run(
        [sys.executable, "-c", program, code, package], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return eval(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("handler", "shown"),
    [
        ("logging.basicConfig(format='%(name)s %(message)s')", "mine seen\n"),
        ("logging.basicConfig(format='{name}: {message}', style='{')", "mine: seen\n"),
        ("logging.basicConfig(format='$name/$message', style='$')", "mine/seen\n"),
        ("set_formatter(Colours('%(log_color)s %(message)s', validate=False))", "DEBUG:mine:seen\n"),
        ("set_formatter(Foreign())", "DEBUG:mine:seen\n"),
        ("set_formatter(logging.Formatter('%(ip)s %(message)s', defaults={'ip': 1}))", "DEBUG:mine:seen\n"),
    ],
    ids=["percent", "braces", "dollar", "a subclass", "without the base's state", "with defaults"],
)
def test_a_format_of_any_kind_keeps_the_levels_of_loggers(handler: str, shown: str) -> None:
    """Another style lost all levels, a subclass broke each message, and one without a format stopped the start."""
    code = (
        "def set_formatter(one):\n"
        "    logging.basicConfig()\n"
        "    logging.getLogger().handlers[0].setFormatter(one)\n"
        f"{handler}\n"
        "logging.getLogger('mine').setLevel(logging.DEBUG)"
    )
    settings, _ = run(READ, code, "logging")
    assert settings["levels"]["mine"] == 10
    assert run(TAKE, repr(settings), "logging") == (settings, shown)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "carried"), [("cuda", "cuda"), ("cuda:1", "cuda:1"), ("cpu", None)])
def test_the_default_device_is_read_without_starting_cuda(device: str, carried: str | None) -> None:
    """To number "cuda", torch makes a tensor: half a GiB in the notebook, or an error where there is no GPU."""
    code = (
        "import torch\n"
        "torch.set_default_dtype(torch.float64)\n"
        f"torch.set_default_device({device!r})\n"
        "torch.cuda._lazy_init = lambda: sys.exit('CUDA was started')"
    )
    settings, _ = run(READ, code, "torch")
    assert settings == {"dtype": "float64"} | ({"device": carried} if carried else {})
    assert run(TAKE, repr(settings), "torch") == (settings, "")


def test_the_device_of_a_block_is_the_default_one_within_it() -> None:
    """A cell may start a trial inside of `with torch.device(...)`."""
    code = "import torch\ntorch.device('meta').__enter__()"
    assert run(READ, code, "torch")[0] == {"device": "meta"}


def test_a_precision_for_the_gpu_alone_leaves_that_of_the_cpu() -> None:
    """`allow_tf32` is told as the matmul precision "high", whose setter changes the CPU's, too."""
    code = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True"
    settings, _ = run(READ, code, "torch")
    assert settings["precision"] == "high"
    assert run(TAKE, repr(settings), "torch") == (settings, "")
