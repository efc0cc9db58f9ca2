"""What the documents say about the code is true: named tests, modules, numbers and make targets exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tsnb.telemetry.readings import ConsumerReading, StreamReading

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY", "CHANGELOG")),
    *(ROOT / name for name in ("notebooks/README.md", "tests/FAULTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROMISES = 11
STEPS_AT_LEAST = 8
DOORS_AT_LEAST = 9
LIMITS_AT_LEAST = 9

READING_FIELDS = {*StreamReading.__dataclass_fields__, *ConsumerReading.__dataclass_fields__}


def table_after(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    _, _, below = text.partition(f"\n{heading}\n")
    assert below, f"there is no {heading!r}"
    rows = [line for line in below.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@cache
def functions_in(path: Path) -> frozenset[str]:
    """Names of all functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(
        n.name for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, kinds)
    )


def missing_tests(text: str) -> list[str]:
    """Return every `tests/file.py` or `tests/file.py::name` in a text that does not exist."""
    wrong = []
    for file, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text):
        path = ROOT / file
        if not path.exists() or (name and name not in functions_in(path)):
            wrong.append(f"{file}::{name}" if name else file)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    """Renaming a test without its mention is noticed here."""
    assert not missing_tests(document.read_text(encoding="utf-8"))


def test_a_package_names_all_its_modules() -> None:
    """Where a package's docstring has a table of its modules, none is missing there, and none has gone."""
    wrong = {}
    for package in sorted((ROOT / "tsnb").rglob("__init__.py")):
        rows = (ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or "").splitlines()
        if not any(row.startswith("| module |") for row in rows):
            continue
        first = [row.split("|")[1] for row in rows if row.startswith("| `")]
        named = {
            name.split(".")[0].rstrip("/") for cell in first for name in re.findall(r"`([\w./]+)`", cell)
        }
        folder = package.parent
        there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        there |= {path.parent.name for path in folder.glob("*/__init__.py")}
        gone = {name for name in named - there if not (folder / name).is_dir()}
        if there - named or gone:
            wrong[folder.relative_to(ROOT).as_posix()] = sorted(there - named), sorted(gone)
    assert not wrong, f"missing, and gone: {wrong}"


def words_of(path: Path) -> str:
    """Return a document, or the Markdown cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")


@pytest.mark.parametrize("document", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    """Relative links and pictures of pages and notebooks point to files that are committed."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", words_of(document))
    assert not [link for link in links if not (document.parent / link).exists()]


@cache
def sections_of(page: Path) -> frozenset[str]:
    """The names by which a page's headings are linked, as the site and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_sections_lead_somewhere(document: Path) -> None:
    """The site leaves out a link whose section has another heading by now, and says nothing."""
    links = re.findall(
        r"\]\((?!https?:|mailto:)([^)#\s]*\.md)?#([^)\s]+)\)", document.read_text(encoding="utf-8")
    )
    pages = [(document.parent / file if file else document, section) for file, section in links]
    assert not [
        (page.name, section) for page, section in pages if page.exists() and section not in sections_of(page)
    ]


def test_the_list_of_notebooks_is_complete() -> None:
    """notebooks/README.md links to every notebook."""
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert not [path.name for path in NOTEBOOKS if f"({path.name})" not in text]


def test_every_page_that_is_named_elsewhere_exists() -> None:
    """Messages, docstrings, tests, benchmarks and the changelog name pages of docs/ by their path."""
    folders = ("tsnb", "tests", "benchmarks", "notebooks", "release")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.[pim]*") if path.is_file()]
    wrong = {}
    for path in [*ROOT.glob("*.md"), *paths]:
        if path.suffix in (".py", ".md", ".ipynb"):
            named = re.findall(r"\bdocs/[a-z/-]+\.md\b", path.read_text(encoding="utf-8"))
            if gone := sorted({name for name in named if not (ROOT / name).exists()}):
                wrong[path.relative_to(ROOT).as_posix()] = gone
    assert not wrong


def test_each_promise_names_its_tests() -> None:
    """tests/FAULTS.md has a row for each promise: its tests, or openly that it has none yet."""
    rows = table_after((ROOT / "tests" / "FAULTS.md").read_text(encoding="utf-8"), "## Promises")
    assert len(rows) == PROMISES
    assert not [row[0] for row in rows if not re.search(r"tests/[\w/]+\.py|not yet", row[-1])]


def test_the_life_of_a_batch_is_true() -> None:
    """docs/architecture.md: every step's module, dashboard number and test exist."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = table_after(text, "## The life of one batch")
    assert len(rows) >= STEPS_AT_LEAST
    for step, _process, module, _copies, number, test in rows:
        for name in re.findall(r"`([\w./]+)`", module):
            assert (ROOT / "tsnb" / name).exists(), f"step {step!r}: no module {name}"
        for name in re.findall(r"`(\w+)`", number):
            assert name in READING_FIELDS, f"step {step!r}: no reading has {name}"
        assert re.search(r"tests/[\w/]+\.py", test), f"step {step!r} has no test"


