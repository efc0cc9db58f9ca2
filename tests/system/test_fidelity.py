"""What arrives is what the loader yields: bit for bit with its type, or refused with its place and the way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house.test_docs import table_after
from tests.system.conftest import Run
from tests.system.kinds import KEPT, REFUSED, ROWS, Row, expected
from tests.system.sameness import differences
from tsnb.errors import BatchNotShareable
from tsnb.native.memfd import SWITCH
from tsnb.stream.consumer.batches.unpacking import Unpacker
from tsnb.stream.loader.packing import SlotWriter, batch_bytes
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

PAGE = Path(__file__).parents[2] / "docs" / "batch-contents.md"


@pytest.fixture(scope="module", params=["native", "portable"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "portable":
            patch.setenv(SWITCH, "1")
        made = Arena.create()
        made.fit(1, 1 << 20)
    yield made
    made.close()


def there_and_back(arena: Arena, tree: Any, *, private: bool = False) -> Any:
    """Write a batch into a slot, and read it as a consumer does."""
    writer = SlotWriter(arena, 0)
    placed = writer.write(tree)
    assert placed.values_offset + placed.values_bytes <= batch_bytes(tree) + 64
    unpacker = Unpacker(arena, 4, ScratchPool(), lambda lease: None)
    batch = ms.Batch(0, 0, 0, 0, placed.rows, 7, placed.values_offset, placed.values_bytes)
    return unpacker.read(batch, Layout.decode(placed.layout), private=private).tree()


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("row", KEPT, ids=lambda row: row.what[:40])
def test_it_is_kept_with_its_type(arena: Arena, row: Row, private: bool) -> None:
    """Each by itself, in its slot and as a consumer's own copy."""
    for value in row.make():
        got = there_and_back(arena, {"x": value}, private=private)
        want = {"x": row.expect(value) if row.expect else value}
        assert not differences(want, got)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.what[:40])
def test_it_is_refused_with_its_place_and_a_way_out_that_works(arena: Arena, row: Row) -> None:
    """The error names where it stands, and what it says to do can be shared."""
    assert row.instead is not None
    for value in row.make():
        with pytest.raises(BatchNotShareable, match=r"^batch\['x'\]\[0\]") as refused:
            there_and_back(arena, {"x": [value]})
        assert re.search(
            r"[Gg]ive |[Cc]all |[Cc]onvert|[Cc]hange|[Ll]eave |[Ss]hare |[Rr]eturn |[Rr]emove ",
            str(refused.value),
        ), refused.value
        instead = row.instead(value)
        assert not differences([instead], there_and_back(arena, [instead]))


@pytest.mark.slow
@pytest.mark.parametrize("portable", [False, True])
def test_a_stream_of_everything_arrives_whoever_loads_it(
    run: Run, portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is kept in one batch: copied by the producer, and collated into slots by workers of every kind."""
    if portable:
        monkeypatch.setenv(SWITCH, "1")
    script = run(
        """
        import warnings
        from tests.system.kinds import Batches, as_it_is, everything, expected, first
        from tests.system.sameness import differences
        warnings.simplefilter("ignore")
        ways = {"iterable": [everything() for _ in range(2)]}
        ways["no workers"] = DataLoader(Batches(), batch_size=None, collate_fn=as_it_is)
        for method in ("fork", "forkserver", "spawn"):
            ways[method] = DataLoader(Batches(), batch_size=1, collate_fn=first, num_workers=1,
                                      multiprocessing_context=method)
        want = expected()
        for way, loader in ways.items():
            with tsnb.serve(loader, name="s", window=2) as producer:
                batches = [differences(want, batch) for batch in tsnb.attach("c")]
                say(way, len(batches), sum(batches, [])[:5])
        """
    )
    for way in ("iterable", "no workers", "fork", "forkserver", "spawn"):
        assert script.expect(way, 120) == ("2 []" if way == "iterable" else "4 []")


def test_the_page_has_these_rows() -> None:
    """docs/batch-contents.md says of each kind what these tests hold."""
    rows = table_after(PAGE.read_text(encoding="utf-8"), "## Supported values")
    assert rows == [row.cells for row in ROWS]
    assert expected()
