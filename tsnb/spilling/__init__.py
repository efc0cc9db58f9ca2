"""Models whose parameters and optimizer states do not fit into memory, or onto a GPU: `tsnb.offload`.

| module | what it owns |
|---|---|
| `pages` | tensors in a file without a name, and which of them are in memory |
| `transfers` | copies between host memory and a device, and what waits for them: all that knows CUDA |
| `offloaded` | tensors of a GPU with homes in host memory, and which of them are on the GPU |
| `operations` | what each operation uses of a model on a GPU, forwards and backwards |
| `gradients` | code of torch that needs gradients which are gone: refused, or warned of |
| `checkpoints` | whole values of a model on a GPU, saved and loaded |
| `asked` | `tsnb.offload`: what was asked for, and where tensors are kept then |
| `spilled` | a model and its optimizer over such tensors: stepped one parameter at a time, during `backward` |
"""
