"""What trials learned, in a report's picture.

| Module | Content |
|---|---|
| `curves` | logged numbers over a trial's batches, as charts |
| `beside` | trials of the notebook that take batches of no stream |
| `outcome` | which trial is best, and how all of them ended, in words |
| `ticks` | the numbers beside an axis |
"""
