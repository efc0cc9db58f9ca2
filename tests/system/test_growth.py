"""Data that grows while trials train, in real processes: files appended, producers killed, none lost or twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.scripts import FAMILY, Script, scripts

pytestmark = [pytest.mark.system, pytest.mark.slow]

FILES = 400

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
    loader = DataLoader(tsnb.grow(folder, number_in, settle_s=0), 8, shuffle=True, num_workers=1)
    tsnb.serve(loader, name="g", reconnect_s=60, patience_s=60, window=4).wait()

def train(name):
    consumer = tsnb.attach(name, "g")
    while True:
        taken = []
        for batch in consumer: taken += batch.tolist()
        say("epoch", name, consumer.epoch, *taken)
        if len(taken) == files: break
    consumer.close()
    say("done", name)

def wait_for(fact):
    while not fact(): time.sleep(0.01)

def served(former):
    wait_for(lambda: [e for e in tsnb.producers() if e.name == "g" and e.pid != former])

add(0, files // 4)
producer = forked(produce)
served(0)
trials = [forked(train, name) for name in "abc"]
wait_for(lambda: len(tsnb.status("g").consumers) == 3)
for quarter in (1, 2, 3):
    add(quarter * files // 4, (quarter + 1) * files // 4)
    if quarter == 3: break
    begun = tsnb.status("g").batches
    wait_for(lambda: tsnb.status("g").batches > begun + 7)
    os.kill(producer, signal.SIGKILL)
    os.waitpid(producer, 0)
    former, producer = producer, forked(produce)
    served(former)
    wait_for(lambda: len(tsnb.status("g").consumers) == 3)
for trial in trials: os.waitpid(trial, 0)
tsnb.stop("g")
os.waitpid(producer, 0)
say("over")
"""
)


ROUNDS = (
    SCRIPT.split("def train(name):")[0]
    + """
def train(name):
    consumer = tsnb.attach(name, "g")
    # whoever came after the first round would never find all
    wait_for(lambda: len(tsnb.status("g").consumers) == 3)
    found = 0
    while found < files:
        taken = []
        for batch in consumer:
            taken += batch.tolist()
            time.sleep(0.01)
        found += len(taken)
        say("round", name, consumer.epoch, *taken)
    consumer.close()
"""
    + SCRIPT[SCRIPT.index("def wait_for(fact):") : SCRIPT.index("add(0, files // 4)")]
    + """
add(0, files // 8)
producer = forked(produce)
served(0)
tsnb.rounds("g", tsnb.every(files // 10) | tsnb.after("2s"), "new")
trials = [forked(train, name) for name in "abc"]
wait_for(lambda: len(tsnb.status("g").consumers) == 3)
for eighth in range(1, 8):
    begun = tsnb.status("g").batches
    add(eighth * files // 8, (eighth + 1) * files // 8)
    if eighth in (2, 5):
        wait_for(lambda: tsnb.status("g").batches > begun)
        os.kill(producer, signal.SIGKILL)
        os.waitpid(producer, 0)
        former, producer = producer, forked(produce)
        served(former)
for trial in trials: os.waitpid(trial, 0)
tsnb.stop("g")
os.waitpid(producer, 0)
say("over")
"""
)


def test_files_appended_while_trials_train_and_producers_are_killed_are_lost_nowhere(tmp_path: Path) -> None:
    """Each epoch of each of three trials has each sample once, in the order that all have, and the last has all."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    with scripts() as running:
        script = Script(SCRIPT, str(folder), str(FILES))
        running.append(script)
        script.expect("over")
        assert script.end() == 0
        said = [line.split() for line in script.lines if line.startswith("epoch")]
    epochs: dict[int, set[tuple[int, ...]]] = {}
    for _, _name, epoch, *taken in said:
        numbers = tuple(map(int, taken))
        assert len(set(numbers)) == len(numbers), "twice in an epoch"
        assert set(numbers) == set(range(len(numbers))), (
            "lost, or given before samples that were there sooner"
        )
        epochs.setdefault(int(epoch), set()).add(numbers)
    assert all(len(orders) == 1 for orders in epochs.values()), "all trials have the same order"
    assert len(next(iter(epochs[max(epochs)]))) == FILES


def test_in_rounds_of_new_samples_each_comes_once_though_producers_are_killed(tmp_path: Path) -> None:
    """Over all rounds of each of three trials, in the order that all have; a round that was broken off goes on."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    with scripts() as running:
        script = Script(ROUNDS, str(folder), str(FILES))
        running.append(script)
        script.expect("over")
        assert script.end() == 0
        said = [line.split() for line in script.lines if line.startswith("round")]
    of_trial = {name: [line[2:] for line in said if line[1] == name] for name in "abc"}
    assert of_trial["a"] == of_trial["b"] == of_trial["c"]
    numbers = [int(number) for _, *taken in of_trial["a"] for number in taken]
    assert sorted(numbers) == list(range(FILES))
    assert [int(epoch) for epoch, *_ in of_trial["a"]] == list(range(len(of_trial["a"])))
