"""Rules for `tsnb.sweep`: distributions to draw from, and early stops.

```python
import tsnb

space = {"lr": tsnb.search.loguniform(1e-4, 1e-1), "depth": tsnb.search.randint(2, 6)}
prune = tsnb.search.halving("val_loss", every=1)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.sweeps.generations import population
    from tsnb.sweeps.pruning.race_table import race
    from tsnb.sweeps.pruning.rungs import halving
    from tsnb.sweeps.spaces import choice, loguniform, randint, uniform

__all__ = ["choice", "halving", "loguniform", "population", "race", "randint", "uniform"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "choice": "tsnb.sweeps.spaces",
        "halving": "tsnb.sweeps.pruning.rungs",
        "loguniform": "tsnb.sweeps.spaces",
        "population": "tsnb.sweeps.generations",
        "race": "tsnb.sweeps.pruning.race_table",
        "randint": "tsnb.sweeps.spaces",
        "uniform": "tsnb.sweeps.spaces",
    },
)
