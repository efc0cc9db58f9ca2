"""Background kernels: their processes, their output, and objects on their way to them.

Everything that belongs to another process's kernel happens on one daemon thread (`hub`). What runs in a kernel is the
affair of other packages: trials (`tsnb.experiments`), loaders that are served (`tsnb.hosting`).

| room | what it owns |
|---|---|
| `hub` | the one thread, its loop, its private directory |
| `terminal` | what trials print in a script, on its way to stdout and stderr |
| `door` | where other processes of this user ask something of this one |
| `gate` | where trials of a sweep or a plan that start together wait for each other |
| `beside` | single trials that are started one right after the other wait for each other |
| `ipython_directory` | whether others can put code where IPython runs it in each kernel |
| `thread_limit` | whether a process may begin the threads that it takes, before zmq aborts it without |
| `processes` | kernel processes: how they are started, what they execute, how their end is noticed |
| `cargo` | all that a kernel gets and gives back: variables, settings, orders |
| `output` | a kernel's output, live, to where it belongs |
| `in_kernel` | what runs in the kernel itself |
"""
