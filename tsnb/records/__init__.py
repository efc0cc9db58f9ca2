"""The records of a project's trials: read, tag, export and delete them.

They are a small SQLite file and logs in `.tsnb/`.

| module | what it owns |
|---|---|
| `project` | which directory the records are stored in |
| `database` | the file: its tables, transactions, versions |
| `writes` | the writes of a run: its start (`RunStart`), one `tsnb.log` (`LoggedRow`) |
| `run` | one run, for its writers (`Run`) |
| `kept` | the states of its training that a run has kept |
| `reading` | runs as the file has them |
| `scores` | which way a metric is good (`direction`), and which trial is the best in it |
| `selection` | which runs a question is about; `tag`, `delete` |
| `commits` | the commit that a run started from; whether files differ from it |
| `tables` | `results`, `history` and `compare`; `export` |
| `dataframe` | what `results`, `history` and `compare` return where pandas is installed |
| `detached_entries` | where other notebooks find the trials that outlive theirs |
| `notices` | a call at each end: `notify` |
| `trackers` | the same numbers in TensorBoard, MLflow, trackio, W&B |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsnb.lazy import lazily

if TYPE_CHECKING:
    from tsnb.records.notices import notify
    from tsnb.records.scores import direction
    from tsnb.records.selection import delete, tag
    from tsnb.records.tables import export, history

__all__ = ["delete", "direction", "export", "history", "notify", "tag"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "delete": "tsnb.records.selection",
        "direction": "tsnb.records.scores",
        "export": "tsnb.records.tables",
        "history": "tsnb.records.tables",
        "notify": "tsnb.records.notices",
        "tag": "tsnb.records.selection",
    },
)
