"""What a stream says about itself: readings, the plain sentence drawn from them, and observers that follow them.

| module | what it owns |
|---|---|
| `readings` | a stream's and a machine's readings as values; their JSON, checked |
| `trial_readings` | of these, what notebooks tell of trials |
| `sample_readings` | of these, what becomes of samples: the cache, and data that grows |
| `observer`, `following` | a connection that reads them; a thread that does |
| `tuning` | how many workers its loader is to have |
| `watching` | one such thread a stream and process, with its view and its history |
| `view`, `view_text` | one stream as every screen shows it: rates, sentence, marks; the same as text |
| `rows` | one trial as screens show it |
| `frames`, `history` | a reading as numbers, and learning curves; what is kept of both, and how it is thinned |
| `recording` | readings in a file |
| `lives/` | a stream's whole life: where each trial's seconds went, and what limited it |
| `rates`, `marks`, `diagnosis` | rates and joules; what changed, and how trials ended; the sentence |
| `outcome` | which trial is best, and how all of them ended, in words |
| `words` | numbers and words as the panel writes them |
| `host` | the producer's and the trials' processes, looked at from outside |
| `eta`, `etas` | an estimate of how long something takes, what a plan says of it; those of a stream's trials |
| `pace_model` | at what pace they go once some have ended |
| `metrics` | `tsnb.log` |
"""
