"""What a project remembers of its trials: a small SQLite file and logs in `.tsnb/`, and how it is read again.

| module | what it owns |
|---|---|
| `rows` | one `tsnb.log` as it is kept |
| `project` | which directory the records lie in |
| `database` | the file: its tables, transactions, versions |
| `keeping`, `copying` | what is written of a run; whole copies of files |
| `run` | one run, for those who write it (`Run`, `RunStart`) |
| `current` | the run that this process is (`enter_run`), `log_artifact` |
| `reading` | runs as they stand in the file |
| `scores` | which way a metric is good (`direction`), and which trial is the best in it |
| `choosing` | which runs a question is about |
| `tags`, `removal` | `tag`, `delete` |
| `commits` | the commit that a run started from |
| `tables`, `comparing`, `exporting` | `results` and `history`, `compare`, `export` |
| `frames` | what `results`, `history` and `compare` return where pandas is installed |
| `bridges`, `trackers` | the same numbers in TensorBoard, MLflow, W&B |
"""

from __future__ import annotations
