"""The command line: `tsnb COMMAND`; `tsnb --help` lists them. No logic of its own.

| module | what it owns |
|---|---|
| `commands` | all commands in the order of the help, those about this machine, and a command's exit status |
| `streams` | what the commands about one stream do |
| `measuring` | `tsnb stalls`, `tsnb plan`: before hours are spent |
| `trials` | `tsnb sweep`, `tsnb results`, `tsnb logs` |
| `tools` | the commands as tools for programs, made from their parsers |
| `mcp_server` | `tsnb mcp`: these tools over the Model Context Protocol |
| `arguments` | what `MODULE:NAME` stands for |
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (`commands.main`).

    Until all commands are imported, some tenths of a second, Ctrl-C just ends this process: nothing has begun, and
    Python would show where in an import it was, or drop the interrupt.

    Args:
        arguments: The words after `tsnb`; by default those of this process.

    Returns:
        The exit status.
    """
    try:
        begins = "tsnb.cli.commands" not in sys.modules and _ours()
        if begins:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            from tsnb.cli.commands import main as run
        finally:
            if begins:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        return run(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _ours() -> bool:
    """Whether an interrupt is Python's own to handle: not ignored, nor handled by who calls this."""
    main_thread = threading.current_thread() is threading.main_thread()
    return main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
