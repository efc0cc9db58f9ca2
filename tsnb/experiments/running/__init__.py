"""What happens to a trial, on the thread of the kernels' hub.

| module | what it owns |
|---|---|
| `states` | the states of a trial, and what leads from one to the next; pure |
| `trial_life`, `own_life` | one trial; its turn and restarts if it was started here |
| `attempt`, `branches` | one kernel, for one run through its code; clones of that kernel |
| `starts` | where its code begins: from the top, or as the clone of another trial |
| `engine` | where trials run: this machine, or a cluster (`tsnb.cluster`) |
"""
