"""What this operating system offers, with substitutes for what it lacks: written for Linux and macOS.

| module | asked for | Linux | elsewhere |
|---|---|---|---|
| `memfd.portable` | memory and sockets without names | memfd, SEQPACKET | shm_open and unlink, sockets as files |
| `memfd` | a memfd, whatever Python was built for | yes | no |
| `ties` | ending with the parent process | the kernel does it at once | a thread that looks for the parent |

All layers above ask here, and depend on no operating system.
"""
