"""Promises 1-3, 8 and 9 with real processes: exactly once, in order, written once, any nesting, any batch size."""

from __future__ import annotations

import pytest

from tests.system.conftest import Run

pytestmark = pytest.mark.system

SERVE = """
    loader = DataLoader(Numbers(1000), batch_size=64, num_workers=2, shuffle=True)
    with tsnb.serve(loader, name=sys.argv[1], late_join=1.0) as producer:
        say("serving")
        producer.wait()
"""
TRAIN = """
    name, epochs = sys.argv[1], int(sys.argv[2])
    size = int(sys.argv[3]) or None
    pause, others = float(sys.argv[4]), int(sys.argv[5])
    consumer = tsnb.attach(name, batch_size=size)
    orders = []
    for epoch in range(epochs):
        order = []
        for images, labels in consumer if epoch else together(consumer, others):
            assert torch.equal(images[:, 0].long(), labels), "values changed on the way"
            order += labels.tolist()
            time.sleep(pause)
        orders.append(order)
    import hashlib
    say("epochs", *[hashlib.md5(repr(o).encode()).hexdigest() for o in orders])
    say("complete", all(sorted(o) == list(range(1000)) for o in orders))
    say("different", len({tuple(o) for o in orders}) == len(orders))
"""


def test_three_consumers_of_different_speed_and_batch_size_get_every_sample_once_in_the_same_order(
    run: Run,
) -> None:
    """Promise 1 and 9: same order for all, partial last batch included, epochs shuffled afresh."""
    producer = run(SERVE, "exact")
    producer.expect("serving")
    trials = [
        run(TRAIN, "fast", "3", "0", "0", "3"),
        run(TRAIN, "slow", "3", "0", "0.01", "3"),
        run(TRAIN, "odd", "3", "50", "0.003", "3"),
    ]
    orders = [trial.expect("epochs") for trial in trials]
    assert orders[0] == orders[1] == orders[2]
    for trial in trials:
        assert trial.expect("complete") == "True"
        assert trial.expect("different") == "True"
        assert trial.end() == 0


def test_the_loader_is_iterated_once_however_many_consumers_attach(run: Run) -> None:
    """Promise 2: 4 consumers, and each sample is decoded once an epoch, by a worker, into the arena."""
    producer = run(
        """
        import multiprocessing as mp
        count = mp.Value("i", 0)
        class Counted(Numbers):
            def __getitem__(self, i):
                with count.get_lock(): count.value += 1
                return super().__getitem__(i)
        with tsnb.serve(DataLoader(Counted(640), batch_size=32, num_workers=2), name="once") as producer:
            say("serving")
            while (n := len(producer.status().consumers)) < 4: time.sleep(0.01)
            while producer.status().consumers: time.sleep(0.01)
            reading = producer.status()
            say("decoded", count.value, "batches", reading.batches)
            say("in_place", reading.in_place, reading.copied)
        """
    )
    producer.expect("serving")
    barrier = """
        say("rows", sum(len(labels) for _, labels in together(tsnb.attach(sys.argv[1]), 4)))
    """
    trials = [run(barrier, f"c{i}") for i in range(4)]
    for trial in trials:
        assert trial.expect("rows") == "640"
    assert producer.expect("decoded") == "640 batches 20"
    in_place, copied = map(int, producer.expect("in_place").split())
    assert in_place + copied == 20
    assert in_place >= 14, "only what was prefetched before the arena had its size may be copied"


def test_a_batch_that_is_held_does_not_change(run: Run) -> None:
    """Promise 3: tensors, views, numpy arrays and autograd references over 60 batches keep their values."""
    producer = run(SERVE, "hoard")
    producer.expect("serving")
    hoarder = run(
        """
        kept, weight = [], torch.ones(16, requires_grad=True)
        for epoch in range(3):
            for step, (images, labels) in enumerate(tsnb.attach("hoarder")):
                kind = step % 4
                if kind == 0: kept.append((labels.clone(), images))
                elif kind == 1: kept.append((labels.clone(), images[:, 3:4]))
                elif kind == 2: kept.append((labels.clone(), images.numpy()[:, 5:6]))
                else: kept.append((labels.clone(), (images * weight)))   # autograd saves `images`
                del images
        for i, (labels, held) in enumerate(kept):
            if isinstance(held, torch.Tensor) and held.requires_grad:
                weight.grad = None
                held.sum().backward()
                want = labels.double().sum()
                assert torch.allclose(weight.grad.double(), want.expand(16), rtol=1e-5), i
            else:
                assert (torch.as_tensor(held)[:, 0].long() == labels).all(), i
        say("kept", len(kept))
        say("copied", tsnb.attach("hoarder").stats().copied)
        """
    )
    other = run(TRAIN, "other", "3", "0", "0", "1")
    assert hoarder.expect("kept") == "48"
    assert int(hoarder.expect("copied")) > 30, "past the hold it gets copies, so that the others go on"
    assert other.expect("complete") == "True"


