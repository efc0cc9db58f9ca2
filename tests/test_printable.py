"""Where a user's code has raised, as messages say it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tsnb
from tsnb.errors import ProducerNotFound
from tsnb.text.printable import raised_in


def test_the_line_is_the_users_though_tsnb_has_raised() -> None:
    """Code of theirs may call tsnb, in which the error comes up."""
    with pytest.raises(ProducerNotFound) as caught:
        tsnb.attach(stream="nowhere")
    line = caught.tb.tb_lineno
    assert raised_in(caught.value) == f", in {Path(__file__)}, line {line}"
