"""Which consumer may have which batch, and when: pure decisions, without any socket, clock, thread or tensor.

| module | what it owns |
|---|---|
| `dispatch` | the step: an event and the time go in, instructions come out |
| `events` | those events and instructions |
| `members` | the consumers: where each is, what it holds, what it has had |
| `phases` | the phases of a consumer, and all changes from one to another |
| `timekeeping` | where the time of a consumer goes |
| `epochs` | the epochs, and the batches that are still kept |
| `admission` | which pass over the loader each consumer takes, and which are begun |
| `pacing` | how far each may be ahead or behind, and who is waited for: window, skipping, turns, weights |
| `granting` | batches to consumers, one by one |
| `groups` | the ranks of one training job, which go on together |
| `slow_samples` | which batch a loader begins next, and what each sample costs |
"""
