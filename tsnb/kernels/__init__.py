"""Background kernels: their processes, their output, and objects on their way to them.

Everything that belongs to another process's kernel happens on one daemon thread (`hub`). What runs in one is another
room's affair: trials (`tsnb.experiments`), loaders that are served (`tsnb.streams`).

| module | what it owns |
|---|---|
| `capture` | which variables a cell reads, before anything is started |
| `shipping`, `pickling`, `obstacles` | objects on their way to another kernel, and why one cannot travel |
| `cargo`, `lane` | the file without a name in which they travel; the line on which it does |
| `hub` | the one thread, its loop, its private directory |
| `child`, `death` | one kernel process: start, execute, interrupt, kill, notice its death |
| `processes` | its process: spawned, forked or adopted |
| `variables` | its environment, and what of it a fork would come too late for |
| `forking`, `forkserver` | the server that kernels are forked from: its client here, and what it does |
| `launch`, `inside` | what runs in the child |
| `remote`, `room`, `remote_errors` | one on a machine of a Ray cluster, as seen from here; room for it; Ray's errors |
| `actor`, `outbox` | what starts it there, and speaks for it; what it has to tell, until that is fetched |
| `relay`, `outlets` | a child's output, live, to where it belongs |
| `capping`, `logfile`, `transcript`, `screen` | that output as a cell shows it, a file keeps it, a terminal draws it |
| `orders` | what a child is told to do, and an answer that is an error |
"""
