"""What there is on this machine, and what works here: `tsnb.devices`, `tsnb.doctor`.

| module | what it owns |
|---|---|
| `examining` | all checks, one after the other; those that serve a loader and start a trial |
| `machine` | those that only look: the machine, the directories in use, the panel's packages |
| `hosts` | editors and marimo: what shows this notebook where JupyterLab does not |
| `findings` | what was found, and how it is shown |
| `devices` | GPUs, cores and the processes that use them, as a table; does not need torch |
"""
