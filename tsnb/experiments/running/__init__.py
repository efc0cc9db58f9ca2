"""What happens to a trial, on the thread of the kernels' hub.

| module | what it owns |
|---|---|
| `trial_life`, `own_life` | one trial; its turn and restarts if it was started here |
| `attempt`, `branches` | one kernel, for one run through its code; clones of that kernel |
| `clones` | trials that begin as clones of others |
| `engine` | where trials run: this machine, or a cluster (`tsnb.cluster`) |
"""
