"""Does this change help? Two arms on one stream, seeds as blocks, and a verdict that may be looked at any time.

| module | what it owns |
|---|---|
| `evidence` | the test: evidence after each block, the interval of the effect, one error for a series of duels |
| `seeds` | a block: one seed, and what both arms came to |
| `verdict` | what the blocks say, in a word and a sentence |
| `ledger` | `.tsnb/duels.jsonl`: what was asked, each block, the verdict; where an interrupted duel continues |
| `data` | the data that it trains on: the stream, and what that tells of its loader |
| `blocks` | the way to real trials |
| `result` | what `tsnb.duel` returns, and its picture in a notebook |
| `grammar`, `starting` | `tsnb.duel`: what may be asked; what was asked, started |
"""
