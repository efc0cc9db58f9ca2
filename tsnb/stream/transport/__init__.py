"""Channels that carry packets, whole and in order, between a producer and the processes that attach.

| module | what it owns |
|---|---|
| `channel` | the contract, and the outbox that makes sending never block |
| `local` | listening and connecting on this machine |
| `seqpacket`, `stream` | the channel on Linux; the one for systems without SEQPACKET |
| `sockets` | what both share: taking connections, and whose process is at the other end |
| `loopback` | the channel inside one process, for simulations |
"""
