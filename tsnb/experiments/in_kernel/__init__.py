"""What runs in a trial's kernel: getting ready, logging, ending.

The notebook never imports it, but for `kept_state` and `artifacts`.

| module | what it owns |
|---|---|
| `steps` | the life of the code: enter, run, end |
| `trial_here` | what the kernel knows of its trial: its run, its place, its pauses; it tells the notebook |
| `reporter` | what it reports: logged rows, its place in its streams, how it ended |
| `pictures` | logged values that are not numbers: pictures, tables, text |
| `keeping` | what is kept of a trial whose code has ended, and the memory that is given back |
| `kept_state` | `tsnb.checkpoint`, `tsnb.epochs`: what it keeps of its training, and how it goes on from there |
| `states` | one such state: what it holds, how it is written, read and put back |
| `artifacts` | the run that this process is: `tsnb.folder`, `tsnb.log_artifact` |
| `cloning` | a trial becomes two at a batch |
| `first_weights` | a hash of the weights before the first step, by which trials are paired |
| `written` | which files its code writes, to tell two trials that write the same one |
| `device_memory` | GPU memory that is given back while it is paused |
| `peak_memory` | the largest memory of its process, for its record |
| `detaching` | a kernel that outlives its notebook: be found, and end |
"""
