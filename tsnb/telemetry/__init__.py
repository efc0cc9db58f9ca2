"""What a stream says about itself: readings, the plain sentence drawn from them, and observers that follow them.

| module | what it owns |
|---|---|
| `readings` | a stream's and a machine's readings as values; their JSON, checked |
| `trial_readings` | of these, what notebooks tell of trials |
| `sample_readings` | of these, what becomes of samples: the cache, and data that grows |
| `observer`, `following` | a connection that reads them; a thread that does |
| `tuning` | how many workers its loader is to have |
| `watching` | one such thread a stream and process, with its view and its history |
| `recording` | readings in a file |
| `lives/` | a stream's whole life: where each trial's seconds went, and what limited it |
| `host` | the producer's and the trials' processes, looked at from outside |
| `metrics` | `tsnb.log` |
| `shown/` | one stream as every screen shows it |
| `forecast/` | when trials end, as far as that can be said |
"""
