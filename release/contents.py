"""What a wheel and an sdist hold: the files of the commit and the panel's bundle, nothing else, and no secret."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["BUNDLE", "files_of", "strangers", "told_secrets"]

BUNDLE = frozenset({"tsnb/panel/static/panel.js", "tsnb/panel/static/panel.css"})
"""The built panel: git does not know it, and both archives carry it."""
SECRETS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/]"),
    "a token of GitHub": re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{36}"),
    "a token of PyPI": re.compile(rb"\bpypi-AgEI[A-Za-z0-9_-]{16}"),
    "a token of Hugging Face": re.compile(rb"\bhf_[A-Za-z0-9]{30}"),
    "a key of AWS": re.compile(rb"\bAKIA(?![0-9A-Z]*EXAMPLE)[0-9A-Z]{16}\b"),  # AWS marks examples so
    "a password in an address": re.compile(
        rb"https?://[^\s/:@\"'{}$<>]+:[^\s/:@\"'{}$<>]{6,}@[a-z0-9.-]+\.[a-z]{2,}"
    ),
}


def files_of(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or an sdist, without an sdist's own folder, by name."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    found = {}
    with tarfile.open(archive) as sdist:
        for member in sdist:
            content = sdist.extractfile(member)
            if content is not None:
                found[member.name.partition("/")[2]] = content.read()
    return found


def strangers(archive: Path, names: Iterable[str], committed: Iterable[str]) -> list[str]:
    """Return what an archive holds and should not, and what it lacks, each as a sentence.

    Args:
        archive: The wheel or sdist.
        names: Its files.
        committed: The files of the commit that it was built from.
    """
    there, tracked = set(names), set(committed)
    if archive.suffix == ".whl":
        package = {name for name in tracked if name.startswith("tsnb/")}
        expected = {name for name in package if not name.startswith("tsnb/panel/frontend/")}
        info = "-".join(archive.name.split("-")[:2]) + ".dist-info"
        parts = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
        expected |= {f"{info}/{part}" for part in parts}
    else:
        expected = {name for name in tracked if not name.startswith(".ci/")} | {"PKG-INFO"}
    expected |= BUNDLE
    return [
        *(f"{archive.name} holds {name}, which is not in the commit." for name in sorted(there - expected)),
        *(f"{archive.name} lacks {name}." for name in sorted(expected - there)),
    ]


def told_secrets(archive: Path, files: Mapping[str, bytes], places: Iterable[str]) -> list[str]:
    """Return which files tell a secret, or a path of the machine that built them, each as a sentence.

    Args:
        archive: The wheel or sdist.
        files: Its files, by name.
        places: Folders of this machine that no file may name.
    """
    kinds = {**SECRETS, **{f"the path {place}": re.compile(re.escape(place.encode())) for place in places}}
    return [
        f"{archive.name}: {name} holds {kind}."
        for name, content in sorted(files.items())
        for kind, pattern in kinds.items()
        if pattern.search(content)
    ]
