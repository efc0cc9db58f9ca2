"""What this operating system offers, with substitutes for what it lacks: written for Linux and macOS.

| module | asked for | Linux | elsewhere |
|---|---|---|---|
| `memfd.portable` | memory and sockets without names | memfd, SEQPACKET | shm_open and unlink, sockets as files |
| `memfd` | a memfd, whatever Python was built for | yes | no |
| `processes` | alive, stopped, whose children | /proc, microseconds | psutil, a hundred times as long |
| `owners` | which process owns something, and whether it lives | boot and namespace too | host and process |
| `processes.watch` | a descriptor that announces an end | pidfd | none: callers look now and then |
| `ties` | ending with the parent process | the kernel does it at once | a thread that looks for the parent |
| `processes.usable_cores` | how many cores a process may use | those of its affinity | all of the machine |

All layers above ask here, and depend on no operating system.
"""
