"""All that a background kernel gets and gives back: the variables a cell reads, how they travel, and orders.

| module | what it owns |
|---|---|
| `capture`, `mentions` | which variables a cell reads, before anything is started; those that it names in text |
| `shipping` | objects written to a file without a name, and read from it; the lines of their cells for tracebacks |
| `pickling`, `unpickling`, `obstacles` | how objects are written and read, and why one cannot travel |
| `imported`, `edits` | what the notebook has changed in what it imported; what its code says of that |
| `unnamed_file`, `lane` | the file in which they travel; the line on which it does |
| `numerics` | torch's and numpy's settings, as the notebook has them |
| `orders` | orders to a kernel, as code, and an answer that is an error |
"""
