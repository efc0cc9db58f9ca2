"""The build hook: builds when sources differ, not otherwise, and says what failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]


def test_the_bundle_is_made_from_these_sources() -> None:
    """What is tested is what is in the tree (else: python hatch_build.py)."""
    assert hatch_build.is_current(hatch_build.sources_digest())


def test_nothing_is_built_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a current bundle neither npm nor esbuild runs, so no network is needed."""
    monkeypatch.setattr(hatch_build, "run", lambda *_: pytest.fail("ran a command"))
    assert hatch_build.build() is False


def test_any_change_of_a_source_builds_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The digest covers every source file, and the lock file."""
    for name in ("src/a.js", "src/a.css", "package.json", "package-lock.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(hatch_build, "FRONTEND", tmp_path)
    digests = {hatch_build.sources_digest()}
    for name in ("src/a.js", "src/a.css", "package.json", "package-lock.json"):
        (tmp_path / name).write_text("two")
        digests.add(hatch_build.sources_digest())
    assert len(digests) == 5


def test_a_failed_command_shows_its_words_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own message, then ours."""
    monkeypatch.setattr(hatch_build, "FRONTEND", tmp_path)
    command = [sys.executable, "-c", "import sys; print('ENOTFOUND registry'); sys.exit(1)"]
    with pytest.raises(hatch_build.FrontendFailed, match=r"(?s)ENOTFOUND registry.*HTTPS_PROXY"):
        hatch_build.run(command, "Check HTTPS_PROXY.")


def test_the_lock_names_no_machine() -> None:
    """The lock pins by integrity, and names no registry but npm's own."""
    lock = json.loads((hatch_build.FRONTEND / "package-lock.json").read_text())
    for path, package in lock["packages"].items():
        if path:
            assert package["integrity"].startswith("sha512-")
            assert package.get("resolved", "https://registry.npmjs.org/").startswith(
                "https://registry.npmjs.org/"
            )
