"""Data that grows while trials train, in real processes: files appended, producers killed, none lost or twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.system.scripts import FAMILY, Script, scripts
from tsnb.growing.inclusion import probabilities
from tsnb.growing.index import GrowthIndex

pytestmark = [pytest.mark.system, pytest.mark.slow]

FILES = 400
MANY = 10_000

SCRIPT = (
    FAMILY
    + """
folder, files = sys.argv[1], int(sys.argv[2])

def number_in(path):
    with open(path) as file: return int(file.read())

def add(first, stop):
    for number in range(first, stop):
        with open(f"{folder}/{number}.tmp", "w") as file: file.write(str(number))
        os.rename(f"{folder}/{number}.tmp", f"{folder}/{number}")

def produce():
    loader = DataLoader(tsnb.data.grow(folder, number_in, settle_s=0), 8, shuffle=True, num_workers=1)
    tsnb.serve(loader, name="g", reconnect_s=60, stall_timeout_s=60, window=4).wait()

def note(*words):
    # in a file of each process: ten thousand numbers are more than a pipe takes at once
    with open(f"{folder}.{os.getpid()}", "a") as file: print(*words, file=file)

def train(name):
    consumer = tsnb.attach(name, "g")
    while True:
        taken = []
        for batch in consumer: taken += batch.tolist()
        note("epoch", name, consumer.epoch, *taken)
        if len(taken) == files: break
    consumer.close()
    say("done", name)

def wait_for(fact):
    while not fact(): time.sleep(0.01)

def served(former):
    wait_for(lambda: [e for e in tsnb.streams.list() if e.name == "g" and e.pid != former])

