"""Streams over several machines, on Ray (the extra `tsnb[ray]`).

    producer's machine                       anywhere                  every machine with a consumer
    loader -> local stream -> Feed --put-->  Hub (order, window)  -->  Relay -> local stream -> consumers
                 |                 object store: a batch goes to a machine once
              consumers of this machine

The producer's machine has a stream as ever. The *feed* is one more consumer of it, which puts each batch into Ray's
object store, once, as it lies in its slot. The *hub* decides which machine may have which batch: it runs the same
`producer.decisions` as a local stream, with machines for consumers and references to objects for slots. A *relay* on
each machine copies what it gets into an arena there and serves it under the stream's name: consumers attach as ever.

| module | what it owns |
|---|---|
| `serving`, `feed` | `serve`, here or over a cluster; the feed |
| `hub`, `cluster_dispatch` | the hub's actor; what it decides, pure |
| `relay`, `remote_epochs` | the relay's actor; its source of batches |
| `membership` | this process in a cluster: which one, joining, leaving |
"""
