"""What runs in a trial's kernel: getting ready, logging, ending. The notebook never imports it.

| module | what it owns |
|---|---|
| `steps` | the life of the code: enter, run, end |
| `reporter` | what is told of it: logged rows, where in its streams it is, how it ended |
| `pictures` | what is logged that is not a number: pictures, tables, text |
| `keeping` | what stays of a trial whose code has ended, and the memory that is given back |
| `detaching` | a kernel that outlives its notebook: be found, and end |
"""
