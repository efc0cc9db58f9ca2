"""What is built on a stream, each in a module of its own: the producer's half of it, and that of a consumer.

The stream imports none of them. `protocol.extension` says what they may do, and who calls them.

| module | what it owns |
|---|---|
| `readings` | what observers are told about a stream and its consumers |
| `metrics` | the last numbers of `tsnb.log` |
| `live` | live values that are changed and shown from outside |
| `growth`, `rounds` | a data set that grows; rounds of it, and the losses that they are chosen by |
| `pacing` | how compute is divided, where an observer changes it |
| `tuning` | how many workers the loader has: a number, or one that is found |
| `cores`, `allotment` | cores and threads that are moved: the balancer; what a trial's process was given |
| `cache` | prepared samples that are kept |
| `frozen` | the frozen part of a network, computed once for all trials |
| `ends` | how trials ended, and what notebooks tell of those that are to come |
"""
