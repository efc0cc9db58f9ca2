"""What this operating system offers, with substitutes for what it lacks: written for Linux and macOS.

| module | asked for | Linux | elsewhere |
|---|---|---|---|
| `memfd.portable` | memory and sockets without names | memfd, SEQPACKET | shm_open and unlink, sockets as files |
| `memfd` | a memfd, whatever Python was built for | yes | no |
| `ties` | ending with the parent process | the kernel does it at once | a thread that looks for the parent |
| `endings`, `forks` | interrupts at an object's end, or during a fork: raised after it | the same | the same |
| `mapped` | mappings at an address, or of a file without a descriptor | the same | the same |
| `frames` | the frames in which all threads are | the same | the same |
| `start_line` | a Python started with `-c` that imports nothing from the working directory | the same | the same |
| `sweeping` | removing a directory when the process that uses it has gone | a shell on a pipe | the same |

All layers above ask here, and depend on no operating system.
"""
