"""What trials learned, in a report's picture.

| Module | Content |
|---|---|
| `curves` | logged numbers over a trial's batches, as charts |
| `beside` | trials of the notebook that take batches of no stream |
| `ticks` | the numbers beside an axis |
"""
