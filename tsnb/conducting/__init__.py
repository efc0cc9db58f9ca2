"""Several trials run by one loop: which start when, and which end early, is decided by two parts that are pure.

| module | what it owns |
|---|---|
| `conductor` | the loop: starts trials, together where possible, hears their news, stops those that are cut |
| `rule` | what says which trials end early, or are replaced by a clone of a better one |
| `live_places` | which trials start now, by what is seen of those that run |

What says which trials start now is a `tsnb.planners.queueing.Places`: a list that was given, what a study is asked for,
or a plan. A sweep, a study of Optuna, a population and `Plan.run` are each such places, and perhaps a rule.
"""
