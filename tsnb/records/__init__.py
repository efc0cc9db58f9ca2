"""What a project remembers of its trials: a small SQLite file and logs in `.tsnb/`, and how it is read again.

| module | what it owns |
|---|---|
| `rows` | one `tsnb.log` as it is kept |
"""

from __future__ import annotations
