"""The producer: the one process that owns the loader, and decides which consumer may have which batch.

`tsnb.serving` puts one together with all that is built on it.

| module | what it owns |
|---|---|
| `core` | what the threads share under one lock; carries out what is decided |
| `feeder`, `failures` | the loading thread; what the loader raised |
| `server`, `session` | the serving thread; one connection |
| `guard` | what a connection may say, and what its messages mean |
| `welcoming` | what a newcomer is told about the stream |
| `steering` | dividing compute: competition for the machine, and the balancer |
| `limits`, `devices` | the memory that a stream needs; batches on GPUs, where they can be shared |
"""
