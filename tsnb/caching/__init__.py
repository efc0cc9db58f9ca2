"""Samples that outlive their batch: a cache of prepared samples, here and on other machines.

| module | what it owns |
|---|---|
| `choice` | which samples to keep in how much memory; when to give memory back (pure) |
| `memory` | the memory that keeps them: one for all workers, without a name |
| `encoding` | a sample as bytes, and back; in fewer bytes where that pays |
| `cut` | `tsnb.data.cache`: where a sample's fixed part ends and its random part begins |
| `learning` | the dataset that workers see: it measures, proves and keeps samples, and takes kept ones |
| `keeper` | the producer's side: which phase it is, memory given back under pressure |
| `pressure` | how much of this machine's memory samples may have now |
| `owners` | which other machine keeps which sample (pure) |
| `shard`, `shard_wire` | memory that another machine lends, behind a port; the messages on that port |
| `token_listener` | a TCP port that speaks only with those who know a token |
| `lent` | a worker's way to samples on other machines |
| `lenders` | the producer's side of it: which machines lend memory, and what each of them keeps |
"""
