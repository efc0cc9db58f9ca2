"""The layers and the purity rules of docs/architecture.md, read from the source with `ast` alone.

import-linter checks the same in `make check`. This test needs nothing installed, follows the imports inside
functions too, and knows nothing of import-linter's configuration: a rule has to be loosened in both. What is imported
for annotations alone (under TYPE_CHECKING) keeps to the layers, but makes no cycle and nothing impure: it never runs.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tsnb"

# Top to bottom; parts on one line do not know each other.
LAYERS = [
    {"__main__"},
    {"data", "search", "streams"},
    {"cli", "notebook"},
    {"integrations", "steering"},
    {"duels"},
    {"sweeps"},
    {"planning"},
    {"conducting"},
    {"checks", "panel", "reports", "stalling", "top"},
    {"cluster"},
    {"experiments", "hosting"},
    {"kernels"},
    {"attaching", "serving"},
    {"extensions"},
    {"frozen"},
    {"caching"},
    {"balancing", "device_sharing", "growing", "spilling"},
    {"show"},
    {"telemetry"},
    {"planners"},
    {"records"},
    {"stream"},
    {"discovery", "engines"},
    {"options"},
    {"option_kinds"},
    {"config", "machine", "native"},
    {"private"},
    {"draws", "errors", "lazy", "text"},
]
DEPTH = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}

OUTSIDE = {"asyncio", "multiprocessing", "select", "socket", "threading", "time", "torch", "zmq"}
NOTEBOOK_STACK = {"IPython", "anywidget", "ipykernel", "ipywidgets", "jupyter_client", "plotly", "zmq"}

SHOWN_WITHOUT = {
    "tsnb.stream.consumer",
    "tsnb.stream.loader",
    "tsnb.stream.memory",
    "tsnb.stream.producer",
    "torch",
}

# part or module: what it may not import, directly or through other modules of ours
PURITY = {
    "tsnb.planners": OUTSIDE,
    "tsnb.stream.protocol": OUTSIDE,
    "tsnb.stream.decisions": OUTSIDE,
    "tsnb.device_sharing.gpu_slots": OUTSIDE,
    "tsnb.caching.choice": OUTSIDE,
    "tsnb.caching.owners": OUTSIDE,
    "tsnb.stalling.sharing": OUTSIDE,
    "tsnb.text.numbers": OUTSIDE,
    "tsnb.stalling.sentences": OUTSIDE,
    "tsnb.panel": SHOWN_WITHOUT,
    "tsnb.reports": SHOWN_WITHOUT,
    "tsnb.show": SHOWN_WITHOUT,
    "tsnb.top": SHOWN_WITHOUT,
    "tsnb.stream.producer": NOTEBOOK_STACK,
    "tsnb.stream.consumer": NOTEBOOK_STACK,
}

MOST_MODULES = 15
CIRCLES_OF_ANNOTATIONS = [
    {
        "tsnb.experiments.running.attempt",
        "tsnb.experiments.running.branches",
        "tsnb.experiments.running.trial_life",
    },
    {"tsnb.panel.shown_stream", "tsnb.panel.widget"},
    {"tsnb.stalling.asked", "tsnb.stalling.intervals", "tsnb.stalling.result", "tsnb.stalling.sentences"},
    {
        "tsnb.stream.consumer.attachment",
        "tsnb.stream.consumer.consumer",
        "tsnb.stream.consumer.dataloader",
        "tsnb.stream.consumer.dataset",
        "tsnb.stream.consumer.loop",
    },
    {"tsnb.stream.consumer.batches.device", "tsnb.stream.consumer.batches.unpacking"},
]
"""Modules that name each other's types, which never runs. No circle may grow, and none may be added."""


GROUNDS = {
    *("config", "draws", "errors", "lazy", "machine", "native", "private", "text"),
    *("discovery", "option_kinds", "options"),
}
"""What the stream may stand on."""


def module_name(path: Path) -> str:
    """Return tsnb.stream.protocol for tsnb/stream/protocol/__init__.py."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def for_annotations(tree: ast.Module) -> set[ast.AST]:
    """Everything below an `if TYPE_CHECKING:` at the top of a module."""
    checks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {inner for check in checks for statement in check.body for inner in ast.walk(statement)}


@cache
def imports_of(module: str, *, annotations: bool = False) -> frozenset[str]:
    """Every module that `module` imports, anywhere in its text; `from a import b` is a.b if that is one.

    Args:
        module: Which.
        annotations: Whether to count what is imported for annotations alone too.
    """
    found: set[str] = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    left_out = set() if annotations else for_annotations(tree)
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import, which hides its layer"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner == "tsnb.__version__":
                    continue  # a constant of the root, behind no lazy name
                found.add(inner if inner in MODULES else node.module)
    return frozenset(found)


def reached_from(start: str) -> Iterator[tuple[str, str]]:
    """Yield (importing module, imported module) for everything that importing `start` can bring in."""
    waiting, seen = [start], {start}
    while waiting:
        module = waiting.pop()
        for target in imports_of(module):
            yield module, target
            # importing a.b runs a/__init__ first (the parents of `start` itself are running already)
            for reached in (target, target.rpartition(".")[0]):
                if reached in MODULES and reached not in seen and not is_below(start, reached):
                    seen.add(reached)
                    waiting.append(reached)


def part_of(module: str) -> str | None:
    """tsnb.stream.decisions.dispatch -> stream; None outside the package and for its root."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "tsnb" and rest else None


