"""Three of the programs on a GPU: as they stand, on a served loader, and with a `device` for the trials."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tutorials.test_programs import PROGRAMS, TABLE, numbers, run

TO_GPU = (
    (r'accelerator="cpu"', 'accelerator="gpu", devices=1'),
    (r"Accelerator\(cpu=True, ", "Accelerator("),
    (r"use_cpu=True, ", ""),
    (r"part\.detach\(\)\.numpy\(\)", "part.detach().cpu().numpy()"),
)
NEAR = 1e-2
"""Sums on a GPU come in another order each time. Batches are compared by their hash."""


def moved(folder: Path, device: str | None) -> None:
    """Copy the programs, and let their trainers use the GPU.

    Args:
        folder: Where to.
        device: Where the trials' batches come; None: to the host.
    """
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in folder.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for old, new in TO_GPU:
            text = re.sub(old, new, text)
        if device is not None and file.name == "start.py":
            text = text.replace("name=module,", f"name=module, device={device!r},")
        file.write_text(text, encoding="utf-8")


def test_the_programs_are_those_whose_lines_are_changed(tmp_path: Path) -> None:
    """Each replacement finds its line, so that a program cannot run on the CPU unnoticed."""
    moved(tmp_path / "programs", "cuda:0")
    text = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "programs").glob("*.py"))
    assert not any(re.search(old, text) for old, _ in TO_GPU)
    assert "device='cuda:0'" in (tmp_path / "programs" / "start.py").read_text(encoding="utf-8")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["lightning_module", "text_classifier", "accelerated"])
def test_a_trainer_computes_the_same_on_a_served_loader(name: str, tmp_path: Path) -> None:
    """The same batches bit for bit and nearly the same numbers, wherever its batches come."""
    found: dict[str, dict[float, Any]] = {}
    for way, device in (("plain", None), ("host", None), ("device", "cuda:0")):
        moved(tmp_path / way, device)
        words = (
            [f"{name}.py"]
            if way == "plain"
            else ["start.py", f"{name}_served", json.dumps(TABLE[name].rates), "batches=make_loader"]
        )
        found[way] = numbers(run(tmp_path / way, *words))
    for rate, plain in found["plain"].items():
        wanted = {k: pytest.approx(v, rel=NEAR) if isinstance(v, float) else v for k, v in plain.items()}
        assert found["host"][rate] == wanted
        assert found["device"][rate] == wanted
