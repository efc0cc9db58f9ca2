"""Many trials from one cell or function: which parameters, how many at once, and which of them end early.

`uniform`, `loguniform`, `randint` and `choice` say where a parameter's values are drawn from.

| module | what it owns |
|---|---|
| `spaces`, `space_grammar` | which parameters the trials get; the same as it is written on a magic's line |
| `planned`, `forecast` | which trials start now by a plan, made anew as they end; its costs and words, of real trials |
| `plan_wish` | what is left to such a plan, and by when all are to be done |
| `early` | which trials are started a moment early where there is no plan |
| `wall_clock` | `deadline=`, read; times of the day as text |
| `rungs` | at which steps trials are compared, and which of them are stopped there |
| `racing`, `race_table` | which of the trials that see the same batches is ahead now; that as a table |
| `difference` | the statistics of one pair of them |
| `conductor` | the way of all these decisions to real trials, and their common start |
| `population`, `generations` | `tsnb.search.population`: the worst go on as changed clones of the best |
| `folds` | `tsnb.sweep(folds=)`: a trial for each fold, the mean and spread of their scores |
| `sweep`, `starting` | the trials as a mapping and a table; `tsnb.sweep`: what was asked for, checked and settled |
| `settled`, `cell_plans`, `names` | trials that start from one plan; their names |
"""

from __future__ import annotations

from tsnb.sweeps.spaces import Distribution, choice, loguniform, randint, uniform

__all__ = ["Distribution", "choice", "loguniform", "randint", "uniform"]
