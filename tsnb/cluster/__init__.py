"""Streams and trials over several machines, on Ray (the extra `tsnb[ray]`). All that knows Ray is here.

The rest of tsnb reaches it through `tsnb.engines` only, which loads `ray_cluster` by its name.
`tsnb.integrations.ray_tune` is an adapter for Ray's own trials, and needs nothing of this.


    producer's machine                         every machine with a consumer
    loader -> local stream --TCP connection--> Relay -> local stream -> consumers
                 |           a batch goes to a machine once
              consumers of this machine

    Hub: by which the stream is found; starts relays, and watches them

The producer's machine has a stream as ever. A *relay* on each machine is one more consumer of it, by a TCP connection
to the producer's process. Batches are sent from the slots in which they lie, and received into slots of an arena there.
The relay serves them under the stream's name: consumers attach as ever. Ray finds streams, starts processes and tells
of their death. No batch goes through it.

A trial's kernel on another machine is an ordinary one, started there by an actor that speaks for it.

| module | what it owns |
|---|---|
| `ray_cluster` | the cluster as the rest of tsnb knows it |
| `membership` | this process in a cluster: which one, joining, leaving; finding a stream from any of its machines |
| `offer`, `stream_hub` | a stream over the cluster; the hub's actor |
| `relay_port`, `relay_wire` | the producer's side of relays; what crosses, and its bytes |
| `stream_relay`, `remote_epochs` | the relay's actor; its source of batches |
| `remote_attempt`, `remote_kernel` | one run through a trial's code there; its kernel, as seen from here |
| `room` | room for a kernel on some machine, and Ray's reasons for a lack of it |
| `actor`, `backlog` | the actor that starts the kernel there, and speaks for it; its messages until they are fetched |
| `remote_run` | the differences in a trial's kernel there |
"""
