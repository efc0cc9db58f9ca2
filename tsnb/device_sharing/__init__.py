"""What trials on one GPU share: batches, once for all of them, and the GPU itself. Not yet run on one.

| module | what it owns |
|---|---|
| `copies` | the contract: which side copies, which reads, in which order |
| `kinds` | the kinds of device, how a consumer names its own, and where nothing can be shared |
| `cuda`, `driver` | the contract on a CUDA device, and the driver's functions that it needs |
| `on_devices`, `on_consumers` | the producer's devices; what a consumer knows of its own |
| `gpu_slots` | which batch lies where on the device |
| `mps` | this user's MPS daemon: its start, its end, who computes through it |
"""
