"""The nearest known word, and rows as text or HTML."""

from __future__ import annotations

import pytest

from tsnb.text.words import (
    bytes_of,
    did_you_mean,
    first_numbers,
    html_table,
    marked_html,
    short_number,
    text_table,
)

ROWS = [["trial", "state"], ["cnn", "done"], ["<b>wide & long</b>", "failed"]]


def test_a_near_word_is_offered_and_a_far_one_is_not() -> None:
    """With a blank before it, so that it may follow a sentence; what is no text is compared as it is written."""
    assert did_you_mean("strat", ["stop", "start"]) == " Did you mean 'start'?"
    assert did_you_mean("frobnicate", ["stop", "start"]) == ""
    assert did_you_mean(101, ["100", "7"]) == " Did you mean '100'?"
    assert did_you_mean("start", []) == ""


def test_a_large_number_has_no_exponent() -> None:
    """Paces of a thousand samples a second and more are read, not decoded."""
    found = [short_number(value) for value in (0.04312, 4.131, 968.2, 999.4, 999.7, 1153.0, 1_234_567.0, 0.0)]
    assert found == ["0.0431", "4.13", "968", "999", "1,000", "1,153", "1,234,567", "0"]


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


@pytest.mark.parametrize(
    ("size", "in_bytes"),
    [
        ("8GiB", 8 * 2**30),
        ("8G", 8 * 2**30),
        ("100MB", 1e8),
        ("100 MB/s", 1e8),
        ("1.5kB", 1500),
        (2048, 2048),
        ("1e6", 1e6),
    ],
)
def test_sizes_are_read_as_people_write_them(size: str | float, in_bytes: float) -> None:
    """Binary and decimal prefixes, with or without a space, bytes a second too."""
    assert bytes_of(size) == in_bytes


@pytest.mark.parametrize("size", ["much", "", "-3GB", "0", "8Gib", "8iB", True, "8 elephants", "nan", "inf"])
def test_what_is_not_a_size_is_refused_with_an_example(size: str | bool) -> None:
    """A misspelt prefix is not taken for another one."""
    with pytest.raises(ValueError, match="8GiB"):
        bytes_of(size)


def test_code_between_backticks_is_marked_as_code_and_all_is_text() -> None:
    """One that stands alone is a character."""
    assert marked_html("run `a<b`, then `c` & d") == "run <code>a&lt;b</code>, then <code>c</code> &amp; d"
    assert marked_html("a lone ` here") == "a lone ` here"


def test_of_very_many_numbers_the_first_are_shown_and_those_with_a_mark() -> None:
    """A line of ten thousand is none that anybody reads."""
    assert first_numbers({"loss": 0.25, "acc": float("nan")}, "=") == ["loss=0.25", "acc=nan"]
    many = {f"k{k}": float(k) for k in range(10_000)}
    assert first_numbers(many, marks={"k77": " (best)"}, most=2) == [
        "k0 0",
        "k1 1",
        "k77 77 (best)",
        "9,997 more",
    ]