add(0, files // 4)
producer = forked(produce)
served(0)
trials = [forked(train, name) for name in "abc"]
wait_for(lambda: len(tsnb.streams.status("g").consumers) == 3)
for quarter in (1, 2, 3):
    add(quarter * files // 4, (quarter + 1) * files // 4)
    if quarter == 3: break
    begun = tsnb.streams.status("g").batches
    wait_for(lambda: tsnb.streams.status("g").batches > begun + 7)
    os.kill(producer, signal.SIGKILL)
    os.waitpid(producer, 0)
    former, producer = producer, forked(produce)
    served(former)
    wait_for(lambda: len(tsnb.streams.status("g").consumers) == 3)
for trial in trials: os.waitpid(trial, 0)
tsnb.streams.stop("g")
os.waitpid(producer, 0)
say("over")
"""
)


ROUNDS = (
    SCRIPT.split("def train(name):")[0]
    + """
def train(name):
    # one that asks when the others have taken some of the first round would never find all
    consumer, loop = together("g", name, 3)
    found = 0
    while found < files:
        taken = []
        for batch in loop:
            taken += batch.tolist()
            time.sleep(4 / files)
        loop = consumer
        found += len(taken)
        note("round", name, consumer.epoch, *taken)
    consumer.close()
"""
    + SCRIPT[SCRIPT.index("def wait_for(fact):") : SCRIPT.index("add(0, files // 4)")]
    + """
add(0, files // 8)
producer = forked(produce)
served(0)
tsnb.data.rounds("g", tsnb.data.every(files // 10) | tsnb.data.interval("2s"), "new")
trials = [forked(train, name) for name in "abc"]
wait_for(lambda: len(tsnb.streams.status("g").consumers) == 3)
for eighth in range(1, 8):
    begun = tsnb.streams.status("g").batches
    add(eighth * files // 8, (eighth + 1) * files // 8)
    if eighth in (2, 5):
        wait_for(lambda: tsnb.streams.status("g").batches > begun)
        os.kill(producer, signal.SIGKILL)
        os.waitpid(producer, 0)
        former, producer = producer, forked(produce)
        served(former)
for trial in trials: os.waitpid(trial, 0)
tsnb.streams.stop("g")
os.waitpid(producer, 0)
say("over")
"""
)


HARD = (
    SCRIPT.split("def train(name):")[0].replace("window=4", "window=4, late_join=1.0")
    + """
import glob, struct
import numpy as np

def train(name, whole):
    consumer = tsnb.attach(name, "g")
    wait_for(lambda: len(tsnb.streams.status("g").consumers) == 3)
    if whole:
        for batch in consumer: consumer.report(1.0 + batch / 100)
    wait_for(lambda: os.path.exists(folder + ".rounds"))
    left = 2  # rounds, once nobody is killed any more
    while left:
        left -= os.path.exists(folder + ".enough")
        taken, weights = [], []
        for batch in consumer:
            taken += batch.tolist()
            weights += consumer.weights.tolist()
            consumer.report(1.0 + batch / 100)
            time.sleep(0.03)
        if len(taken) < files:  # another epoch of all may have begun before there were rounds
            say("round", name, consumer.epoch, *(f"{i}:{w:.7g}" for i, w in zip(taken, weights, strict=True)))
    consumer.close()
    say("done", name)
"""
    + SCRIPT[SCRIPT.index("def wait_for(fact):") : SCRIPT.index("add(0, files // 4)")]
    + """
def kept():
    # how many losses lie in the file
    for path in glob.glob(f"{folder}/.tsnb-index/*.losses"):
        with open(path, "rb") as file: text = file.read()
        return int(np.isfinite(np.frombuffer(text, "<f4", offset=12 + struct.unpack_from("<8sI", text)[1])).sum())
    return 0

def in_the_middle(after):
    # wait until somebody is in the middle of a later round; return which
    while True:
        for one in tsnb.streams.status("g").consumers:
            if one.epoch > after and 3 <= one.position <= 9: return one.epoch
        time.sleep(0.005)

add(0, files)
producer = forked(produce)
served(0)
trials = [forked(train, name, True) for name in "abc"]
wait_for(lambda: kept() == 3 * files)
tsnb.data.rounds("g", tsnb.data.interval(0.2), "hard:0.3")
open(folder + ".rounds", "w").close()
epoch = 0
for killed in ("producer", "consumer", "producer"):
    epoch = in_the_middle(epoch)
    say("kill", killed, epoch)
    if killed == "consumer":
        os.kill(trials[2], signal.SIGKILL)
        os.waitpid(trials[2], 0)
        trials[2] = forked(train, "c", False)
        continue
    os.kill(producer, signal.SIGKILL)
    os.waitpid(producer, 0)
    former, producer = producer, forked(produce)
    served(former)
open(folder + ".enough", "w").close()
for trial in trials: os.waitpid(trial, 0)
tsnb.streams.stop("g")
os.waitpid(producer, 0)
say("over")
"""
)


def noted(script: str, folder: Path, files: int) -> list[list[str]]:
    """Run a script to its end; return what its trials noted, a line an epoch."""
    folder.mkdir()
    with scripts() as running:
        running.append(process := Script(script, str(folder), str(files)))
        process.expect("over", 400)
        assert process.end() == 0
        assert not [line for line in process.lines if line.startswith("failed")]
    notes = folder.parent.glob(f"{folder.name}.*")
    return [line.split() for note in notes for line in note.read_text().splitlines()]


@pytest.mark.parametrize("files", [FILES, MANY])
def test_files_appended_while_trials_train_and_producers_are_killed_are_lost_nowhere(
    tmp_path: Path, files: int
) -> None:
    """Each epoch of each of three trials has each sample once, in the order that all have, and the last has all."""
    folder = tmp_path / "incoming"
    said = noted(SCRIPT, folder, files)
    # files of one tick of the clock are found in the order of their names, not in that in which they came
    found = [int(name) for name in GrowthIndex(str(folder / ".tsnb-index")).keys(0, files)]
    assert sorted(found) == list(range(files))
    epochs: dict[int, set[tuple[int, ...]]] = {}
    for _, _name, epoch, *taken in said:
        numbers = tuple(map(int, taken))
        assert len(set(numbers)) == len(numbers), "twice in an epoch"
        assert set(numbers) == set(found[: len(numbers)]), "lost, or given before one that was found sooner"
        epochs.setdefault(int(epoch), set()).add(numbers)
    assert all(len(orders) == 1 for orders in epochs.values()), "all trials have the same order"
    assert len(next(iter(epochs[max(epochs)]))) == files


@pytest.mark.parametrize("files", [FILES, MANY])
def test_in_rounds_of_new_samples_each_comes_once_though_producers_are_killed(
    tmp_path: Path, files: int
) -> None:
    """Over all rounds of each of three trials, in the order that all have; a round that was broken off goes on."""
    said = noted(ROUNDS, tmp_path / "incoming", files)
    of_trial = {name: [line[2:] for line in said if line[1] == name] for name in "abc"}
    assert of_trial["a"] == of_trial["b"] == of_trial["c"]
    numbers = [int(number) for _, *taken in of_trial["a"] for number in taken]
    assert sorted(numbers) == list(range(files))
    assert [int(epoch) for epoch, *_ in of_trial["a"]] == list(range(len(of_trial["a"])))


def test_rounds_of_hard_samples_are_whole_and_weighed_though_producers_and_a_trial_are_killed(
    tmp_path: Path,
) -> None:
    """Each sample of a round once in each trial, all have the same, and the weights are those of the losses reported.

    Those of rounds that a successor drew, too: to it nothing was reported but what rounds have, a third of all.
    """
    folder = tmp_path / "incoming"
    folder.mkdir()
    with scripts() as running:
        script = Script(HARD, str(folder), str(FILES))
        running.append(script)
        script.expect("over", 400)
        assert script.end() == 0
        said = [line.split() for line in script.lines]
    assert not [line for line in said if line[:1] == ["failed"]]
    kills = [line for line in said if line[:1] == ["kill"]]
    assert [killed for _, killed, _ in kills] == ["producer", "consumer", "producer"]
    wanted = round(0.3 * FILES)
    likely = probabilities(1.0 + np.arange(FILES) / 100, wanted)
    rounds: dict[str, list[int]] = {name: [] for name in "abc"}
    orders: dict[int, set[tuple[int, ...]]] = {}
    for _, name, epoch, *pairs in (line for line in said if line[:1] == ["round"]):
        samples = tuple(int(pair.partition(":")[0]) for pair in pairs)
        weights = [float(pair.partition(":")[2]) for pair in pairs]
        assert len(set(samples)) == len(samples) == wanted, "lost, or twice in a round"
        np.testing.assert_allclose(weights, wanted / (FILES * likely[list(samples)]), rtol=1e-4)
        orders.setdefault(int(epoch), set()).add(samples)
        rounds[name].append(int(epoch))
    assert all(len(its) == 1 for its in orders.values()), "all trials have the same round"
    assert all(len(set(its)) >= 2 for its in rounds.values())
    assert {int(epoch) for *_, epoch in kills} <= orders.keys(), "killed in the middle of a round"
    assert max(rounds["a"]) > int(kills[-1][2]), "rounds that the last producer drew"
