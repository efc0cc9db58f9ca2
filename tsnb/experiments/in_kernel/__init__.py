"""What runs in a trial's kernel: getting ready, logging, ending. The notebook never imports it.

| module | what it owns |
|---|---|
| `trial` | the life of the code: enter, run, end |
| `reporting` | what is told of it: logged rows, where in its streams it is, how it ended |
| `others` | what is logged that is not a number |
| `keeping` | what stays of a trial whose code has ended, and the memory that is given back |
| `detaching` | a kernel that outlives its notebook: be found, and end |
"""
