"""A release: its metadata is true, a dirty tree is refused, and `make dist` builds what a bare Python runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.metadata.spec import get_core_metadata_constructors
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

import hatch_build
import tsnb
from release.contents import BUNDLE, files_of, strangers, told_secrets
from release.dist import clear, require_clean, wrong_metadata
from release.pythons import Failed
from release.recipe import CONDA_NAMES, recipe

ROOT = Path(__file__).parents[2]
FIRST_MINOR = 10
"""The oldest Python is 3.10."""
ENOUGH_TO_BUILD = ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "tsnb/__init__.py")


@pytest.fixture(scope="module")
def project() -> ProjectMetadata[PluginManager]:
    """What pyproject.toml says, as the build backend reads it."""
    return ProjectMetadata(str(ROOT), PluginManager())


@pytest.fixture(scope="module")
def metadata(project: ProjectMetadata[PluginManager]) -> Message:
    """The METADATA that a wheel of this tree gets."""
    newest = list(get_core_metadata_constructors().values())[-1]
    return Parser().parsestr(newest(project))


def git(*words: str, cwd: Path) -> str:
    """Run git as somebody, and return what it printed."""
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_the_metadata_is_complete(metadata: Message) -> None:
    """Name, version, licence, summary and description are there."""
    assert wrong_metadata(metadata) == []
    del metadata["License-Expression"]
    assert wrong_metadata(metadata) == [
        "License-Expression is None in the metadata. Expected 'BSD-3-Clause'."
    ]
    metadata["License-Expression"] = "BSD-3-Clause"


def test_the_version_stands_in_one_place(project: ProjectMetadata[PluginManager]) -> None:
    """It is that of tsnb/__init__.py; files that could have their own have none."""
    assert project.version == tsnb.__version__
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert "version" not in json.loads((ROOT / "tsnb/panel/frontend/package.json").read_text("utf-8"))
    written = re.compile(
        rf"""^\s*_*(version|release)_*\s*[=:]\s*["']?{re.escape(tsnb.__version__)}""", re.MULTILINE
    )
    files = [
        ROOT / name
        for name in git("ls-files", "*.py", "*.toml", "*.cff", "*.yml", "*.yaml", cwd=ROOT).split()
    ]
    assert [path for path in files if written.search(path.read_text("utf-8"))] == [ROOT / "tsnb/__init__.py"]


def test_the_classifiers_are_true(project: ProjectMetadata[PluginManager]) -> None:
    """All are known, each Python from the oldest on is named, and tsnb is no extension that JupyterLab would list."""
    named = project.core.classifiers
    assert set(named) <= classifiers
    minors = [int(row.rpartition(".")[2]) for row in named if re.search(r":: 3\.\d+$", row)]
    assert minors == [*range(FIRST_MINOR, minors[-1] + 1)]
    assert project.core.requires_python == f">=3.{FIRST_MINOR}"
    prebuilt = "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt"
    ships = "labextension" in (ROOT / "pyproject.toml").read_text("utf-8")
    assert (prebuilt in named) == ships


