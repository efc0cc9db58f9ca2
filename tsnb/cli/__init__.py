"""The command line: `tsnb COMMAND`; `tsnb --help` lists them. No logic of its own.

| module | what it owns |
|---|---|
| `commands` | all commands in the order of the help, those about this machine, and a command's exit status |
| `streams` | what the commands about one stream do |
| `measuring` | `tsnb stalls`, `tsnb plan`, `tsnb place`: before hours are spent |
| `trials` | `tsnb sweep`, `tsnb results` |
| `arguments` | what `MODULE:NAME` stands for |
"""

from __future__ import annotations

from tsnb.cli.commands import main

__all__ = ["main"]
