"""Build the wheel and the sdist from a clean tree, and check them: `make dist`, or `python -m release.dist`.

    commit --build--> sdist --build, no Node on the PATH--> wheel --pip--> a bare environment of each Python here

Nothing is published: what remains for a person is printed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata

import hatch_build
from release.contents import files_of, strangers, told_secrets
from release.pythons import Failed, bare, command, pythons
from release.recipe import recipe

ROOT = Path(__file__).parents[1]
MADE = re.compile(r"tsnb-[^/]+(\.tar\.gz|\.whl)|conda/recipe\.yaml")
"""Files that a build leaves in its folder."""
SHOWN = 10
"""How many of the changed files a refusal names."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, check, and print what came of it; exit with a message where something is wrong."""
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to build into")
    parser.add_argument(
        "--python", type=Path, action="append", help="try the wheel with this Python only (may be repeated)"
    )
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    try:
        require_clean(ROOT)
        with tempfile.TemporaryDirectory(prefix="tsnb-dist-") as scratch:
            sdist, wheel = build(out, Path(scratch))
            metadata = check(sdist, wheel)
            write_recipe(sdist, metadata)
            try_on(wheel, chosen(metadata, options.python), Path(scratch))
    except (Failed, hatch_build.FrontendFailed) as error:
        sys.exit(str(error))
    for path in (sdist, wheel):
        print(f"{sha256(path)}  {path}")
    print("\n".join(["Before you publish:", *(f"- {line}" for line in left_to_do(metadata))]))


def require_clean(root: Path) -> None:
    """Refuse a tree with changes that are not committed.

    Raises:
        Failed: There are some, or it is no checkout; says what to do.
    """
    if not (root / ".git").exists():
        raise Failed(f"{root} is no git checkout. A release is built from a commit: clone the repository.")
    changed = command("git", "status", "--porcelain", cwd=root).splitlines()
    if changed:
        rows = "\n".join(changed[:SHOWN] + (["..."] if len(changed) > SHOWN else []))
        raise Failed(
            f"The working tree has changes that are not committed:\n{rows}\n"
            "Commit them, or build the last commit from a clean copy:\n"
            f"  git clone {root} ../tsnb-release && make -C ../tsnb-release dist"
        )


