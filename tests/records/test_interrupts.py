"""An interrupt in the middle of a transaction: nothing stays locked."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tsnb.records import database
from tsnb.records.database import FILE, writing


def test_an_interrupt_right_after_a_transaction_has_begun_undoes_it(tmp_path: Path) -> None:
    """At the very next line; else this process could write no more, and no other could either."""
    with writing(tmp_path, make=True):
        pass
    writer = database._writers[tmp_path]
    code = database._Writer.transaction.__wrapped__.__code__  # type: ignore[attr-defined]

    def interrupt(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return interrupt
        connection = writer._connection
        if event == "line" and connection is not None and connection.in_transaction:
            raise KeyboardInterrupt
        return interrupt

    former = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), writing(tmp_path):
            pytest.fail("it went on")
    finally:
        sys.settrace(former)
    assert writer._connection is not None and not writer._connection.in_transaction
    other = sqlite3.connect(tmp_path / FILE, timeout=0.1, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.close()
    with writing(tmp_path) as connection:
        connection.execute("SELECT 1")
