"""The notebook's side: magics, their completion, and the panel with stop buttons and a log pane that know the trials.

| module | what it owns |
|---|---|
| `extension` | `%load_ext tsnb`: registers everything, and takes it out again |
| `magics` | the three magics: parse, call, nothing else |
| `grammar` | one parser a subcommand, with did-you-mean |
| `magic_help` | the magics' help, made from the parsers |
| `streams`, `runs` | what the subcommands do: `%tensorsocket`; `%%trial`, one or many, and `%trials` |
| `panels`, `stills` | `tsnb.dashboard`, `tsnb.streams.replay`: the panel in a cell or beside it; its saved picture |
| `trial_logs` | what the panel shows of this notebook's trials, and may have done to them |
| `report_cells` | reports in cells, recordings |
| `batch` | what is different where a notebook is run as a whole (nbconvert, papermill) |
| `completion` | subcommands, variables, names and options at the Tab key |
"""
