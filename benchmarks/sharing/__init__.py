"""What does it cost to feed N training processes: N loaders of their own, or one that is shared?

Isolated here: preparing a batch and bringing it to the process that wants it. The consumers do no training; they
touch the first and the last value of a batch's first tensor and ask for the next. Loader settings are the same in
every system (`--workers`, prefetch 2, no pinning), and torch runs on one thread in each process.

    jpeg      decode, crop and flip photos (two that scikit-learn ships): 32x3x224x224 float32, 19 MB a batch
    img-f32   nothing to prepare but the collation of large samples: 64x3x224x224 float32, 39 MB
    img-u8    the same as bytes, 10 MB
    tiny      nothing to prepare, little to carry, so the machinery itself: 64x784 float32, 0.2 MB
    nested    a dict of tensors, numbers, strings and dicts: 64 samples, 4 MB
    calm      as tiny, from a loader that rests 4 ms before each batch: only for how long a batch is on its way

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

2 cores (AMD EPYC), 24 GiB; Python 3.11.7, torch 2.13.0+cpu, tsnb 0.1.0; medians of up to 1 interleaved runs
of 0.6 s; load 3.3 before the first (a busy machine: other work ran at the same time)

batches   N system        samples/s /plain /separate CPU s/1,000 /plain   p50 us   p99 us shared MB PSS MB    runs
jpeg      1 plain               691   1.00      1.00      1.4219   1.00        -        -       0.0    283  1 of 1
jpeg      1 tensorsocket  stalled in 1 of 1 runs
jpeg      1 tensorsocket*       836   1.21      1.21      1.7578   1.24   69,528   73,822     424.0    750  1 of 1
jpeg      1 tsnb              1,352   1.96      1.96      0.7578   0.53      400      467     250.5    496  1 of 1
jpeg      1 floor             1,060   1.53      1.53      0.8516   0.60        -        -     154.2    491  1 of 1
jpeg      2 separate            516   0.75      1.00      2.6691   1.88        -        -       0.1    435  1 of 1
jpeg      2 tensorsocket  one message would need 15 GB of memory
jpeg      2 tensorsocket*       537   0.78      1.04      1.9063   1.34   91,994  192,630     404.7    765  1 of 1
jpeg      2 tsnb                919   1.33      1.78      0.8359   0.59      444    4,987     250.5    519  1 of 1
jpeg      4 separate            143   0.21      1.00      5.6618   3.98        -        -      61.6    627  1 of 1
jpeg      4 tensorsocket  one message would need 49 GB of memory
jpeg      4 tensorsocket*       422   0.61      2.96      2.0605   1.45  114,183  284,618     404.7    786  1 of 1
jpeg      4 tsnb                896   1.30      6.27      0.8203   0.58      895    5,128     250.5    553  1 of 1
jpeg      8 separate             63   0.09      1.00     12.0238   8.46        -        -      82.0    957  1 of 1
jpeg      8 tensorsocket  one message would need 178 GB of memory
jpeg      8 tensorsocket*       176   0.25      2.80      1.9866   1.40  327,750  450,269     443.3    916  1 of 1
jpeg      8 tsnb                429   0.62      6.83      1.0038   0.71    1,354    8,117     250.5    613  1 of 1
img-f32   1 plain             1,075   1.00      1.00      0.5820   1.00        -        -      36.8    293  1 of 1
img-f32   1 tensorsocket  one message would need 10 GB of memory
img-f32   1 tensorsocket*       154   0.14      0.14      1.1458   1.97 1,096,279 1,130,783     847.9   1224  1 of 1
img-f32   1 tsnb             12,346  11.49     11.49      0.0738   0.13      318    9,765     539.6    837  1 of 1
img-f32   1 floor            13,931  12.96     12.96      0.0661   0.11        -        -     308.4    642  1 of 1
img-f32   2 separate            291   0.27      1.00      1.2500   2.15        -        -      64.0    454  1 of 1
img-f32   2 tensorsocket  one message would need 30 GB of memory
img-f32   2 tensorsocket*       261   0.24      0.90      1.1406   1.96  472,620  493,905     809.3   1138  1 of 1
img-f32   2 tsnb             13,209  12.29     45.41      0.0730   0.13      347    7,000     539.6    856  1 of 1
img-f32   4 separate             50   0.05      1.00      3.5938   6.17        -        -     134.9    736  1 of 1
img-f32   4 tensorsocket  one message would need 99 GB of memory
img-f32   4 tensorsocket*       468   0.44      9.44      1.1719   2.01  267,529  298,185     852.9   1245  1 of 1
img-f32   4 tsnb              9,847   9.16    198.38      0.0977   0.17      825    5,456     501.0    855  1 of 1
img-f32   8 separate             83   0.08      1.00      4.7436   8.15        -        -     284.7   1287  1 of 1
img-f32   8 tensorsocket  one message would need 355 GB of memory
img-f32   8 tensorsocket*       288   0.27      3.49      1.2109   2.08  391,836  566,461     847.9   1292  1 of 1
img-f32   8 tsnb              6,993   6.51     84.60      0.1271   0.22    1,497   12,912     539.6    932  1 of 1
img-u8    1 plain             5,548   1.00      1.00      0.1505   1.00        -        -       0.0    198  1 of 1
img-u8    1 tensorsocket  stalled in 1 of 1 runs
img-u8    1 tensorsocket*     1,734   0.31      0.31      0.3008   2.00   71,127  109,831     211.0    456  1 of 1
img-u8    1 tsnb             48,922   8.82      8.82      0.0253   0.17      157      780     134.9    372  1 of 1
img-u8    1 floor            36,339   6.55      6.55      0.0205   0.14        -        -      77.1    352  1 of 1
img-u8    2 separate          2,459   0.44      1.00      0.3544   2.36        -        -       9.7    285  1 of 1
img-u8    2 tensorsocket  one message would need 7 GB of memory
img-u8    2 tensorsocket*     3,938   0.71      1.60      0.3359   2.23   30,749   40,782     212.0    505  1 of 1
img-u8    2 tsnb             34,499   6.22     14.03      0.0308   0.20      258    1,744     125.3    388  1 of 1
img-u8    4 separate          2,175   0.39      1.00      0.7260   4.83        -        -      40.9    419  1 of 1
img-u8    4 tensorsocket  one message would need 25 GB of memory
img-u8    4 tensorsocket*     2,565   0.46      1.18      0.3125   2.08   44,556   57,175     206.0    520  1 of 1
img-u8    4 tsnb             13,502   2.43      6.21      0.0369   0.25      706    3,923     125.3    421  1 of 1
img-u8    8 separate            387   0.07      1.00      1.4303   9.51        -        -      45.6    592  1 of 1
img-u8    8 tensorsocket  one message would need 89 GB of memory
img-u8    8 tensorsocket*     1,557   0.28      4.03      0.3281   2.18   62,113  150,109     212.1    597  1 of 1
img-u8    8 tsnb              6,775   1.22     17.53      0.0618   0.41    1,413   19,490     134.9    489  1 of 1
tiny      1 plain            32,162   1.00      1.00      0.0222   1.00        -        -       0.1    180  1 of 1
tiny      1 tensorsocket      6,691   0.21      0.21      0.0952   4.29   62,745  136,195      17.8    342  1 of 1
tiny      1 tensorsocket*    40,438   1.26      1.26      0.0263   1.19    1,813    2,985       4.5    227  1 of 1
tiny      1 tsnb             93,809   2.92      2.92      0.0141   0.64      213    1,608       3.1    219  1 of 1
tiny      1 floor           138,394   4.30      4.30      0.0056   0.25        -        -       1.7    181  1 of 1
tiny      2 separate         46,002   1.43      1.00      0.0417   1.88        -        -       0.1    233  1 of 1
tiny      2 tensorsocket      2,065   0.06      0.04      0.1953   8.81  225,568  297,161      17.8    601  1 of 1
tiny      2 tensorsocket*    27,365   0.85      0.59      0.0370   1.67    2,349   10,696       4.7    258  1 of 1
tiny      2 tsnb            132,251   4.11      2.87      0.0140   0.63      178      534       2.9    242  1 of 1
tiny      4 separate         13,899   0.43      1.00      0.0987   4.45        -        -       0.3    299  1 of 1
tiny      4 tensorsocket        631   0.02      0.05      0.8789  39.64  868,872 1,088,338      17.8   1105  1 of 1
tiny      4 tensorsocket*    31,300   0.97      2.25      0.0362   1.63    2,610    4,793       4.7    314  1 of 1
tiny      4 tsnb             44,727   1.39      3.22      0.0190   0.86      575    2,898       3.1    281  1 of 1
tiny      8 separate          8,142   0.25      1.00      0.1902   8.58        -        -       0.7    402  1 of 1
tiny      8 tensorsocket  stalled in 1 of 1 runs
tiny      8 tensorsocket*    17,605   0.55      2.16      0.0434   1.96    4,097    7,906       4.3    377  1 of 1
tiny      8 tsnb             34,770   1.08      4.27      0.0328   1.48      642    9,730       3.1    341  1 of 1
nested    1 plain            10,621   1.00      1.00      0.0906   1.00        -        -       3.2    193  1 of 1
nested    1 tensorsocket  KeyError: 0
nested    1 tensorsocket* KeyError: 0
nested    1 tsnb             45,959   4.33      4.33      0.0213   0.23      219    1,102      52.0    274  1 of 1
nested    1 floor            32,137   3.03      3.03      0.0165   0.18        -        -      32.1    243  1 of 1
nested    2 separate          1,154   0.11      1.00      0.2317   2.56        -        -       0.1    251  1 of 1
nested    2 tensorsocket  KeyError: 0
nested    2 tensorsocket* KeyError: 0
nested    2 tsnb             55,096   5.19     47.76      0.0261   0.29      342    2,587      60.0    306  1 of 1
nested    4 separate          4,549   0.43      1.00      0.3756   4.14        -        -       3.3    340  1 of 1
nested    4 tensorsocket  one message would need 10 GB of memory
nested    4 tensorsocket* KeyError: 0
nested    4 tsnb             29,668   2.79      6.52      0.0348   0.38      517    3,458      56.0    342  1 of 1
nested    8 separate          1,507   0.14      1.00      0.9249  10.21        -        -      10.6    487  1 of 1
nested    8 tensorsocket  one message would need 37 GB of memory
nested    8 tensorsocket* KeyError: 0
nested    8 tsnb             10,489   0.99      6.96      0.0589   0.65    1,344    6,946      60.0    402  1 of 1

</rows>
"""
