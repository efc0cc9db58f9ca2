"""Streams and trials over several machines, on Ray (the extra `tsnb[ray]`). All that knows Ray is here.

The rest of tsnb reaches it through `tsnb.engines` only, which loads `ray_cluster` by its name.
`tsnb.integrations.ray_tune` is an adapter for Ray's own trials, and needs nothing of this.


    producer's machine                       anywhere                  every machine with a consumer
    loader -> local stream -> Feed --put-->  Hub (order, window)  -->  Relay -> local stream -> consumers
                 |                 object store: a batch goes to a machine once
              consumers of this machine

The producer's machine has a stream as ever. The *feed* is one more consumer of it, which puts each batch into Ray's
object store, once, as it lies in its slot. The *hub* decides which machine may have which batch: it runs the same
`stream.decisions` as a local stream, with machines for consumers and references to objects for slots. A *relay* on
each machine copies what it gets into an arena there and serves it under the stream's name: consumers attach as ever.

A trial's kernel on another machine is an ordinary one, started there by an actor that speaks for it.

| module | what it owns |
|---|---|
| `ray_cluster` | the cluster as the rest of tsnb knows it |
| `membership` | this process in a cluster: which one, joining, leaving; finding a stream from any of its machines |
| `offer`, `feed` | a stream over the cluster; the feed |
| `stream_hub`, `hub_dispatch` | the hub's actor; what it decides, pure |
| `stream_relay`, `remote_epochs` | the relay's actor; its source of batches |
| `remote_attempt`, `remote_kernel` | one run through a trial's code there; its kernel, as seen from here |
| `room` | room for a kernel on some machine, and Ray's reasons for a lack of it |
| `actor`, `backlog` | the actor that starts the kernel there, and speaks for it; its messages until they are fetched |
| `remote_run` | the differences in a trial's kernel there |
"""
