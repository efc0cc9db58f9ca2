"""What this operating system offers, and what stands in for what it does not: written for Linux and macOS.

| module | asked for | Linux | elsewhere |
|---|---|---|---|
| `memfd.portable` | memory and sockets without names | memfd, SEQPACKET | shm_open and unlink, sockets as files |
| `memfd` | a memfd, whatever Python was built for | yes | no |
| `processes` | alive, stopped, whose children | /proc, microseconds | psutil, a hundred times as long |
| `owners` | to whom something belongs, and whether that process lives | boot and namespace too | host and process |
| `processes.watch` | a descriptor that tells of an end | pidfd | none: whoever waits looks now and then |
| `ties` | ending with the parent process | the kernel does it at once | a thread that looks for the parent |
| `processes.usable_cores` | how many cores a process may use | those of its affinity | all of the machine |

Everything above asks here and knows no operating system.
"""
