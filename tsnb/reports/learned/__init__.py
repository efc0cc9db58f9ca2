"""What trials learned, in a report's picture.

| Module | Content |
|---|---|
| `curves` | logged numbers over a trial's batches, as charts |
| `beside` | trials of the notebook that take batches of no stream |
| `duelled` | duels: the verdict, and a bar for each seed |
| `ticks` | the numbers beside an axis |
"""
