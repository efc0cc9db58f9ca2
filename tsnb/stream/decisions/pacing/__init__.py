"""Pacing: how far each consumer may be ahead or behind, and who is waited for.

`Dispatch` asks, and nothing else decides. It runs under the producer's lock, in the process that serves the stream:
in the serving thread for what consumers say and for the clock, in the loading thread for what the loader gives.

| module | what it owns |
|---|---|
| `contract` | what a policy answers (`Policy`), and those that a stream follows (`Policies`) |
| `drift` | in step: what bounds all of them, however they are paced. Window, batches to keep, who stands still |
| `positions` | where the consumers are, counted by index: the lowest place without a look at all of them |
| `skipping` | consumers that would rather give up batches than hold others up |
| `turns` | more consumers than are to compute at once, which take windows of batches by turns |
| `balance` | compute is divided by weight: who has had more than its share is granted its next batch later |

A stream in step follows no policy, so a batch costs it no call here. Who asks what, and when:

| when | who asks | what |
|---|---|---|
| a consumer attaches, goes, or asks for an epoch | `Dispatch` | `joined`, `left`, `asked` |
| it takes a batch, and who may have one since | `Dispatch` | `took`, `to_look_at` |
| it waits for a batch, or leaves its epoch | `Dispatch`, `Granting` | `waits` |
| it is about to be granted what it may have | `Granting` | `give_up`, `limit` |
| who holds the loader, where that is not known from before | `Drift` | `waited_for` |
| time has passed; all are about to be granted what they may have | `Dispatch` | `tick`, `settle` |
| what the window holds at least; when to look again | `Dispatch` | `reach`, `due_s` |
"""
