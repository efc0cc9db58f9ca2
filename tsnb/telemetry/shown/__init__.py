"""One stream as every screen shows it, from its readings.

| module | what it owns |
|---|---|
| `view` | one stream: rates, sentence, marks |
| `rows` | one trial |
| `frames`, `curves`, `history` | a reading as numbers; learning curves; what is kept of both, and how it is thinned |
| `rates`, `marks` | rates and joules; what changed |
| `ends` | how trials ended, and when some trial was there |
| `diagnosis`, `past` | the sentence that says what limits the stream; the same of one that is over |
| `outcome` | which trial is best, and how all of them ended, in words |
"""
