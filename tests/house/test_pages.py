"""Every code block of the README and of docs/ runs as it stands there, or the page gives the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.pages import PAGES, ROOT, RUN, PageFailed, blocks_of, run_page, to_run

MARKUP = ("{include}", "{toctree}", "{eval-rst}")
"""Fences by which Sphinx is told something: no code."""


def test_every_block_is_run_or_excused() -> None:
    """By its language, or by a test that knows the page; the page gives the reason for every other block."""
    for page in PAGES:
        for block in blocks_of(page):
            if block.run_by:
                runner = ROOT / block.run_by.partition("::")[0]
                assert runner.exists() and page.name in runner.read_text(encoding="utf-8"), block.place
            elif block.not_run:
                assert block.kind in {"", "text"}, f"{block.place}: excused, though its language says it runs"
            else:
                assert block.kind.startswith(MARKUP) or block.kind in (*RUN, "restart"), (
                    f"{block.place}: name its language (python, ipython, sh), or write "
                    "<!-- not run: the reason --> above it"
                )


def test_the_readme_can_be_pasted_whole() -> None:
    """It sets up nothing that its reader does not see; only installing is left out."""
    blocks = list(blocks_of(ROOT / "README.md"))
    assert not [block.place for block in blocks if block.kind in {"setup", "restart"} or block.run_by]
    (excused,) = [block for block in blocks if block.not_run]
    assert "pip install" in excused.text


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if to_run(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_its_blocks_run(page: Path, tmp_path: Path) -> None:
    """In order, in a fresh kernel; trials that they start end well."""
    run_page(page, tmp_path)


FAULTS = {
    "```python\nx = 1\n1 / 0\n```\n": ":5: .*ZeroDivisionError",
    "```python\n%load_ext tsnb\n```\n```ipython\n%tensorsocket sarve x\n```\n": ":6: .*UsageError",
    "```python\n%load_ext tsnb\n```\n```ipython\n%%trial bad\n1 / 0\n```\n": ":9, after the .*ZeroDivisionError",
    "```sh\ntsnb stop nobody\n```\n": ":3: .*No stream .*nobody.* is running",
}
"""What a page may say wrongly, and how that is told."""


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("wrong", FAULTS)
def test_a_wrong_block_is_told_with_its_line(wrong: str, tmp_path: Path) -> None:
    """An error, a magic's refusal, a trial that fails in the background, a command."""
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{wrong}", encoding="utf-8")
    with pytest.raises(PageFailed, match=rf"(?s)page\.md{FAULTS[wrong]}"):
        run_page(page, tmp_path)
