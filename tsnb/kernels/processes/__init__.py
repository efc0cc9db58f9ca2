"""The processes of background kernels: started, talked to, noticed when they end.

| module | what it owns |
|---|---|
| `child`, `death` | one kernel: start, execute, interrupt, kill; how its end is noticed and explained |
| `process` | its process: spawned, forked or adopted; its environment |
| `forking`, `forkserver` | the server that kernels are forked from: its client here, and what it does |
| `launch` | the entry point of a kernel's process |
"""
