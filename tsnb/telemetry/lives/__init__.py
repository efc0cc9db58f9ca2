"""The whole life of a stream, from all of its readings. Pure.

| module | what it owns |
|---|---|
| `runs` | runs of one name told apart |
| `spent` | totals: where each trial's seconds went |
| `cpu_time` | CPU seconds of each trial, and of the loader |
| `limits` | what limited the stream, in the sentence that reports and panels end with |
"""
