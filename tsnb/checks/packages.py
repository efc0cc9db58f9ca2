"""Which packages are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["installed"]


def installed(package: str) -> str | None:
    """Return a package's version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