def test_any_nesting_arrives_as_the_loader_yielded_it(run: Run) -> None:
    """Promise 8: dicts, tuples, named tuples, dataclasses, strings, numpy, empty and variable shapes."""
    assert (
        run(
            """
        import dataclasses, collections
        import numpy as np
        Pair = collections.namedtuple("Pair", "left right")
        @dataclasses.dataclass
        class Box:
            image: torch.Tensor
            names: list
            weight: float
        def make(epoch):
            for i in range(10):
                yield {
                    "box": Box(torch.randn(3, i), [f"name-{i}-{k}" for k in range(3)], i / 7),
                    "pair": Pair(torch.arange(i), (b"raw", None, 3 + 4j)),
                    "np": np.arange(6, dtype="<i2").reshape(2, 3) * i, "scalar": np.float32(i / 3),
                    "bool": torch.tensor([True, False]), "half": torch.ones(2, dtype=torch.bfloat16) * i,
                    1: [torch.tensor(float("nan")), [], {}, "ünïcödé"],
                }
        torch.manual_seed(0)
        want = list(make(0))
        torch.manual_seed(0)
        with tsnb.serve(make, name="nested"):
            got = list(tsnb.attach("c"))
        def same(a, b):
            if isinstance(a, torch.Tensor):
                return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
            if isinstance(a, (np.ndarray, np.generic)): return a.dtype == b.dtype and np.array_equal(a, b)
            if isinstance(a, dict): return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
            if isinstance(a, (list, tuple)): return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
            if dataclasses.is_dataclass(a): return type(a) is type(b) and same(vars(a), vars(b))
            return type(a) is type(b) and a == b
        say("same", len(got), all(map(same, want, got)))
        """
        ).expect("same")
        == "10 True"
    )


@pytest.mark.parametrize(
    "options", ["", "num_workers=1", "num_workers=2, persistent_workers=True, pin_memory=True"]
)
def test_every_way_of_running_workers_gives_the_same_batches(run: Run, options: str) -> None:
    """0, 1 and persistent workers; three epochs each."""
    script = run(
        f"""
        loader = DataLoader(Numbers(100), batch_size=8, {options})
        with tsnb.serve(loader, name="ways") as producer:
            for epoch in range(3):
                labels = torch.cat([labels.clone() for _, labels in tsnb.attach("c")])
                assert labels.tolist() == list(range(100))
            say("done", producer.status().batches, loader._iterator is None)
        """
    )
    assert script.expect("done") == "39 True"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_do_not_fork_load_classes_that_do_not_pickle(run: Run, method: str) -> None:
    """A dataset defined in the main program of a notebook or `-c` script travels by cloudpickle."""
    script = run(
        f"""
        loader = DataLoader(Numbers(40), batch_size=8, num_workers=1, multiprocessing_context="{method}",
                            collate_fn=lambda rows: torch.utils.data.default_collate(rows))
        with tsnb.serve(loader, name="methods") as producer:
            for epoch in range(2):
                assert sum(len(labels) for _, labels in tsnb.attach("c")) == 40
            say("in_place", producer.status().in_place)
        """
    )
    assert int(script.expect("in_place")) >= 5


