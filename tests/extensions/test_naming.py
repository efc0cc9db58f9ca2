"""Extensions are told apart by their names."""

from __future__ import annotations

import pytest

from tsnb.extensions.live import LiveAnswers
from tsnb.extensions.metrics import MetricsTold
from tsnb.stream.protocol.extension import by_name


def test_two_extensions_of_one_name_are_refused() -> None:
    """Each would get what the other was told."""
    assert by_name([LiveAnswers(), MetricsTold()]).keys() == {"live", "metrics"}
    with pytest.raises(
        ValueError, match=r"Two extensions are named 'live'\. Give one of them another name\."
    ):
        by_name([LiveAnswers(), LiveAnswers()])
