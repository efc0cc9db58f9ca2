"""Many trials from one cell or function: which parameters, how many at once, and which of them end early.

| module | what it owns |
|---|---|
"""

from __future__ import annotations
