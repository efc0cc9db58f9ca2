"""This machine, as a process finds it: the only room that looks at other processes, cores, memory, GPUs and energy.

| module | what it owns | Linux | elsewhere |
|---|---|---|---|
| `processes` | alive, stopped, whose children, what they used | /proc, microseconds | psutil, a hundred times as long |
| `processes.watch` | a descriptor that announces an end | pidfd | none: callers look now and then |
| `owners` | which process owns something, and whether it lives | boot and namespace too | host and process |
| `clocks` | CPU time, and time without a core | the kernel's counters | all time counts |
| `cores` | those that a process may use, by affinity and quota; how busy they are | both | all of the machine |
| `memory` | free and in all, by control group too; pressure; kills for want of it | all | what psutil tells |
| `disks` | file systems; what the page cache holds of a file | all | nothing |
| `gpus`, `energy` | NVML and MPS; counters of joules | also RAPL | NVML alone |
| `inventory` | what there is, as plain values | | |
| `placement` | which environment leaves a trial one device | | |

Nothing here decides or moves anything. psutil and NVML are imported where they are asked, not with the module.
"""
