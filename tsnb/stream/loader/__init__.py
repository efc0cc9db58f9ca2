"""The user's loader: iterated, repeated where possible, its batches written into slots.

| module | what it owns |
|---|---|
| `sources` | where batches come from: a DataLoader, any other iterable, a function that makes one |
| `dataloader` | a DataLoader whose workers write into the arena |
| `facts` | what can be told of one without iterating it, and of its dataset |
| `tickets`, `collate` | what its workers are told and answer; collating into a slot |
| `workers` | what they need beside; they are forked while other threads go on, and end with their producer |
| `crew` | the order in which batches are begun, and given |
| `queues` | queues to the workers and back, and one line of tickets for all of them |
| `packing`, `leaves` | a batch in a slot; each tensor, array and object of it |
| `repeating` | whether an epoch can be given again in the same order, and beginning in the middle of one |
| `identity` | by what code and values an order is known |
| `generators` | what it draws from beside a training in the same process |
| `seams` | contracts: what a source gives, its workers, what may stand in for its order and its samples |
"""