@pytest.mark.parametrize("options", ["", "num_workers=2", "num_workers=2, persistent_workers=True"])
def test_no_slot_is_lost_over_many_epochs(run: Run, options: str) -> None:
    """Collate functions that keep a tensor, and ones that raise, cost no slot for good."""
    script = run(
        f"""
        kept = []
        def collate(rows):
            batch = torch.utils.data.default_collate(rows)
            if len(kept) < 3: kept.append(batch[0])
            if rows[0][1] == 32 and not torch.randint(3, ()): raise RuntimeError("now and then")
            return batch
        loader = DataLoader(Numbers(64), batch_size=8, collate_fn=collate, {options})
        with tsnb.serve(loader, name="s", window=2) as producer:
            for epoch in range(12):
                try:
                    for images, labels in tsnb.attach("c"):
                        assert torch.equal(images[:, 0].long(), labels)
                except tsnb.errors.LoaderFailed: pass
                del images, labels
            core = producer._core
            with core.lock:
                slots = core.slots
                there = len(slots._stack) + len(slots._issued) + core.dispatch.epochs.kept
            say("missing", core.arena.slots - there)
            say("issued", len(slots._issued), slots.in_pipe)
        """
    )
    # a slot whose tensor this process keeps counts as issued, once; what workers have in hand is bounded
    assert int(script.expect("missing")) == 0
    issued, in_pipe = map(int, script.expect("issued").split())
    assert issued <= 2 * in_pipe + 2


def test_large_batches_of_many_workers_lie_in_shared_memory_from_the_second_one_on(run: Run) -> None:
    """The first one gives the memory its shape. Those that are ready by then are not copied through a pipe."""
    script = run(
        """
        class Large(torch.utils.data.Dataset):
            def __len__(self): return 48
            def __getitem__(self, index): return torch.full((1 << 18,), float(index))
        loader = DataLoader(Large(), batch_size=2, num_workers=4, prefetch_factor=4)
        with tsnb.serve(loader, name="s", window=2) as producer:
            seen = [int(x[0, 0]) for x in tsnb.attach("c")]
            say("seen", seen == list(range(0, 48, 2)))
            say("copied", producer._core.copied, producer._core.in_place)
        """
    )
    assert script.expect("seen") == "True"
    copied, in_place = map(int, script.expect("copied").split())
    assert (copied, in_place) == (1, 23)


def test_iterable_datasets_plain_iterables_and_factories_are_served(run: Run) -> None:
    """What has no length and no workers takes the copying path."""
    script = run(
        """
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self): return iter(torch.arange(20.0))
        for name, loader in {
            "iterable": DataLoader(Stream(), batch_size=6),
            "no-batches": DataLoader(Stream(), batch_size=None),
            "list": [torch.arange(3) + i for i in range(5)],
            "factory": lambda epoch: (torch.full((2,), 10 * epoch + i) for i in range(5)),
        }.items():
            with tsnb.serve(loader, name=name):
                for epoch in range(2):
                    got = [x.tolist() for x in tsnb.attach("c")]
                say(name, got[0], got[-1], len(got))
        """
    )
    assert script.expect("iterable") == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0] [18.0, 19.0] 4"
    assert script.expect("no-batches") == "0.0 19.0 20"
    assert script.expect("list") == "[0, 1, 2] [4, 5, 6] 5"
    assert script.expect("factory") == "[10, 10] [14, 14] 5"


def test_the_same_seed_gives_the_same_order_and_another_seed_another(run: Run) -> None:
    """Promise 10, first half: order and augmentation are a function of (seed, epoch)."""
    script = run(
        """
        class Noisy(Numbers):
            def __getitem__(self, i): return torch.rand(4), i
        def orders(seed):
            loader = DataLoader(Noisy(50), batch_size=8, shuffle=True, num_workers=2)
            with tsnb.serve(loader, name="seeded", seed=seed):
                return [[(x.tolist(), y.tolist()) for x, y in tsnb.attach("c")] for epoch in range(2)]
        one, again, other = orders(1), orders(1), orders(2)
        say("seeded", one == again, one != other, one[0] != one[1])
        """
    )
    assert script.expect("seeded") == "True True True"


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_functions_with_ways_of_their_own_give_what_they_give_without_us(
    run: Run, workers: int
) -> None:
    """Intermediates larger than the slot, a kept constant, lazy conjugation, batches whose parts differ in length."""
    script = run(
        f"""
        import torch.nn.functional as F
        from torch.utils.data import default_collate
        kept = []
        def pooled(rows): return F.avg_pool1d(default_collate([x for x, _ in rows]).double(), 4)
        def halved(rows): return default_collate([x for x, _ in rows])[:, ::16].half()
        def memoised(rows):
            if not kept: kept.append(default_collate([x + 7 for x, _ in rows]))
            return default_collate([x for x, _ in rows]), kept[0]
        def conjugated(rows): return default_collate([torch.complex(x, x) for x, _ in rows]).conj()
        def ragged(rows): return {{"x": default_collate([x for x, _ in rows]), "anchors": torch.ones(3, 4)}}
        # a DataLoader's own queue loses lazy conjugation, so with workers there is nothing to compare with
        for collate in (pooled, halved, memoised, ragged) + (() if {workers} else (conjugated,)):
            loader = DataLoader(Numbers(128, width=64), batch_size=8, num_workers={workers}, collate_fn=collate)
            kept.clear()
            want = list(loader)
            kept.clear()
            with tsnb.serve(loader, name="s", window=2):
                got = [b for b in tsnb.attach("c", drop_last=True)]
            def same(a, b):
                if isinstance(a, dict): return all(same(a[k], b[k]) for k in a)
                if isinstance(a, (list, tuple)): return all(map(same, a, b))
                return torch.equal(a, b)
            # each worker memoises the first batch that it happens to see, so only its kind can be compared
            if collate is memoised and {workers}:
                same = lambda a, b: torch.equal(a[0], b[0]) and (b[1][:, 0] - b[1][0, 0]).tolist() == list(range(8))
            say(collate.__name__, len(got) == len(want), all(map(same, want, got)))
        """
    )
    for name in ("pooled", "halved", "memoised", "ragged", *(() if workers else ("conjugated",))):
        assert (name, script.expect(name)) == (name, "True True")


