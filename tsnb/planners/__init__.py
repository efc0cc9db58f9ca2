"""Decisions: which trial starts when, with what, on how many cores; what a loader prepares next, with how many workers.

Pure: observations go in, instructions come out.

| module | what it owns |
|---|---|
| `parties` | parties, observations, instructions; what each did, and how fast it would be on other cores |
| `dividing` | how many cores each gets, and which |
| `tuning` | how many workers a loader gets, and how far each works ahead |
| `fluid` | trials and their resources, as the planners take them; how fast unequal trials go beside each other |
| `scheduling` | how long unequal trials take, together or in turn, a good order, and bounds that none beats |
| `strategies` | with how many torch threads each of them runs, on which GPU, and what else it is given |
| `queueing` | which trials start now: as many as there are places, and the next ones a moment early |
| `timeline` | when planned trials start and end: as planned, as it was, as foretold now |
| `balancing` | when cores and threads move, and when they are given back |
"""