def build(out: Path, scratch: Path) -> tuple[Path, Path]:
    """Build the sdist from this tree, and the wheel from the sdist as a user without Node would.

    Raises:
        Failed: A build failed, or the folder holds what no build made.
    """
    clear(out)
    os.environ["SOURCE_DATE_EPOCH"] = command("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    builder = (sys.executable, "-m", "build", "--outdir", out)
    command(*builder, "--sdist", ROOT)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
    said = command(*builder, "--wheel", scratch / sdist.name.removesuffix(".tar.gz"), path=os.devnull)
    if "nodejs" in said:
        raise Failed(f"The wheel's build from the sdist asked for Node:\n{said[-3000:]}")
    (wheel,) = out.glob("*.whl")
    report(f"built {sdist.name} and, from it and without Node, {wheel.name}")
    return sdist, wheel


def clear(out: Path) -> None:
    """Remove what an earlier build left in a folder.

    Raises:
        Failed: Something else is there; nothing is removed then.
    """
    found = sorted(path for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    names = [path.relative_to(out).as_posix() for path in found]
    others = [name for name in names if not MADE.fullmatch(name)]
    if others or (out.exists() and not out.is_dir()):
        there = ", ".join(others[:SHOWN]) or "no folder"
        raise Failed(
            f"{out} holds what no build made: {there}. Nothing was removed. Pass another folder: --out FOLDER"
        )
    for path in found:
        path.unlink()


def check(sdist: Path, wheel: Path) -> Message:
    """Check contents, metadata and licence, and return the metadata.

    Raises:
        Failed: Something is wrong; says all of it.
    """
    committed = command("git", "ls-files", cwd=ROOT).splitlines()
    wrong: list[str] = []
    inside = {archive: files_of(archive) for archive in (sdist, wheel)}
    for archive, files in inside.items():
        wrong += strangers(archive, files, committed)
        wrong += told_secrets(archive, files, [str(ROOT)])
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    described = inside[wheel].get(f"{info}/METADATA", b"")
    metadata = Parser().parsestr(described.decode())
    wrong += wrong_metadata(metadata)
    if inside[sdist].get("PKG-INFO") != described:
        wrong.append("The sdist's PKG-INFO and the wheel's METADATA differ.")
    if inside[wheel].get(f"{info}/licenses/LICENSE") != (ROOT / "LICENSE").read_bytes():
        wrong.append("The wheel's LICENSE is not the repository's.")
    script = inside[wheel].get("tsnb/panel/static/panel.js", b"").decode()
    if not script.startswith(hatch_build.STAMP + hatch_build.sources_digest()):
        wrong.append("The wheel's panel was not built from the sources of this commit.")
    if wrong:
        raise Failed("\n".join(wrong))
    report(
        f"contents: {len(inside[sdist])} and {len(inside[wheel])} files, the panel among them, no strangers"
    )
    command(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    report(f"metadata: version {metadata['Version']}, {metadata['License-Expression']}, twine check passed")
    return metadata


def wrong_metadata(metadata: Message) -> list[str]:
    """Return what is wrong with a package's metadata, each as a sentence."""
    (version,) = re.findall(
        r'^__version__ = "(.*)"$', (ROOT / "tsnb/__init__.py").read_text("utf-8"), re.MULTILINE
    )
    expected = {
        "Name": "tsnb",
        "Version": version,
        "License-Expression": "BSD-3-Clause",
        "License-File": "LICENSE",
    }
    wrong = [
        f"{name} is {metadata[name]!r} in the metadata. Expected {value!r}."
        for name, value in expected.items()
        if metadata[name] != value
    ]
    needed = ("Summary", "Keywords", "Requires-Python", "Requires-Dist")
    wrong += [f"The metadata has no {name}." for name in needed if not metadata[name]]
    if not str(metadata.get_payload()).strip():
        wrong.append("The metadata has no description.")
    return wrong


def write_recipe(sdist: Path, metadata: Message) -> None:
    """Write the conda recipe next to the sdist."""
    folder = sdist.parent / "conda"
    folder.mkdir(exist_ok=True)
    host = ProjectMetadata(str(ROOT), None).build.requires
    (folder / "recipe.yaml").write_text(recipe(metadata, host, sha256(sdist)), "utf-8")
    report(f"wrote the conda recipe {folder / 'recipe.yaml'}")


def chosen(metadata: Message, asked: Sequence[Path] | None) -> dict[str, Path]:
    """Return the Pythons to try the wheel with: those asked for, else one of each version that it names and is here."""
    if asked:
        return {str(python): python for python in asked}
    named = [row.rpartition(" ")[2] for row in metadata.get_all("Classifier", [])]
    versions = [version for version in named if re.fullmatch(r"3\.\d+", version)]
    found = pythons(versions)
    if missing := [version for version in versions if version not in found]:
        report(f"not on this machine, so not tried: Python {', '.join(missing)}")
    return found


def try_on(wheel: Path, with_: dict[str, Path], scratch: Path) -> None:
    """Install the wheel for each Python, alone; import it there and run `tsnb doctor`, with no other program at hand.

    Raises:
        Failed: One of them did not work.
    """
    for version, python in with_.items():
        began = time.monotonic()
        place = scratch / f"env-{Path(version).name}"
        inside = bare(python, place, wheel, ROOT / "constraints.txt")
        alone = str(inside.parent)
        says = "import torch, tsnb; print(tsnb.__version__, 'with torch', torch.__version__)"
        imported = command(inside, "-c", says, cwd=place, path=alone).strip()
        command(inside.with_name("tsnb"), "doctor", cwd=place, path=alone)
        report(f"Python {version}: tsnb {imported}, tsnb doctor passed ({time.monotonic() - began:.0f} s)")
        shutil.rmtree(place)


def left_to_do(metadata: Message) -> list[str]:
    """Return what a person has to do before and when this is published, each as a sentence."""
    version = metadata["Version"]
    steps = []
    if f"## {version} (unreleased)" in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        steps.append(f"Write the date in place of (unreleased) at {version} in CHANGELOG.md, and commit it.")
    if not metadata["Project-URL"]:
        steps.append("Add [project.urls] to pyproject.toml, if the repository has a public address.")
    if f"v{version}" not in command("git", "tag", "--points-at", "HEAD", cwd=ROOT).split():
        steps.append(f"Tag the commit: git tag v{version}")
    return [*steps, "Publish it: python -m twine upload dist/*.whl dist/*.tar.gz"]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def report(line: str) -> None:
    """Print a line now."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
