"""The code blocks of a page, and how they are run: in order, as cells of a notebook in a fresh kernel.

A block runs by its language: `python` and `ipython` as they stand, `sh` as a script of bash. Comments count too:

    <!-- setup          code that the reader is assumed to have run; run where it stands, and not shown
    <!-- check          assertions on what the blocks before it did, likewise
    <!-- restart -->    what follows runs in a fresh kernel, in the same directory
    <!-- run by TEST -->  the next block is run by that test and not here
    <!-- not run: WHY -->  the next block is not run at all: it is output, a picture, or needs what a test lacks
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "tsnb" / "skill" / "SKILL.md"
PAGES = [ROOT / "README.md", SKILL, *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "ipython", "sh", "setup", "check")
"""Kinds of block that are run."""
CELL_TIMEOUT_S = 300
END = """
import tsnb
for trial in tsnb.trials.values():
    trial.wait(120)
tsnb.trials.clear()
for entry in tsnb.streams.list():
    tsnb.streams.stop(entry.name)
"""
"""The last cell of every kernel: a trial that failed in the background fails the page."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or a comment that takes part."""

    page: Path
    line: int
    """Of the page, counted from 1: the one above the block's first."""
    kind: str
    """Its language as the fence names it ("" if it does not), or `setup`, `check`, `restart`."""
    text: str
    run_by: str = ""
    """The test that runs it, where another one does."""
    not_run: str = ""
    """Why nothing runs it."""

    @property
    def place(self) -> str:
        """As editors and terminals link it."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


class PageFailed(AssertionError):
    """A block of a page failed; the message begins with the page and the line."""


def blocks_of(page: Path) -> Iterator[Block]:
    """Give the blocks of a page in order."""
    run_by = not_run = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "fence":
            yield Block(page, line, token.info.strip(), token.content, run_by, not_run)
            run_by = not_run = ""
        elif token.type == "html_block" and (
            comment := re.match(
                r"<!-- (setup|check|restart|run by|not run)\b(.*?)-->", token.content, re.DOTALL
            )
        ):
            if comment[1] == "run by":
                run_by = comment[2].strip()
            elif comment[1] == "not run":
                not_run = comment[2].strip(": \n")
            else:
                yield Block(page, line, comment[1], comment[2].strip("\n ") + "\n")


def to_run(page: Path) -> list[Block]:
    """Return what `run_page` runs of a page."""
    return [b for b in blocks_of(page) if b.kind in (*RUN, "restart") and not b.run_by]


def run_page(page: Path, folder: Path) -> None:
    """Run a page's blocks in order, in `folder`.

    Raises:
        PageFailed: A block raised, a magic refused its line, or a trial that a block started failed.
    """
    shutil.copy(ROOT / "docs" / "digits.py", folder)
    kernels: list[list[Block]] = [[]]
    for block in to_run(page):
        if block.kind == "restart":
            kernels.append([])
        else:
            kernels[-1].append(block)
    for blocks in kernels:
        run_blocks([*blocks, Block(page, blocks[-1].line, "end", END)], folder)


def run_blocks(blocks: list[Block], folder: Path) -> None:
    """Run blocks in a kernel of their own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source_of(b)) for b in blocks])
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    environment = {
        **os.environ,
        "TSNB_PROJECT_DIR": str(folder),
        "TSNB_RUNTIME_DIR": str(folder / "run"),
        "TSNB_BATCH": "0",  # a reader types one block after the other
    }
    with client.setup_kernel(env=environment):
        for index, (block, cell) in enumerate(zip(blocks, notebook.cells, strict=True)):
            try:
                client.execute_cell(cell, index)
            except CellExecutionError as error:
                raise PageFailed(told(block, str(error))) from None
            said = "".join(output.get("text", "") for output in cell.outputs)
            if "UsageError" in said:  # a magic that refuses its line says so, and the cell goes on
                raise PageFailed(told(block, said))


def source_of(block: Block) -> str:
    """Return a block as the source of a cell."""
    if block.kind != "sh":
        return block.text
    this = f'tsnb() {{ {shlex.quote(sys.executable)} -m tsnb "$@"; }}'  # of this checkout, installed or not
    return f"%%bash\nset -e\n{this}\n{block.text}"


def told(block: Block, error: str) -> str:
    """Say where a block failed: to the line where the traceback names one."""
    place, plain = block.place, re.sub(r"\x1b\[[\d;]*m", "", error)
    if block.kind != "sh" and (line := re.search(r"Cell In\[\d+\], line (\d+)", plain)):
        place = f"{os.path.relpath(block.page, ROOT)}:{block.line + int(line[1])}"
    if block.kind == "end":
        place += ", after the last block"
    return f"{place}: {plain}"
