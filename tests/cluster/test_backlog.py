"""What a kernel on another machine has to tell until it has been fetched."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tsnb.cluster.backlog import Backlog


def text(word: str, name: str = "stdout") -> dict[str, Any]:
    return {"name": name, "text": word}


MESSAGES = st.lists(
    st.one_of(
        st.tuples(
            st.just("stream"), st.builds(text, st.text(max_size=5), st.sampled_from(["stdout", "stderr"]))
        ),
        st.tuples(st.just("error"), st.just({"traceback": ["x"]})),
    )
)


@given(st.lists(st.tuples(MESSAGES, st.booleans(), st.booleans())))
def test_whatever_gets_lost_on_the_way_all_of_it_arrives_once_and_in_order(
    rounds: list[tuple[list[Any], bool, bool]],
) -> None:
    """An answer that never came is given again, with what came since; text may be joined with its neighbour only.

    The question whose answer was lost may still be looked at, behind the next one.
    """
    outbox = Backlog()
    arrived: list[Any] = []
    sent: list[Any] = []
    for messages, comes_through, late in [*rounds, ([], True, False)]:
        for message in messages:
            outbox.add(*message)
        sent += messages
        answer = outbox.since(len(arrived))
        if comes_through:
            before = len(arrived)
            arrived += answer
            if late:
                outbox.since(len(arrived))
                assert answer == [] or outbox.since(before) == []
    assert _joined(arrived) == _joined(sent)


def _joined(messages: list[Any]) -> list[Any]:
    """Return messages with all neighbouring text of one stream in one piece."""
    found: list[Any] = []
    for kind, content in messages:
        if kind == "stream" and found and found[-1][0] == kind and found[-1][1]["name"] == content["name"]:
            found.append((kind, text(found.pop()[1]["text"] + content["text"], content["name"])))
        elif kind != "stream" or content["text"]:
            found.append((kind, content))
    return found


def test_text_is_joined_until_somebody_has_it() -> None:
    """A progress bar's crumbs are one message; what was handed out is not changed any more."""
    outbox = Backlog()
    outbox.add("stream", text("a"))
    outbox.add("stream", text("b"))
    assert outbox.since(0) == [("stream", text("ab"))]
    outbox.add("stream", text("c"))
    assert outbox.since(0) == [("stream", text("ab")), ("stream", text("c"))]
    assert outbox.since(2) == []


def test_a_loop_that_prints_without_end_leaves_text_out_and_says_how_much() -> None:
    """Text is bounded while nobody asks; replies and errors are never left out."""
    outbox = Backlog(most_chars=10)
    for _ in range(5):
        outbox.add("stream", text("12345"))
    outbox.add("tsnb_reply", {"request": "r"})
    first = outbox.since(0)
    assert [kind for kind, _ in first] == ["stream", "tsnb_reply", "stream"]
    assert first[0][1]["text"] == "1234512345"
    assert "[15 characters were left out here" in first[2][1]["text"]
    assert outbox.since(3) == []
    outbox.add("stream", text("again"))
    assert outbox.since(3) == [("stream", text("again"))]
