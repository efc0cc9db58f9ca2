"""The processes of background kernels: started, talked to, noticed when they end.

| module | what it owns |
|---|---|
| `child`, `death` | one kernel: start, interrupt, kill; how its end is noticed and explained |
| `channels` | how it is spoken with: code, requests, what it publishes |
| `process` | its process: spawned, forked or adopted; its environment |
| `forking`, `forkserver` | the server that kernels are forked from: its client here, and what it does |
| `launch` | the entry point of a kernel's process |
"""
