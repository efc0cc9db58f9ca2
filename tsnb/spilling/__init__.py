"""Models whose parameters and optimizer states do not fit into memory: `tsnb.spill`.

| module | what it owns |
|---|---|
| `pages` | tensors in a file without a name, and which of them are in memory |
| `spilled` | a model and its optimizer over such tensors: stepped one parameter at a time, during `backward` |
"""
