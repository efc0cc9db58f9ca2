"""The ipykernel application of a kernel of ours: nothing runs in it that another user could have put there.

What it makes on its way has mode 0700 or 0600, whatever the umask. When the user's own code comes, such as a file in
IPython's `startup`, the process has its umask and its environment again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from ipykernel.kernelapp import IPKernelApp

from tsnb.kernels.ipython_directory import check_ipython, ipython_directory

__all__ = ["KernelApplication"]


class KernelApplication(IPKernelApp):
    """ipykernel's application, begun with a private umask and with a directory of IPython's that is safe."""

    def initialize(self, argv: Any = None) -> None:
        """Get ready; what is made is this user's alone, until the user's own code runs.

        Args:
            argv: `-f`, the connection file, options.
        """
        assert argv is not None
        self._umask, self._named = os.umask(0o077), os.environ.get("IPYTHONDIR")
        private = _private_instead(Path(argv[1]))
        if private is not None:
            os.environ["IPYTHONDIR"] = str(private)
        self._beginning = True
        try:
            super().initialize(argv)  # type: ignore[no-untyped-call]
        finally:
            self._begun()

    def init_extensions(self) -> None:
        """Load extensions, the first of the user's own code."""
        self._begun()
        super().init_extensions()  # type: ignore[no-untyped-call]

    def _begun(self) -> None:
        if not self._beginning:
            return
        self._beginning = False
        os.umask(self._umask)
        if self._named is None:
            os.environ.pop("IPYTHONDIR", None)
        else:
            os.environ["IPYTHONDIR"] = self._named


def _private_instead(connection_file: Path) -> Path | None:
    """Return an empty directory to use in place of IPython's; None: only this user can change its own.

    Args:
        connection_file: The kernel's, whose directory is private and goes with the kernel's process or the hub.
    """
    place = ipython_directory(os.environ)
    with contextlib.suppress(OSError):  # IPython says what it does instead
        place.mkdir(mode=0o700)
    try:
        check_ipython(place)
    except OSError:
        private = connection_file.parent / "ipython"
        with contextlib.suppress(FileExistsError):
            private.mkdir(mode=0o700)
        return private
    return None