def test_serving_and_attaching_leave_the_process_as_they_found_it(run: Run) -> None:
    """One process serves, attaches, closes: torch's and Python's own settings are then what they were.

    With workers and without. Random numbers too, but for what a loop draws: as much as one over the loader itself.
    """
    script = run(
        """
        import gc, locale, logging, multiprocessing, random, resource, signal, threading, warnings, numpy
        import torch.multiprocessing
        from torch.utils.data._utils import collate

        def state():
            gc.collect()
            return {
                "collate": dict(collate.default_collate_fn_map),
                "sharing": torch.multiprocessing.get_sharing_strategy(),
                "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
                "dtype": torch.get_default_dtype(),
                "grad": torch.is_grad_enabled(),
                "numpy errors": numpy.geterr(),
                "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
                "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
                "wakeup": (w := signal.set_wakeup_fd(-1), signal.set_wakeup_fd(w))[0],
                "environment": dict(os.environ),
                "filters": list(warnings.filters),
                "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning,
                          sys.displayhook, sys.gettrace(), threading.gettrace()),
                "path": list(sys.path),
                "directory": os.getcwd(),
                "umask": (m := os.umask(0o77), os.umask(m))[0],
                "gc": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
                "switch": sys.getswitchinterval(),
                "recursion": sys.getrecursionlimit(),
                "limits": [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")],
                "cores": os.sched_getaffinity(0),
                "nice": os.nice(0),
                "logging": (logging.root.level, list(logging.root.handlers), list(logging.getLogger("tsnb").handlers)),
                "locale": locale.setlocale(locale.LC_ALL),
                "random": (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()),
                "descriptors": sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0]
                                      for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")),
                "running": [t.name for t in threading.enumerate()],
                "children": [c.name for c in multiprocessing.active_children()],
                "start method": multiprocessing.get_start_method(allow_none=True),
            }

        def use(**options):
            loader = DataLoader(Numbers(48), batch_size=8, shuffle=True, **options)
            with tsnb.serve(loader, name="s", seed=1):
                consumer = tsnb.attach("c")
                with torch.random.fork_rng(devices=[]):
                    for batch in consumer: break
                tsnb.stream.consumer.detach_all()

        first = state()
        use()
        without = state()
        use(num_workers=1)  # settles the start method, as any DataLoader with workers does
        use(num_workers=1)
        for _ in range(300):  # threads of torch's queues end a moment after their queues
            tried = state()
            if first["running"] == tried["running"] and first["descriptors"] == tried["descriptors"]: break
            time.sleep(0.1)
        say("without", [name for name in first if first[name] != without[name]])
        say("with", [name for name in first if first[name] != tried[name] and name != "start method"])
        for name in first:
            if first[name] != tried[name]: say(name, str(first[name])[:300], "->", str(tried[name])[:300])
        say("done")
        """
    )
    script.expect("done")
    assert "without []" in script.lines, script.lines
    assert "with []" in script.lines, script.lines
