"""A batch as its user gets it.

| module | what it owns |
|---|---|
| `unpacking`, `leaves` | a slot as tensors; each tensor, array and object in it |
| `rebatching`, `parts` | batches of another size; which rows are its own |
| `device` | batches on a GPU: shared there, or copied ahead |
"""
