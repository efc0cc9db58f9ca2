"""Carrying out what `planners` decides: cores and threads of real processes.

| module | what it owns |
|---|---|
| `affinity` | which cores processes may use; one party's processes, moved and put back |
| `told` | what it and the trials' processes tell each other |
| `controller` | the thread that observes, asks the planner and carries out; one a user |
"""
