"""Text as a terminal shows it: progress bars as one line, whatever pieces they come in."""

from __future__ import annotations

import random

import pytest

from tsnb.kernels.output import screen
from tsnb.kernels.output.screen import Screen, plain


def shown(text: str, pieces: int = 1) -> str:
    """Return the lines that remain, fed in so many pieces."""
    terminal, size = Screen(), max(1, len(text) // pieces)
    settled = "".join(terminal.feed(text[at : at + size]) for at in range(0, len(text), size))
    return settled + terminal.open


@pytest.mark.parametrize(
    ("text", "remains"),
    [
        ("a\nb\n", "a\nb\n"),
        ("10 %\r20 %\r30 %\ndone\n", "30 %\ndone\n"),
        ("100 %\rok", "ok0 %"),
        ("100 %\r\x1b[Kok", "ok"),
        ("half\x1b[2K\rwhole", "whole"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("12\b\b34", "34"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[31mred\x1b[0m\rblue", "blue"),
        ("outer 0\n\rinner 0\x1b[A\router 1\n\rinner 1\x1b[A\router 2\n\rinner 2", "outer 2\ninner 2"),
        ("a\x1b[9Ab", "ab"),
    ],
)
def test_what_remains_is_what_a_terminal_shows(text: str, remains: str) -> None:
    """Whole or in single characters, a sequence torn apart included."""
    assert shown(text) == remains
    assert shown(text, len(text)) == remains


def test_any_cut_gives_the_same_lines() -> None:
    """Where a message ends says nothing about the text."""
    rng = random.Random(4)
    words = ["loss 0.3", "\n", "\r", "\x1b[A", "\x1b[K", "\x1b[32m", "\r\n", "\b", "step"]
    for _ in range(200):
        text = "".join(rng.choices(words, k=40))
        assert plain(shown(text, rng.randint(2, 60))) == plain(shown(text))


def test_a_bar_of_an_hour_takes_the_memory_of_a_line() -> None:
    """Ten updates a second for an hour: nothing settles, one line is open."""
    terminal = Screen()
    assert not any(terminal.feed(f"\r{k / 360:.1f} %|{k}/36000") for k in range(36_000))
    assert terminal.open == "100.0 %|35999/36000"


def test_a_line_that_never_ends_settles_in_pieces() -> None:
    """Dots without a newline do not fill the memory."""
    terminal = Screen()
    settled = "".join(terminal.feed("." * 100) for _ in range(1000))
    assert len(settled) >= 100_000 - 2 * screen.LONGEST_LINE
    assert settled + terminal.open == "." * 100_000


def test_plain_text_has_no_escapes() -> None:
    """Colours and cursor switches are gone, brackets stay."""
    assert plain("\x1b[1;31mx[0]\x1b[0m\x1b[?25l y") == "x[0] y"


@pytest.mark.parametrize(
    "text", ["\x1b[31mETA: NA", "\x1b[1mOK", "\x1b[7mA", "\x1b[" + "9" * 5000 + "A", "K", "A\n"]
)
def test_text_that_looks_like_a_cursor_movement_stays(text: str) -> None:
    """Drawn behind a return, where each piece is looked at: a colour and letters that end in A or K are text."""
    assert shown("\r" + text) == text
    assert shown("before\r\n" + text + "\r\nafter") == f"before\n{text}\nafter"
    assert plain(shown("0%\r" + text + " behind")).startswith(plain(text).rstrip())


def test_no_text_raises_and_what_is_no_movement_stays() -> None:
    """Anything that a program may print, in any pieces."""
    random.seed(4)
    parts = [
        "\x1b[31m",
        "\x1b[0m",
        "ETA: NA",
        "OK",
        "A",
        "K",
        "\x1b[",
        "\x1b",
        "[A",
        "12",
        ";",
        "é",
        "\ud800",
        "\n",
    ]
    moves = ["\r", "\b", "\x1b[A", "\x1b[3A", "\x1b[K", "\x1b[2K", "\x1b[99999A"]
    for _ in range(2000):
        text = "".join(random.choices(parts, k=12)) + "."
        if not screen._MOVES.search(text):
            assert shown(text, random.randint(1, 8)) == text
        shown("".join(random.choices([*parts, *moves], k=20)), random.randint(1, 8))
