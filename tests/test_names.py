"""Names that are cut: told apart, by the panel's own rule."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import tsnb
from tests.panel.test_frontend import node
from tsnb.text.names import shortened

LEARNING = Path(tsnb.__file__).parent / "panel" / "frontend" / "src" / "learning.js"

SWEEP = [f"train_mlp-lr{lr}-width{width}" for lr in (0.01, 0.001, 0.0003) for width in (64, 512)]
DUELS = [
    f"{name}-{seed}-{arm}"
    for name in ("momentum-against-classify", "warm-up-against-none")
    for seed in range(1, 13)
    for arm in ("incumbent", "candidate")
]
LISTS = {
    "sweep": SWEEP,
    "sweep beside others": ["mlp", "wide-cnn", *SWEEP],
    "one duel": DUELS[:24],
    "two duels": DUELS,
    "two families that end alike": [
        f"{stem}-width{w}" for stem in ("train", "plan-train") for w in (16, 256, 2048)
    ],
    "nets": ["net50-lr0.1-cosine", "net50-lr0.2-cosine"],
    "differ in the middle": [f"{'a' * 30}{digit}{'b' * 33}" for digit in "123"],
    "differ at the end": [f"{'a' * 63}{digit}" for digit in "12"],
    "one of all is longer": ["net50-lr1", "net50-lr1-longer"],
    "alone": ["x" * 64],
    "odd": ["", "-", "a-", "--lr", "über-größe=1", "über-größe=2", "1 2 3", "1 2 4"],
}


@pytest.mark.parametrize("which", LISTS)
def test_no_two_names_are_cut_to_the_same(which: str) -> None:
    """Few letters or many: it is better to have a letter more than a name twice."""
    for most in (9, 11, 14, 17, 20, 24):
        short = shortened(LISTS[which], most)
        assert len(set(short.values())) == len(LISTS[which]), short
        assert all(len(cut) <= max(len(name), 1) for name, cut in short.items()), short


def test_names_of_a_sweep_are_cut_to_its_parameters() -> None:
    """And those of a duel to seed and arm; a name alone keeps its beginning and its end."""
    assert shortened(SWEEP, 14)["train_mlp-lr0.001-width512"] == "…lr0.001-w512"
    assert shortened(DUELS[:24], 14)[DUELS[0]] == "…1-incumbent"
    assert shortened(["a-name-of-many-letters"], 10) == {"a-name-of-many-letters": "a-nam…ters"}


def test_the_panel_cuts_names_by_the_same_rule() -> None:
    """Its own function, run by Node, on the same names at each length."""
    script = (
        f"import {{ shortened }} from {json.dumps(LEARNING.as_uri())};"
        "const lists = JSON.parse(process.argv[1]);"
        "const of = (names) => Array.from({ length: 30 }, (_, k) => shortened(names, k + 4));"
        "console.log(JSON.stringify(Object.fromEntries(Object.entries(lists).map(([k, its]) => [k, of(its)]))));"
    )
    command = [node(), "--input-type=module", "-e", script, json.dumps(LISTS)]
    found = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    )
    for which, names in LISTS.items():
        for most, short in enumerate(found[which], start=4):
            assert shortened(names, most) == short, (which, most)
