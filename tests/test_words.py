"""The nearest known word, and rows as text or HTML."""

from __future__ import annotations

from tsnb.words import did_you_mean, html_table, text_table

ROWS = [["trial", "state"], ["cnn", "done"], ["<b>wide & long</b>", "failed"]]


def test_a_near_word_is_offered_and_a_far_one_is_not() -> None:
    """With a blank before it, so that it may follow a sentence; what is no text is compared as it is written."""
    assert did_you_mean("strat", ["stop", "start"]) == " Did you mean 'start'?"
    assert did_you_mean("frobnicate", ["stop", "start"]) == ""
    assert did_you_mean(101, ["100", "7"]) == " Did you mean '100'?"
    assert did_you_mean("start", []) == ""


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """No line ends in blanks."""
    assert text_table(ROWS) == [
        "trial               state",
        "cnn                 done",
        "<b>wide & long</b>  failed",
    ]


def test_cells_of_a_notebooks_table_are_text() -> None:
    """Markup in a name is shown, not obeyed."""
    shown = html_table(ROWS, "margin:0")
    assert shown.startswith("<table style='margin:0'><thead><tr><th style='text-align:left'>trial</th>")
    assert "<td style='text-align:left'>&lt;b&gt;wide &amp; long&lt;/b&gt;</td>" in shown
    assert "<b>" not in shown
