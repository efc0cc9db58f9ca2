"""Data sets that get more samples while trials train, and rounds of selected samples.

| module | what it owns |
|---|---|
| `grown` | `tsnb.data.grow`: a data set that others add to; finding what is new and whole |
| `sources` | what such a data set grows from, and what is new there |
| `index` | which samples such a data set has: append-only, on disk |
| `order` | the order of an epoch in which samples enter (pure) |
| `log` | which samples entered which epoch at which batch: on disk, so that the epoch can be given again |
| `news` | what a stream tells of a growing data set: rounds that began, samples that entered an epoch |
| `selection` | `tsnb.data.rounds`: when a round of such a data set begins, and which samples it has |
| `inclusion` | which samples a round draws where some are likelier, and their weights (pure) |
| `labels` | the class of each sample |
| `losses` | what trials report of the losses of samples; the same on disk, for the next producer |
"""
