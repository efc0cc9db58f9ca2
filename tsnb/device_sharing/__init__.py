"""Batches that are shared on a GPU, once for all trials there. Not yet run on one.

| module | what it owns |
|---|---|
| `copies` | the contract: which side copies, which reads, in which order |
| `kinds` | the kinds of device, how a consumer names its own, and where nothing can be shared |
| `cuda`, `driver` | the contract on a CUDA device, and the driver's functions that it needs |
| `gpu_slots` | which batch lies where on the device |
"""
