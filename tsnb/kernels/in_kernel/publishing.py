"""Messages from a background kernel to its notebook, beside what Jupyter knows.

Each is one of our own kinds on the kernel's output channel, which no front end shows.
"""

from __future__ import annotations

from typing import Any

__all__ = ["publish"]


def publish(kind: str, content: dict[str, Any]) -> None:
    """Send one message on this kernel's output channel. From any thread."""
    from IPython.core.getipython import get_ipython

    kernel: Any = get_ipython().kernel  # type: ignore[union-attr]
    kernel.session.send(kernel.iopub_socket, kind, content, ident=f"kernel.{kind}".encode())
