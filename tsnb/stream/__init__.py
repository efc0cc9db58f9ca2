"""A stream: batches of one loader, delivered to several training loops. Knows no kernel, notebook, trial or screen.

| room | what it owns |
|---|---|
| `protocol` | what is said between processes: messages, layouts, trees; the seam of extensions |
| `transport` | packets, whole and in order, between processes |
| `memory` | shared memory: one arena, its slots, the leases on them |
| `decisions` | which consumer may have which batch, and when: pure |
| `loader` | the user's loader, and its batches in slots |
| `producer` | the process that serves: its threads, its lock, its door |
| `consumer` | a training loop's side |
| `hashing` | one hash of whole numbers: folds, orders of growing data, who keeps which sample |
| `this_process` | the process that consumers live in: what a trial's kernel chose for them, and does at their steps |

Features are built on a stream by way of `protocol.extension`. `tsnb.serving` and `tsnb.attaching` put both together.
"""
