"""Samples that outlive their batch, and data sets that get more of them.

| module | what it owns |
|---|---|
| `choice` | which samples to keep in how much memory; when to give memory back (pure) |
| `memory` | the memory that keeps them: one for all workers, without a name |
| `records` | a sample as bytes, and back |
| `packed` | the same in fewer bytes, where that pays |
| `cut` | where a sample's fixed part ends and its random part begins |
| `learning` | the dataset that workers see: it measures, proves and keeps samples, and takes kept ones |
| `keeper` | the producer's side: which phase it is, memory given back under pressure |
| `pressure` | what of this machine's memory samples may have now |
| `owners` | which other machine keeps which sample (pure) |
| `shard`, `shard_wire` | memory that another machine lends, behind a port; what is said there |
| `lent` | a worker's way to samples that lie on other machines |
| `lenders` | the producer's side of it: who lends, what lies where |
| `grown` | `grow`: a data set that others add to; finding what is new and whole |
| `growth_sources` | what such a data set grows from, and what is new there |
| `growth_index` | which samples such a data set has: append-only, on disk |
| `growth_order` | the order of an epoch in which samples enter (pure) |
| `selection` | `rounds`: when a round of such a data set begins, and which samples it has |
| `inclusion` | which samples a round draws where some are likelier, and their weights (pure) |
| `labels` | the class of each sample |
| `losses` | what trials report of the losses of samples |
| `kept_losses` | the same on disk, for the producer that comes after |
| `growth_log` | what entered which epoch where: on disk, so that it can be given again |
| `growth_news` | what a stream tells of a growing data set: rounds that began, samples that entered an epoch |
"""
