"""What Ray says of a lost actor, in the words of who started a trial."""

from __future__ import annotations

from tsnb.clusters import last_words

__all__ = ["LEFT", "cannot_start", "cause_of_loss"]

LEFT = "this process has left the Ray cluster (ray.shutdown(), or its end), and what it started there ends with it"


def cause_of_loss(said: str, host: str) -> str:
    """Say why an actor has gone: one line, then Ray's own words.

    Args:
        said: Ray's message.
        host: The name of its machine, or words for it.
    """
    low = said.lower()
    if "node has died" in low or "node was terminated" in low or "node died" in low:
        first = f"{host} is lost to the cluster: the machine, its network or its Ray has ended"
    elif "running low on memory" in low or "node_out_of_memory" in low:
        first = f"Ray has ended it on {host}, where memory ran out: use a smaller batch or model, or fewer at once"
    else:
        first = f"Ray's process that its kernel on {host} belonged to has ended"
    return f"{first}\n{said.strip()}"


def cannot_start(error: BaseException) -> str:
    """Say why a kernel cannot be started on a machine of the cluster.

    Args:
        error: What Ray has raised.
    """
    return (
        f"a kernel cannot be started on a machine of the cluster: {last_words(error)}. Every machine needs the same "
        "version of tsnb, and what that needs (docs/cluster.md)."
    )
