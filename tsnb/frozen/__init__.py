"""The frozen part of a network, computed once per batch for all trials: `tsnb.serve(loader, then=trunk)`.

| module | what it owns |
|---|---|
| `applying` | where a network finds its inputs in a batch, and what becomes of the batch |
| `part` | the frozen part as the stream runs it: without gradients, timed, tried twice on the first batch |
| `reaching` | the networks and tensors that its code can reach |
| `ran` | the tensors that its first batch used besides |
| `changes` | whether their numbers and modes are those of the start |
| `refusals` | what is refused: dropout and batch norm in training mode, results that differ |
| `raised` | what it raised, as its user should read it |
| `on_device` | a frozen part on a GPU, which the serving process computes |
| `loaders` | a loader whose batches have gone through a frozen part |
| `counters` | how long it has computed, in memory that all workers share |
| `features` | a cache of what was computed, by sample |
| `rows` | batches as rows of bytes, and back |
"""
