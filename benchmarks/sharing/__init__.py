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
    portable       as tsnb, over the memory and sockets that macOS would use (docs/environments.md); only if it is named

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
    make bench BENCH="--render docs/performance.json"            no run: those figures into this text,
                                                                 benchmarks/RESULTS.md and the picture
    make bench BENCH="--system tsnb --system portable --workload tiny --workload img-u8 --workload calm
                      --consumers 1 4 --repeats 5 --no-epochs"   what the portable pair costs: about 2 minutes
<rows>

2 cores (AMD EPYC), 24 GiB; Python 3.11.7, torch 2.13.0+cpu, tsnb 0.1.0; medians of up to 3 interleaved runs
of 1.5 s; load 0.9 before the first (a busy machine: other work ran at the same time)

batches   N system        samples/s /plain /separate CPU s/1,000 /plain   p50 us   p99 us shared MB PSS MB    runs
jpeg      1 plain               735   1.00      1.00      1.5105   1.00        -        -      12.8    253  2 of 2
jpeg      1 tensorsocket         43   0.06      0.06     24.7266  16.37 9,201,714 9,201,714     404.7   1919  1 of 2
jpeg      1 tensorsocket*       787   1.07      1.07      1.8566   1.23   69,690   97,061     411.1    745  2 of 2
jpeg      1 tsnb              1,267   1.72      1.72      0.8246   0.55      441      643     289.1    682  2 of 2
jpeg      1 floor             1,300   1.77      1.77      0.7966   0.53        -        -     154.2    442  2 of 2
jpeg      2 separate            700   0.95      1.00      2.7176   1.80        -        -       0.5    340  2 of 2
jpeg      2 tensorsocket  one message would need 15 GB of memory
jpeg      2 tensorsocket*       596   0.81      0.85      2.2933   1.52   78,649   98,442     404.7    677  2 of 2
jpeg      2 tsnb              1,308   1.78      1.87      0.7956   0.53      544    1,078     289.1    702  2 of 2
jpeg      4 separate            325   0.44      1.00      5.7815   3.83        -        -      26.8    505  2 of 2
jpeg      4 tensorsocket  one message would need 49 GB of memory
jpeg      4 tensorsocket*       637   0.87      1.96      2.1645   1.43   76,781   99,914     424.0    761  2 of 2
jpeg      4 tsnb              1,296   1.76      3.98      0.8310   0.55      840    2,579     289.1    732  2 of 2
jpeg      8 separate            152   0.21      1.00     11.9905   7.94        -        -      61.3    795  2 of 2
jpeg      8 tensorsocket  one message would need 178 GB of memory
jpeg      8 tensorsocket*       635   0.86      4.19      2.2218   1.47   77,370  104,357     426.8    869  2 of 2
jpeg      8 tsnb              1,291   1.76      8.52      0.8434   0.56    1,162    2,141     289.1    770  2 of 2
img-f32   1 plain             2,002   1.00      1.00      0.6353   1.00        -        -      30.9    302  2 of 2
img-f32   1 tensorsocket  one message would need 10 GB of memory
img-f32   1 tensorsocket*     1,107   0.55      0.55      1.4197   2.23   84,021  166,156     843.6   1225  2 of 2
img-f32   1 tsnb             16,778   8.38      8.38      0.0759   0.12      451      700     578.1    882  2 of 2
img-f32   1 floor            17,187   8.59      8.59      0.0655   0.10        -        -     308.4    655  2 of 2
img-f32   2 separate          1,592   0.80      1.00      1.1387   1.79        -        -      49.3    451  2 of 2
img-f32   2 tensorsocket  one message would need 30 GB of memory
img-f32   2 tensorsocket*     1,021   0.51      0.64      1.4607   2.30   76,979  176,620     839.3   1202  2 of 2
img-f32   2 tsnb             16,181   8.08     10.16      0.0814   0.13      608    1,856     578.1    901  2 of 2
img-f32   4 separate            848   0.42      1.00      2.2772   3.58        -        -      76.9    694  2 of 2
img-f32   4 tensorsocket  one message would need 99 GB of memory
img-f32   4 tensorsocket*     1,481   0.74      1.75      1.1732   1.85   73,182  160,497     847.9   1235  2 of 2
img-f32   4 tsnb             17,087   8.54     20.14      0.0848   0.13      837    1,931     578.1    929  2 of 2
img-f32   8 separate            361   0.18      1.00      4.7057   7.41        -        -     225.8   1242  2 of 2
img-f32   8 tensorsocket  one message would need 355 GB of memory
img-f32   8 tensorsocket*     1,436   0.72      3.98      1.1920   1.88   73,020  149,802     847.9   1305  2 of 2
img-f32   8 tsnb             15,042   7.51     41.66      0.0976   0.15      827    2,850     578.1    965  2 of 2
img-u8    1 plain             7,883   1.00      1.00      0.1820   1.00        -        -       0.0    212  2 of 2
img-u8    1 tensorsocket        170   0.02      0.02      6.2256  34.21 3,269,446 3,317,635     539.6   2432  2 of 2
img-u8    1 tensorsocket*     5,864   0.74      0.74      0.2989   1.64   20,316   24,941     211.0    478  2 of 2
img-u8    1 tsnb             64,160   8.14      8.14      0.0225   0.12      182      664     144.6    475  2 of 2
img-u8    1 floor            69,497   8.82      8.82      0.0174   0.10        -        -      77.2    317  2 of 2
img-u8    2 separate          5,674   0.72      1.00      0.3306   1.82        -        -      12.1    299  2 of 2
img-u8    2 tensorsocket  one message would need 7 GB of memory
img-u8    2 tensorsocket*     5,869   0.74      1.03      0.2916   1.60   19,936   33,852     210.1    505  2 of 2
img-u8    2 tsnb             60,695   7.70     10.70      0.0254   0.14      239    1,108     144.6    493  2 of 2
img-u8    4 separate          2,202   0.28      1.00      0.7220   3.97        -        -      24.9    413  2 of 2
img-u8    4 tensorsocket  one message would need 25 GB of memory
img-u8    4 tensorsocket*     5,636   0.72      2.56      0.3073   1.69   20,927   31,112     209.9    556  2 of 2
img-u8    4 tsnb             52,230   6.63     23.72      0.0311   0.17      322    1,483     144.6    521  2 of 2
img-u8    8 separate          1,317   0.17      1.00      1.4097   7.75        -        -      41.1    597  2 of 2
img-u8    8 tensorsocket  one message would need 89 GB of memory
img-u8    8 tensorsocket*     5,165   0.66      3.92      0.3285   1.81   21,987   36,607     212.1    613  2 of 2
img-u8    8 tsnb             42,285   5.36     32.10      0.0411   0.23      522    2,288     144.6    559  2 of 2
tiny      1 plain            54,929   1.00      1.00      0.0261   1.00        -        -       0.0    196  2 of 2
tiny      1 tensorsocket     11,552   0.21      0.21      0.0940   3.61   41,956   46,749      17.4    359  2 of 2
tiny      1 tensorsocket*    41,460   0.75      0.75      0.0306   1.18    1,931    2,822       4.4    249  2 of 2
tiny      1 tsnb            312,020   5.68      5.68      0.0057   0.22      184      772       5.9    234  2 of 2
tiny      1 floor           205,765   3.75      3.75      0.0060   0.23        -        -       1.7    192  2 of 2
tiny      2 separate         39,089   0.71      1.00      0.0471   1.81        -        -       0.2    250  2 of 2
tiny      2 tensorsocket      5,775   0.11      0.15      0.1929   7.41   84,413   90,872      17.8    616  2 of 2
tiny      2 tensorsocket*    38,690   0.70      0.99      0.0323   1.24    2,078    3,008       4.5    275  2 of 2
tiny      2 tsnb            242,434   4.41      6.20      0.0073   0.28      232    1,533       5.9    253  2 of 2
tiny      4 separate         17,746   0.32      1.00      0.0987   3.79        -        -       0.4    315  2 of 2
tiny      4 tensorsocket      1,525   0.03      0.09      1.0522  40.39  274,948  329,145      17.8   1186  2 of 2
tiny      4 tensorsocket*    37,249   0.68      2.10      0.0359   1.38    2,225    3,615       4.3    327  2 of 2
tiny      4 tsnb            170,384   3.10      9.60      0.0108   0.42      308    1,978       5.9    280  2 of 2
tiny      8 separate          7,570   0.14      1.00      0.2242   8.60        -        -       0.7    413  2 of 2
tiny      8 tensorsocket  stalled in 2 of 2 runs
tiny      8 tensorsocket*    30,358   0.55      4.01      0.0458   1.76    2,827    4,743       4.4    394  2 of 2
tiny      8 tsnb             99,588   1.81     13.15      0.0173   0.66      492    3,121       5.9    318  2 of 2
nested    1 plain            16,023   1.00      1.00      0.1025   1.00        -        -       1.7    204  2 of 2
nested    1 tensorsocket  takes tuples of tensors only: a dict raises KeyError
nested    1 tensorsocket* takes tuples of tensors only: a dict raises KeyError
nested    1 tsnb             75,135   4.69      4.69      0.0191   0.19      258      439      60.0    314  2 of 2
nested    1 floor            78,333   4.89      4.89      0.0161   0.16        -        -      32.1    242  2 of 2
nested    2 separate          9,541   0.60      1.00      0.1994   1.94        -        -       0.1    266  2 of 2
nested    2 tensorsocket  takes tuples of tensors only: a dict raises KeyError
nested    2 tensorsocket* takes tuples of tensors only: a dict raises KeyError
nested    2 tsnb             78,149   4.88      8.19      0.0207   0.20      429      779      60.0    335  2 of 2
nested    4 separate          4,073   0.25      1.00      0.4393   4.28        -        -       9.3    357  2 of 2
nested    4 tensorsocket  takes tuples of tensors only: a dict raises KeyError
nested    4 tensorsocket* takes tuples of tensors only: a dict raises KeyError
nested    4 tsnb             59,315   3.70     14.56      0.0281   0.27      456    1,831      62.0    364  2 of 2
nested    8 separate          1,889   0.12      1.00      0.9282   9.05        -        -       8.1    487  2 of 2
nested    8 tensorsocket  takes tuples of tensors only: a dict raises KeyError
nested    8 tensorsocket* takes tuples of tensors only: a dict raises KeyError
nested    8 tsnb             42,007   2.62     22.24      0.0414   0.40      629    2,366      62.0    403  2 of 2
calm      1 tensorsocket      8,176      -         -      0.0903      -   60,108   64,795      17.1    367  2 of 2
calm      1 tensorsocket*    13,749      -         -      0.0288      -    5,162    5,957       4.5    247  2 of 2
calm      1 tsnb             14,218      -         -      0.0152      -      189      294       3.1    230  2 of 2
calm      2 tensorsocket      5,103      -         -      0.1882      -   92,950  100,197      17.8    644  2 of 2
calm      2 tensorsocket*    13,825      -         -      0.0313      -    5,218    5,749       4.4    278  2 of 2
calm      2 tsnb             14,228      -         -      0.0189      -      214      497       3.1    250  2 of 2
calm      4 tensorsocket      1,353      -         -      1.0938      -  292,397  386,489      17.8   1228  2 of 2
calm      4 tensorsocket*    13,633      -         -      0.0368      -    5,483    7,971       4.4    323  2 of 2
calm      4 tsnb             14,225      -         -      0.0222      -      307      627       3.1    277  2 of 2
calm      8 tensorsocket  stalled in 2 of 2 runs
calm      8 tensorsocket*    13,483      -         -      0.0506      -    6,102    8,016       4.4    391  2 of 2
calm      8 tsnb             13,995      -         -      0.0370      -      538    1,263       3.1    314  2 of 2

</rows>
"""
