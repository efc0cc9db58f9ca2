"""Decisions on who gets how many cores and threads. Pure: what was observed goes in, instructions come out.

| module | what it owns |
|---|---|
| `parties` | the vocabulary: who takes part, what was observed, what can be done |
| `estimating` | what each party did, and how fast it would be on other cores |
| `dividing` | how many cores each gets, and which |
| `scheduling` | how long unequal trials take, together or in turn, and a good order |
| `balancing` | when cores and threads move, and when they are given back |
"""
