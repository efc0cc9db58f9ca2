"""GPUs and cores: what there is and who uses it, where a trial is put, and batches that are shared on a GPU.

| module | what it owns |
|---|---|
| `inventory`, `gpus`, `listing` | what a machine has, as values; looking for GPUs and MPS; `tsnb.devices()` |
| `placing` | where a trial is put |
| `copies`, `kinds` | the contract of memory that is shared on a device; its kinds, and how a consumer names a device |
| `cuda`, `driver` | the same on a CUDA device, and the driver's functions that it needs |
| `gpu_slots` | which batch lies where on the device |
"""
