"""What does it cost to feed N training processes: N loaders of their own, or one that is shared?

Isolated here: preparing a batch and bringing it to the process that wants it. The consumers do no training; they
touch the first and the last value of a batch's first tensor and ask for the next. Loader settings are the same in
every system (`--workers`, prefetch 2, no pinning), and torch runs on one thread in each process.

    jpeg      decode, crop and flip photos (two that scikit-learn ships): 32x3x224x224 float32, 19 MB a batch
    img-f32   nothing to prepare but the collation of large samples: 64x3x224x224 float32, 39 MB
    img-u8    the same as bytes, 10 MB
    tiny      nothing to prepare, little to carry, so the machinery itself: 64x784 float32, 0.2 MB
    nested    a dict of tensors, numbers, strings and dicts: 64 samples, 4 MB

    plain          one DataLoader in one process (what everybody has today)
    separate       the same, N times side by side
    tensorsocket   0.0.5 from PyPI with its default settings
    tensorsocket*  the same at its best on CPU tensors: see `peer`
    tsnb           one producer process with that DataLoader, N consumer processes attached to it
    floor          the loader's worker collates into warm shared memory and returns an int; one process: see `floor`

How it counts:

- Fresh processes for every run, forked from one that has imported torch and used nothing: imports are neither timed
  nor counted N times in memory. Runs are interleaved (all configurations once, then all again), and a figure is the
  median over them, so that a busy minute on the machine falls on all.
- Everything is measured in one window of `--seconds`, after every consumer took some batches, in an epoch that does
  not end: process start, worker start and epoch ends are not in it, nor does work done ahead flatter anybody.
- samples/s is that of the slowest consumer. CPU s/1,000 is what all processes together (producer, loader workers,
  consumers) spent while *each* consumer was given 1,000 samples: equal to one plain loader's if N more cost nothing.
- p50 and p99 are of the time from the moment the DataLoader gave a batch to the sharing process until a consumer
  that was waiting for it had its tensors; the work of publishing, sending and waking is in it. Batches that lay
  ready before they were asked for are left out, and so are systems that share nothing.
- shared MB: of tsnb its arena (`touched_bytes` of its status), of the others the shared memory they have mapped at
  the end; PSS MB: all memory of all processes, what several share counted once.
- The ratios are against `plain` alone and `separate` at the same N, within this run.

    make bench                                                   everything, about 20 minutes
    make bench BENCH=--quick                                     a part of it, once: under 3 minutes
    make bench BENCH="--json docs/performance.json"              everything, kept
    make bench BENCH="--render docs/performance.json"            no run: those figures into this text, the document
                                                                 docs/performance.md and the picture beside it
<rows>
2 cores (AMD EPYC), 24 GiB; Python 3.11.7, torch 2.13.0+cpu, tsnb 0.1.0; medians of up to 1 interleaved runs of 1 s; load 4.3 before the first

batches   N system        samples/s /plain /separate CPU s/1,000 /plain   p50 us   p99 us shared MB PSS MB  runs
jpeg      1 plain               481   1.00      1.00      1.3516   1.00        -        -      17.3    295  1
jpeg      1 tsnb              1,338   2.78      2.78      0.7589   0.56      318    1,302     250.5    494  1
jpeg      1 floor             1,436   2.98      2.98      0.7153   0.53        -        -     154.2    489  1
jpeg      1 tensorsocket* stalled in 1 of 1 runs
jpeg      4 separate            205   0.43      1.00      5.6508   4.18        -        -       0.1    642  1
jpeg      4 tsnb                827   1.72      4.03      1.0703   0.79    1,178    6,254     250.5    535  1
jpeg      4 tensorsocket* stalled in 1 of 1 runs
img-f32   1 plain             1,366   1.00      1.00      0.5859   1.00        -        -       0.0    257  1
img-f32   1 tsnb             11,439   8.38      8.38      0.0747   0.13      395    5,485     539.6    832  1
img-f32   1 floor            12,306   9.01      9.01      0.0640   0.11        -        -     308.4    640  1
img-f32   1 tensorsocket*       651   0.48      0.48      1.1055   1.89  180,416  286,346     838.3   1139  1
img-f32   4 separate            457   0.33      1.00      2.4679   4.21        -        -     112.0    720  1
img-f32   4 tsnb             11,710   8.57     25.64      0.0834   0.14      653    4,927     501.0    855  1
img-f32   4 tensorsocket* stalled in 1 of 1 runs
tiny      1 plain            45,227   1.00      1.00      0.0211   1.00        -        -       0.0    182  1
tiny      1 tsnb             93,635   2.07      2.07      0.0104   0.49      185      725       3.1    222  1
tiny      1 floor           181,197   4.01      4.01      0.0055   0.26        -        -       1.7    185  1
tiny      1 tensorsocket*    35,840   0.79      0.79      0.0264   1.25    2,148    7,852       4.9    243  1
tiny      4 separate         15,045   0.33      1.00      0.0901   4.27        -        -       0.4    306  1
tiny      4 tsnb             52,549   1.16      3.49      0.0175   0.83      425    1,644       3.1    283  1
tiny      4 tensorsocket* stalled in 1 of 1 runs
</rows>
"""