@pytest.mark.parametrize("life", ["trial", "logged number"])
def test_the_other_lives_are_true(life: str) -> None:
    """Every step of a trial, and of a number that it logs, has modules that exist and names a test."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = table_after(text, f"## The life of one {life}")
    assert len(rows) >= STEPS_AT_LEAST
    for step, _process, module, test in rows:
        names = re.findall(r"`([\w./]+)`", module)
        assert names, f"step {step!r} has no module"
        assert not [name for name in names if not (ROOT / "tsnb" / name).exists()], f"step {step!r}"
        assert re.search(r"tests/[\w/]+\.py", test), f"step {step!r} has no test"


def test_each_door_names_its_test() -> None:
    """tests/FAULTS.md: every door has a defence, and a test by name; that it exists is checked above."""
    text = (ROOT / "tests" / "FAULTS.md").read_text(encoding="utf-8")
    rows = table_after(text, "## Doors")
    assert len(rows) >= DOORS_AT_LEAST
    for door, _what, done, test in rows:
        assert done, f"door {door!r}: nothing is done"
        assert re.search(r"tests/[\w/]+\.py::\w+", test), f"door {door!r} names no test"


def test_each_limit_names_its_test() -> None:
    """tests/FAULTS.md: every limit has a module that exists, what the user sees, and a test by name."""
    rows = table_after((ROOT / "tests" / "FAULTS.md").read_text(encoding="utf-8"), "## Limits")
    assert len(rows) >= LIMITS_AT_LEAST
    for limit, module, seen, test in rows:
        names = re.findall(r"`([\w./]+)`", module)
        assert names and all((ROOT / "tsnb" / name).exists() for name in names), f"limit {limit!r}: {module}"
        assert seen, f"limit {limit!r}: nothing is seen"
        assert re.search(r"tests/[\w/]+\.py::\w+", test), f"limit {limit!r} names no test"


def test_what_builds_the_package_has_upper_bounds() -> None:
    """docs/security-model.md says so: a new major version of a build tool is adopted on purpose only."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = re.findall(r'"([^"]+)"', text.partition("requires = [")[2].partition("]")[0])
    assert required
    assert not [requirement for requirement in required if "<" not in requirement]


def test_every_make_target_that_a_document_names_exists() -> None:
    """A reader who types what stands there gets what is promised."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{document.name}: {named - targets}"


def test_ci_runs_every_test_once() -> None:
    """`make test` and `make test-all` part the tests by one mark, and CI calls both in one run of make."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r'^TESTS = -m "not slow"\n', makefile, re.MULTILINE)
    assert "\ntest-all: test\n\t$(call RUN_TESTS,-m slow)\n" in makefile
    calls = re.findall(r"^make (.*)$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    assert calls == ["check test test-all"]


def test_what_ci_needs_is_installed_by_one_call_of_pip() -> None:
    """`make check` asks for all that the tests need, and notes that they have it: nothing is resolved a second time."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\t@touch $@ $(if $(filter check,$*),$(VENV)/test.stamp)\n" in makefile
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"tsnb[test]",' in text.partition("\ncheck = [")[2].partition("\n]")[0]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(notebook: Path) -> None:
    """No output, execution count or widget state: the reader's own machine fills them in."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"]]
    assert "widgets" not in content["metadata"]


MOST_LINES = 450
LONG_MODULES = {
    "stream/consumer/attachment.py": "one class: where a consumer stands, and what its loop and process do with it",
    "experiments/in_kernel/kept_state.py": "one class, and the two verbs by which a training loop calls it",
    "experiments/running/trial_life.py": "one class: the life of a trial, whatever has started it, and who hears of it",
    "experiments/trial.py": "one public class, with what its users read of each method",
    "stream/producer/core.py": "what the producer's threads share under one lock: elsewhere, nobody sees who holds it",
    "stream/decisions/dispatch.py": "one state machine: the table of events, and what follows from each",
    "sweeps/sweep.py": "one public class, with an example of each method",
    "stream/protocol/messages.py": "the list of all messages: to look one up, there is one place",
}
"""Modules that may be longer, each with the reason why it is one noun all the same."""


def test_a_module_is_read_in_one_sitting() -> None:
    """A module is one noun: a longer one may be two, and if it is not, it stands in the list above with the reason."""
    modules = {
        path.relative_to(ROOT / "tsnb").as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tsnb").rglob("*.py")
    }
    longer = {name for name, lines in modules.items() if lines > MOST_LINES}
    assert not {name: modules[name] for name in longer - LONG_MODULES.keys()}, "is it two nouns?"
    assert not LONG_MODULES.keys() - longer, "no exception is needed any more"


def test_the_tree_holds_no_build_product() -> None:
    """The panel's bundle, environments and artefacts are made, not committed."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    made = re.compile(r"(^|/)(node_modules|static|artifacts|dist|\.venv)/")
    assert not [name for name in listed.stdout.splitlines() if made.search(name)]
