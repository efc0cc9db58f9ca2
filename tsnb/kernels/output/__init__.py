"""A background kernel's output, live, to where it belongs.

| module | what it owns |
|---|---|
| `relay` | the way of each piece of output: to its cell, to the log file, to the transcript |
| `outlets`, `waiting_line` | the cell under which it stands; the line there that says what is waited for |
| `marimo_cells` | the same where the notebook is one of marimo's |
| `marking` | the lines of several trials under one cell, each with its trial's name |
| `capping` | how much of it a cell shows |
| `logfile`, `transcript` | all of it in a file, within a bound; its last lines in memory |
| `screen` | text as a terminal draws it: carriage returns, progress bars |
"""
