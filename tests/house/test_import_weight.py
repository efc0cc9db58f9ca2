"""What `import tsnb` and a training script's imports bring into a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTEBOOK_STACK = {
    "IPython",
    "anywidget",
    "ipykernel",
    "ipywidgets",
    "jupyter_client",
    "plotly",
    "pandas",
    "zmq",
}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that running `code` in a fresh interpreter leaves in sys.modules."""
    program = f"{code}\nimport sys\nprint(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_tsnb_loads_nothing_heavy() -> None:
    """`import tsnb` brings neither torch nor the notebook stack; each name loads what it needs on use."""
    assert not loaded_by("import tsnb") & (NOTEBOOK_STACK | {"torch", "numpy", "psutil", "pynvml"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attach", "serve"])
def test_the_stream_loads_no_notebook(name: str) -> None:
    """A training script that serves or attaches carries torch, but no part of the notebook stack."""
    assert not loaded_by(f"import tsnb; tsnb.{name}") & NOTEBOOK_STACK


def test_reading_a_stream_loads_no_torch() -> None:
    """`tsnb list` and `tsnb status` answer without waiting for torch to import."""
    assert "torch" not in loaded_by("import tsnb; tsnb.streams.list; tsnb.streams.status; tsnb.streams.stop")


def test_a_clusters_hub_loads_no_torch() -> None:
    """It decides, and sees no batch: neither it nor the gate of Ray Tune's trials carries torch on top of Ray."""
    assert "torch" not in loaded_by("import tsnb.cluster.stream_hub, tsnb.integrations.ray_tune")


def test_a_streams_curves_are_kept_without_numpy() -> None:
    """They are thinned on a thread, while a cell of the notebook may import numpy."""
    code = (
        "from tsnb.telemetry.shown.curves import Curves\ncurves = Curves()\n"
        "for k in range(2000): curves.add(0, 0, (k, k, k), k)"
    )
    assert "numpy" not in loaded_by(code)


def test_a_panels_threads_import_nothing() -> None:
    """Their pictures and reports need numpy, which a cell may import just then: all of it comes with the panel."""
    code = (
        "import sys, tsnb\ntsnb.dashboard\nbefore = set(sys.modules)\n"
        "from tests.reports.made import consumer, reading\nhere = set(sys.modules)\n"
        "assert 'numpy' in before\nfrom tsnb.reports import Report\n"
        "Report([reading(k, consumer('a', float(k))) for k in range(9)], ended=True)._repr_mimebundle_()\n"
        "more = {name for name in sys.modules if not name.startswith('tests')} - here\nassert not more, more"
    )
    assert "numpy" in loaded_by(code)
