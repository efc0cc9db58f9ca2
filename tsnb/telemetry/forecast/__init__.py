"""When trials end, as far as that can be said.

| module | what it owns |
|---|---|
| `eta` | an estimate of how long something takes |
| `etas` | those of a stream's trials, and what a plan says of it |
| `pace_model` | at what pace trials go once some have ended |
"""