def is_below(module: str, forbidden: str) -> bool:
    """Whether `module` is `forbidden` or lies in it."""
    return module == forbidden or module.startswith(f"{forbidden}.")


def test_every_part_has_a_place_in_the_layers() -> None:
    """A new top-level module or package has to be given a layer before it can land."""
    parts = {part_of(module) for module in MODULES} - {None}
    assert parts <= set(DEPTH), f"no layer for {sorted(parts - set(DEPTH), key=str)}"


def test_imports_point_down_only() -> None:
    """No module imports from its own layer's neighbours or from above."""
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        for target in imports_of(module, annotations=True)
        if (above := part_of(module)) and (below := part_of(target))
        if above != below and DEPTH[below] <= DEPTH[above]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_stream_imports_nothing_from_above() -> None:
    """Whoever mends a capability does not edit the stream: what is built on it is not imported by it."""
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if part_of(module) == "stream"
        for target in imports_of(module)
        if (part := part_of(target)) and part not in GROUNDS | {"stream"}
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_top_imports_the_package_root() -> None:
    """The root gives out names of every layer lazily: importing it from below would go around the layers."""
    top = {"cli", "notebook"}
    wrong = [
        m
        for m in MODULES
        if m != "tsnb" and "tsnb" in imports_of(m, annotations=True) and part_of(m) not in top
    ]
    assert not wrong, f"import from the defining module instead of from tsnb: {wrong}"


@pytest.mark.parametrize("guarded", PURITY)
def test_the_purity_rules_hold(guarded: str) -> None:
    """Decisions know no clock or socket, the panel no stream, the stream no notebook; nor by detours."""
    members = [module for module in MODULES if is_below(module, guarded)]
    assert members, f"{guarded} has gone: name its successor in PURITY"
    wrong = {
        f"{importer} imports {target} (reached from {member})"
        for member in members
        for importer, target in reached_from(member)
        for forbidden in PURITY[guarded]
        if is_below(target, forbidden)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_the_import_graph_of_modules_has_no_cycle() -> None:
    """No module can reach itself, not even by an import inside a function."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for target in imports_of(module):
                if target in MODULES and target != "tsnb":  # the root loads names only when they are used
                    visit(target, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def reachable_from(module: str) -> set[str]:
    """Every module that `module` leads to by its imports, those for annotations included; the root aside."""
    waiting, seen = [module], set[str]()
    while waiting:
        found = {target for target in imports_of(waiting.pop(), annotations=True) if target in MODULES}
        waiting += found - seen - {"tsnb"}
        seen |= found - {"tsnb"}
    return seen


def test_types_are_named_in_circles_nowhere_else() -> None:
    """Two modules that need each other's types are one idea, or a third is missing: the circles left may only go."""
    reach = {module: reachable_from(module) for module in MODULES}
    circles = {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in MODULES
        if module in reach[module]
    }
    new = [
        sorted(circle) for circle in circles if not any(circle <= known for known in CIRCLES_OF_ANNOTATIONS)
    ]
    assert not new, f"break this circle: {new}"
    gone = [
        sorted(known) for known in CIRCLES_OF_ANNOTATIONS if not any(circle <= known for circle in circles)
    ]
    assert not gone, f"strike out what is no circle any more: {gone}"


def test_a_package_is_seen_at_a_glance() -> None:
    """A package with more than 15 modules has two ideas, or some of its modules tell one idea together."""
    sizes = Counter(module_name(path.parent / "__init__.py") for path in MODULES.values())
    larger = {package: count for package, count in sizes.items() if count > MOST_MODULES}
    assert not larger, f"merge modules that tell one idea, or make two packages: {larger}"


def test_a_public_class_name_means_one_thing() -> None:
    """A traceback or a signature that names a class says which one: no two modules give a class the same name."""
    where: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(module)
    twice = {name: modules for name, modules in where.items() if len(modules) > 1}
    assert not twice, f"another name for all but one of each: {twice}"


def test_the_pictures_of_the_layers_are_those_that_are_checked() -> None:
    """docs/architecture.md shows the layers that import-linter knows, of the package, the stream and telemetry."""
    root = PACKAGE.parent
    rules = (root / "pyproject.toml").read_text(encoding="utf-8")
    checked = map(ast.literal_eval, re.findall(r"^layers = (\[.*?^\])", rules, re.DOTALL | re.MULTILINE))
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    pictures = re.findall(r"a picture of the layers -->\n```\n(.*?)```", text, re.DOTALL)
    for picture, layers in zip(pictures, checked, strict=True):
        shown: list[list[str]] = []
        for line in picture.splitlines():
            names = [name.strip() for name in line[:27].split("|") if name.strip()]
            if line.startswith(" "):
                shown[-1] += names
            else:
                shown.append(names)
        known = [[name.strip() for name in layer.split("|")] for layer in layers]
        assert shown == [names for names in known if names != ["__main__"]]
