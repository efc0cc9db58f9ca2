"""Many trials from one cell or function: which parameters, how many at once, and which of them end early.

`uniform`, `loguniform`, `randint` and `choice` say where a parameter's values are drawn from.

| module | what it owns |
|---|---|
| `spaces`, `space_grammar` | which parameters the trials get; the same as it is written on a magic's line |
| `planned`, `forecast` | which trials start now by a plan, made anew as they end; its costs and words, of real trials |
| `plan_wish` | what is left to such a plan; `deadline=`, read |
| `pruning` | which trials end early: the rules for `prune=` |
| `population`, `generations` | `tsnb.search.population`: the worst go on as changed clones of the best |
| `folds` | `tsnb.sweep(folds=)`: a trial for each fold, the mean and spread of their scores |
| `sweep`, `starting` | the trials as a mapping and a table; `tsnb.sweep`: what was asked for, checked and settled |
| `settled` | what a sweep runs, a function or a cell; trials that start from one plan; their names |

`tsnb.conducting` runs the trials.
"""

from __future__ import annotations

from tsnb.sweeps.spaces import Distribution, choice, loguniform, randint, uniform

__all__ = ["Distribution", "choice", "loguniform", "randint", "uniform"]
