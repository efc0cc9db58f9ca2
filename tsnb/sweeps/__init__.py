"""Many trials from one cell or function: which parameters, how many at once, and which of them end early.

`uniform`, `loguniform`, `randint` and `choice` say where a parameter's values are drawn from.

| module | what it owns |
|---|---|
| `spaces`, `space_grammar` | which parameters the trials get; the same as it is written on a magic's line |
| `queueing` | which trials start now |
| `planned`, `forecast` | the same by a plan, which is made anew as they end; its costs and words, of real trials |
| `rungs` | at which steps trials are compared, and which of them are stopped there |
| `racing`, `difference` | which of the trials that see the same batches is ahead now; the statistics of one pair |
| `conductor` | the way of all these decisions to real trials, and their common start |
| `population` | `tsnb.population`: the worst of some trials go on as changed clones of the best |
| `folds` | `tsnb.crossval`: a trial for each fold, the mean and spread of their scores |
| `sweep`, `starting`, `marking` | the trials as a mapping and a table; `tsnb.sweep`; whose line of output is whose |
"""

from __future__ import annotations

from tsnb.sweeps.spaces import Distribution, choice, loguniform, randint, uniform

__all__ = ["Distribution", "choice", "loguniform", "randint", "uniform"]
