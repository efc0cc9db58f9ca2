"""Every code block of the README and of docs/ runs as it stands there, or is named here with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.pages import PAGES, ROOT, RUN, PageFailed, blocks_of, run_page, to_run

NOT_RUN = {
    ("README.md", "make demo"): "installs; tests/house/test_quickstart.py runs what `make demo` runs",
    ("docs/architecture.md", "cli | notebook"): "a picture of the layers",
    ("docs/balance.md", "tsnb: digits: 5 cores"): "output, of a machine with more cores",
    ("docs/cluster.md", "producer's machine"): "a picture of what goes where",
    ("docs/devices.md", "2 of 2 cores"): "output",
    ("docs/devices.md", "%%trial big --device"): "needs two GPUs",
    ("docs/devices.md", "tsnb mps start"): "needs a GPU",
    ("docs/from-a-dataloader.md", '%%sweep "regression-lr'): "needs the program; tests/tutorials runs it",
    ("docs/loaders.md", "for images, labels in tsnb.attach"): "needs a GPU",
    (
        "docs/macos.md",
        "TSNB_PORTABLE=1 tsnb doctor",
    ): "takes half an hour; its most telling part is test_portable.py",
    ("docs/macos.md", "make bench"): "a measurement; tests/benchmarks runs its smallest form",
    ("docs/performance.md", "make bench"): "takes 20 minutes; tests/benchmarks runs its smallest form",
    ("docs/offloading.md", 'spilled = tsnb.offload(model, optimizer, limit="8GiB", device'): "needs a GPU",
    ("docs/stalls.md", "One trial waits"): "output",
    ("docs/telemetry.md", '{"tsnb"'): "a picture of the format, with dots",
    ("docs/tutorial.md", "tsnb panel of the stream"): "output",
}
"""Page and how the block begins, and why it is not run."""
MARKUP = ("{include}", "{toctree}", "{eval-rst}")
"""Fences by which Sphinx is told something: no code."""


def test_every_block_is_run_or_excused() -> None:
    """By its language, or by a test that its page names and that knows the page; all others stand in the list above."""
    used = set()
    for page in PAGES:
        for block in blocks_of(page):
            name = str(page.relative_to(ROOT))
            if block.run_by:
                runner = ROOT / block.run_by.partition("::")[0]
                assert runner.exists() and page.name in runner.read_text(encoding="utf-8"), block.place
            elif key := next((k for k in NOT_RUN if k[0] == name and block.text.startswith(k[1])), None):
                assert block.kind in {"", "text"}, (
                    f"{block.place}: excused, though its language says that it runs"
                )
                used.add(key)
            else:
                assert block.kind.startswith(MARKUP) or block.kind in (*RUN, "restart"), (
                    f"{block.place}: say its language (python, ipython, sh), or put it into NOT_RUN with a reason"
                )
    assert used == set(NOT_RUN), "excused, and not there any more"


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
    "```sh\ntsnb stop nobody\n```\n": ":3: .*no producer .*nobody.* is running",
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
