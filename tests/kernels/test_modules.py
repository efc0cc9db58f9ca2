"""Functions on their way to another kernel that name modules: those travel by name, whatever stands in their place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tsnb.kernels.cargo.shipping import fetch, ship

SPECIAL_MODULES = {
    "torch.classes": "return torch.ones(1), type('Digits', (), {'classes': 3}).classes",
    "torch.ops": "return torch.ops.aten.add(1, 2)",
    "torch.backends.cudnn": "return torch.backends.cudnn.benchmark",
    "torch.backends.cuda": "return torch.backends.cuda.matmul.allow_tf32",
    "torch.compiler.config": "return torch.compiler.config.job_id",
}
"""Modules of torch that are no plain ones (or have such parts), and code that names them, by intention or not."""


@pytest.mark.parametrize("module", SPECIAL_MODULES)
def test_a_function_may_name_modules_that_a_library_has_replaced(module: str) -> None:
    """The usual `seed_everything` sets `torch.backends.cudnn.deterministic`; any attribute `classes` will do."""
    variables: dict[str, Any] = {"__name__": "__main__", "torch": torch}
    exec(f"def used():\n    {SPECIAL_MODULES[module]}", variables)
    found = fetch(ship({"used": variables["used"]}, "trial 'cnn'"))["used"]
    assert found is not variables["used"]
    assert found() == variables["used"]()
