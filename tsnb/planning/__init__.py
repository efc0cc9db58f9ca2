"""Before hours are spent on trials: which fit together, how long they take, and the best way done. `tsnb.plan`.

| module | what it does |
|---|---|
| `wishes` | what is to be planned: functions, or trials for their cells; what is left to a plan: threads, values |
| `profiling` | runs each trial for some batches on one stream, alone and together |
| `waves` | of these, those that run at once: behind a gate, as many as fit the memory; about how long that takes |
| `trial_costs` | what was seen of a trial meanwhile: what a sample costs it, and its memory |
| `served` | the same on a stream that is there already, for a planned sweep |
| `ways` | pure: the ways there are, foretold; how far that may be off; which one, and why in words |
| `predicting` | `plan`: measures, plays every way, and chooses |
| `result` | `Plan`, which it returns: a table, a Gantt chart as text, `run()` |
| `places` | where each trial runs: now, later or nowhere, and why; what one that is too large can do |
| `conducting` | carries a way out |

How long is foretold by `tsnb.planners.scheduling` from what `tsnb.stalling` measures of the loader.
"""

from tsnb.planning.predicting import plan
from tsnb.planning.result import Plan
from tsnb.planning.trial_costs import Cost
from tsnb.planning.ways import Foretold

__all__ = ["Cost", "Foretold", "Plan", "plan"]
