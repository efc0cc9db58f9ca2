"""All trials of this process, and what others ask of them.

| module | what it owns |
|---|---|
| `board`, `trials_table` | all trials of this process; the same as a table |
| `requests` | what the command line asks of this process |
| `detached` | a detached trial of another notebook: following it, and ending it |
"""
