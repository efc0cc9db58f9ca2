"""Which trials of a sweep end early: the rules for `prune=`.

| module | what it owns |
|---|---|
| `rungs` | `tsnb.search.halving`: at which steps trials are compared, and which of them are stopped there |
| `racing` | which of the trials that see the same batches is ahead now |
| `race_table` | `tsnb.search.race`: that as a table |
| `difference` | the statistics of one pair of trials |
"""