def test_the_citation_says_what_the_package_says(project: ProjectMetadata[PluginManager]) -> None:
    """Name, abstract, keywords and licence."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["title"] == project.core.name
    assert cited["abstract"] == project.core.description
    assert sorted(cited["keywords"]) == sorted(project.core.keywords)
    assert cited["license"] == project.core.license_expression
    assert cited["authors"] == project.core.authors


def test_the_conda_recipe_needs_what_the_package_needs(
    project: ProjectMetadata[PluginManager], metadata: Message
) -> None:
    """Each need of pyproject.toml with its range, once, and what builds it."""
    made = yaml.safe_load(recipe(metadata, project.build.requires, "0" * 64))
    run = dict(row.partition(" ")[::2] for row in made["requirements"]["run"])
    assert run.pop("python") == project.core.requires_python
    assert run.pop("__unix") == ""
    expected = {
        canonicalize_name(need.name): str(need.specifier)
        for need in map(Requirement, project.core.dependencies)
    }
    assert run == {CONDA_NAMES.get(name, name): wanted for name, wanted in expected.items()}
    assert [row.split()[0] for row in made["requirements"]["host"]] == ["python", "pip", "hatchling"]
    assert made["package"] == {"name": "tsnb", "version": tsnb.__version__}


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    """The changed file is named, with the way out; committed, it is fine."""
    with pytest.raises(Failed, match="is no git checkout"):
        require_clean(tmp_path)
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "new.py").write_text("")
    with pytest.raises(Failed, match=r"\?\? new\.py\nCommit them, or build the last commit") as refused:
        require_clean(tmp_path)
    assert f"git clone {tmp_path} ../tsnb-release" in str(refused.value)
    git("add", "-A", cwd=tmp_path)
    git("commit", "-qm", "one", cwd=tmp_path)
    require_clean(tmp_path)


def test_a_stranger_and_a_secret_are_seen(tmp_path: Path) -> None:
    """A cache, a missing module, a key and a path of this machine."""
    wheel = tmp_path / "tsnb-1-py3-none-any.whl"
    parts = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    right = {"tsnb/__init__.py", *BUNDLE, *(f"tsnb-1.dist-info/{part}" for part in parts)}
    with zipfile.ZipFile(wheel, "w") as file:
        for name in right:
            file.writestr(name, f"made in {tmp_path}" if name.endswith("METADATA") else "")
        file.writestr("tsnb/__pycache__/a.pyc", "-----BEGIN RSA PRIVATE KEY-----\nMIIE")
    committed = ["tsnb/__init__.py", "tsnb/gone.py", "tsnb/panel/frontend/src/panel.js", "tests/test_a.py"]
    files = files_of(wheel)
    assert strangers(wheel, files, committed) == [
        f"{wheel.name} holds tsnb/__pycache__/a.pyc, which is not in the commit.",
        f"{wheel.name} lacks tsnb/gone.py.",
    ]
    assert told_secrets(wheel, files, [str(tmp_path)]) == [
        f"{wheel.name}: tsnb-1.dist-info/METADATA holds the path {tmp_path}.",
        f"{wheel.name}: tsnb/__pycache__/a.pyc holds a private key.",
    ]


def test_a_build_asks_for_node_only_where_the_panel_must_be_bundled(tmp_path: Path) -> None:
    """A checkout without the bundle asks for it; an sdist, which has the bundle, does not."""
    for name in ENOUGH_TO_BUILD:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(
        hatch_build.FRONTEND, tmp_path / "tsnb/panel/frontend", ignore=shutil.ignore_patterns("node_modules")
    )
    ask = "from hatchling.build import get_requires_for_build_wheel as ask; print(ask())"

    def asked() -> str:
        command = [sys.executable, "-c", ask]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert asked() == str([hatch_build.NODE])
    static = tmp_path / "tsnb/panel/static"
    static.mkdir()
    (static / "panel.css").write_text("")
    (static / "panel.js").write_text(f"{hatch_build.STAMP}{hatch_build.sources_digest()} */\n")
    assert asked() == "[]"


def test_a_folder_that_no_build_made_is_not_cleared(tmp_path: Path) -> None:
    """`--out ~` deletes nothing; what an earlier build left goes."""
    out = tmp_path / "out"
    clear(out)
    (out / "conda").mkdir(parents=True)
    built = [out / "tsnb-1.0.tar.gz", out / "tsnb-1.0-py3-none-any.whl", out / "conda/recipe.yaml"]
    for path in (*built, out / "mine.txt"):
        path.touch()
    with pytest.raises(Failed, match=r"holds what no build made: mine\.txt\. Nothing was removed"):
        clear(out)
    assert all(path.is_file() for path in built)
    (out / "mine.txt").unlink()
    (out / "link").symlink_to(tmp_path)
    with pytest.raises(Failed, match="link"):
        clear(out)
    (out / "link").unlink()
    clear(out)
    assert not [path for path in out.rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_make_dist_passes_its_own_checks(tmp_path: Path) -> None:
    """The last commit, in a copy: it builds, and the wheel alone imports and passes `tsnb doctor`."""
    copy, out = tmp_path / "copy", tmp_path / "dist"
    git("clone", "-q", str(ROOT), str(copy), cwd=tmp_path)
    shutil.copytree(hatch_build.STATIC, copy / "tsnb/panel/static")
    command = [sys.executable, "-m", "release.dist", "--out", str(out), "--python", sys.executable]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "and, from it and without Node",
        "twine check passed",
        "tsnb doctor passed",
        "Before you publish:",
    ):
        assert line in done.stdout
    made = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    version = tsnb.__version__
    assert made == {f"tsnb-{version}-py3-none-any.whl", f"tsnb-{version}.tar.gz", "conda/recipe.yaml"}
