"""The log feed: only what is watched, only what is new, and no thread for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tsnb.panel import logs
from tsnb.panel.logs import LogFeed, LogPart


class Source:
    """Logs that a test writes."""

    def __init__(self) -> None:
        self.runs = {"cnn": "1", "mlp": "1"}
        self.texts = {"cnn": "", "mlp": ""}
        self.open = ""
        self.reads = 0
        self.broken = False
        self.lr = "0.1"

    def trials(self) -> list[tuple[str, str]]:
        return [(name, "running") for name in self.texts]

    def read(self, name: str, run: str, position: int, most: int) -> LogPart | None:
        self.reads += 1
        if self.broken:
            raise ZeroDivisionError
        if name not in self.texts:
            return None
        text = self.texts[name]
        start = max(position if run == self.runs[name] else 0, len(text) - most)
        return LogPart(self.runs[name], start, text[start:], self.open)

    def facts(self, name: str) -> dict[str, Any] | None:
        return {"live": [["lr", self.lr]]} if name in self.texts else None

    def params(self) -> dict[str, list[list[str]]]:
        return {name: [["lr", self.lr]] for name in self.texts}

    def verdicts(self) -> dict[str, str]:
        return {}

    def sweeps(self) -> dict[str, str]:
        return {}

    def rules(self) -> dict[str, str]:
        return {}

    def beside(self) -> list[dict[str, Any]]:
        return []

    def duels(self) -> list[dict[str, Any]]:
        return []

    def changes(self) -> dict[str, list[list[Any]]]:
        return {}

    def steer(self, verb: str, name: str, content: Mapping[str, Any]) -> None:
        assert (verb, content["value"]) == ("set", "lr"), name
        self.lr = content["text"]


class Pages:
    """What was sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def text(self, name: str) -> str:
        return "".join(m["text"] for m in self.messages if m.get("name") == name and "text" in m)

    def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.messages
            time.sleep(0.01)

    def facts(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["op"] == "trial"]


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def feed(pages: Pages, source: Source) -> Any:
    feed = LogFeed(pages.messages.append)
    feed.source = source
    yield feed
    feed.rest()
    pages.until(lambda: not feeding())


def feeding() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tsnb-panel-log"]


def test_a_watched_log_comes_in_parts_and_others_do_not(feed: LogFeed, source: Source, pages: Pages) -> None:
    """What was there at once, then what is new, together with the list of trials."""
    source.texts.update(cnn="one\n", mlp="other\n")
    feed.watch("cnn")
    pages.until(lambda: pages.text("cnn") == "one\n")
    pages.until(lambda: any(m.get("trials") == source.trials() for m in pages.messages))
    source.texts["cnn"] += "two\n"
    pages.until(lambda: pages.text("cnn") == "one\ntwo\n")
    starts = [m["start"] for m in pages.messages if m.get("text")]
    assert starts == [0, 4]
    assert not pages.text("mlp")


def test_a_bar_is_sent_though_nothing_settles_and_silence_sends_nothing(
    feed: LogFeed, source: Source, pages: Pages
) -> None:
    """Each state of the open line once."""
    feed.watch("cnn")
    for state in ("10 %", "20 %"):
        source.open = state
        pages.until(lambda: any(m.get("open") == source.open for m in pages.messages))
    before, reads = len(pages.messages), source.reads
    pages.until(lambda: source.reads > reads + 3)
    assert len(pages.messages) == before


def test_whoever_asks_gets_an_answer_from_where_he_is(feed: LogFeed, source: Source, pages: Pages) -> None:
    """A page that loads again starts at 0 while another has all of it; one that knows it all hears so."""
    source.texts["cnn"] = "one\ntwo\n"
    feed.watch("cnn")
    pages.until(lambda: pages.text("cnn") == "one\ntwo\n")
    feed.watch("cnn", "1", 4)
    pages.until(lambda: pages.text("cnn") == "one\ntwo\ntwo\n")
    feed.watch("cnn", "1", 8)
    pages.until(lambda: pages.messages[-1].get("start") == 8 or pages.messages[-2].get("start") == 8)


def test_another_run_is_sent_from_its_start(feed: LogFeed, source: Source, pages: Pages) -> None:
    """The trial's cell was run again: its new log, not the end of it."""
    source.texts["cnn"] = "a long first run\n"
    feed.watch("cnn")
    pages.until(lambda: pages.text("cnn"))
    source.runs["cnn"], source.texts["cnn"] = "2", "again\n"
    pages.until(lambda: any(m.get("run") == "2" and m["start"] == 0 for m in pages.messages))
    assert pages.text("cnn") == "a long first run\nagain\n"


def test_a_log_too_long_for_a_pane_comes_from_where_it_can(
    feed: LogFeed, source: Source, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end, marked as such; what follows is not."""
    monkeypatch.setattr(logs, "PANE_CHARACTERS", 10)
    source.texts["cnn"] = 100 * "x" + "0123456789"
    feed.watch("cnn")
    pages.until(lambda: pages.text("cnn") == "0123456789")
    source.texts["cnn"] += "more"
    pages.until(lambda: pages.text("cnn") == "0123456789more")
    assert [(m["start"], m.get("cut", False)) for m in pages.messages if m.get("text")] == [
        (100, True),
        (110, False),
    ]


def test_an_unknown_log_is_told_once(feed: LogFeed, source: Source, pages: Pages) -> None:
    """A consumer of another process has no log here; it may get one."""
    feed.watch("elsewhere")
    reads = source.reads
    pages.until(lambda: source.reads > reads + 3)
    assert [m for m in pages.messages if m.get("missing")] == [
        {"op": "log", "name": "elsewhere", "missing": True}
    ]
    source.texts["elsewhere"], source.runs["elsewhere"] = "here now\n", "1"
    pages.until(lambda: pages.text("elsewhere") == "here now\n")


def test_a_closed_pane_ends_the_thread_and_a_silent_page_is_forgotten(
    feed: LogFeed, source: Source, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread for nobody; the next one who asks is served again."""
    feed.watch("cnn")
    assert len(feeding()) == 1
    feed.rest()
    pages.until(lambda: not feeding())
    monkeypatch.setattr(logs, "FORGET_S", 0.3)
    feed.watch("cnn")
    pages.until(lambda: not feeding())
    source.texts["cnn"] = "later\n"
    feed.watch("cnn")
    pages.until(lambda: pages.text("cnn") == "later\n")


def test_a_page_that_loads_is_told_which_log_was_open(feed: LogFeed) -> None:
    """Reloading a page does not close its pane."""
    assert feed.scene() == {
        "name": "", "shown": False, "can": True, "trials": [("cnn", "running"), ("mlp", "running")],
    }  # fmt: skip
    feed.watch("cnn")
    assert (feed.scene()["name"], feed.scene()["shown"]) == ("cnn", True)
    feed.rest()
    assert (feed.scene()["name"], feed.scene()["shown"]) == ("cnn", False)


def test_a_source_that_breaks_does_not_end_the_feed(feed: LogFeed, source: Source, pages: Pages) -> None:
    """One bad moment costs a quarter of a second."""
    source.broken = True
    feed.watch("cnn")
    pages.until(lambda: source.reads > 1)
    source.broken = False
    source.texts["cnn"] = "well again\n"
    pages.until(lambda: pages.text("cnn") == "well again\n")


def test_a_drawers_facts_are_sent_when_they_change(source: Source, feed: LogFeed, pages: Pages) -> None:
    """Once to who asks, again when they are others, and no thread is left once the drawer is closed."""
    feed.show("cnn")
    pages.until(lambda: len(pages.facts()) == 1)
    assert pages.facts() == [{"op": "trial", "name": "cnn", "live": [["lr", "0.1"]]}]
    source.steer("set", "cnn", {"value": "lr", "text": "0.05"})
    pages.until(lambda: len(pages.facts()) == 2)
    assert pages.facts()[1]["live"] == [["lr", "0.05"]]
    feed.show("cnn")  # another page, or the same after a reload
    pages.until(lambda: len(pages.facts()) == 3)
    feed.show("elsewhere")
    pages.until(lambda: len(pages.facts()) == 4)
    assert pages.facts()[3] == {"op": "trial", "name": "elsewhere", "missing": True}
    feed.show("")
    pages.until(lambda: not any(thread.name == "tsnb-panel-log" for thread in threading.enumerate()))
    assert not any("text" in message for message in pages.messages), "nobody asked for a log"


def test_a_figure_that_a_page_has_is_not_sent_again(
    source: Source, feed: LogFeed, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes go once to a page that says what it has; to one that says nothing all of them."""
    facts = {"live": [["lr", "0.1"]], "figures": [["a.png", "a 1", "data:a"]]}
    monkeypatch.setattr(source, "facts", lambda name: dict(facts))
    feed.show("cnn")
    pages.until(lambda: len(pages.facts()) == 1)
    assert pages.facts()[0]["figures"] == [["a.png", "a 1", "data:a"]]
    facts["figures"] = [["a.png", "a 1", "data:a"], ["b.png", "b 1", "data:b"]]
    pages.until(lambda: len(pages.facts()) == 2)
    assert pages.facts()[1]["figures"] == [["a.png", "a 1", ""], ["b.png", "b 1", "data:b"]]
    feed.show("cnn", ["b 1"])
    pages.until(lambda: len(pages.facts()) == 3)
    assert pages.facts()[2]["figures"] == [["a.png", "a 1", "data:a"], ["b.png", "b 1", ""]]
    feed.show("cnn")
    pages.until(lambda: len(pages.facts()) == 4)
    assert [data for *_, data in pages.facts()[3]["figures"]] == ["data:a", "data:b"]
    feed.show("")


def test_a_drawers_log_opens_no_pane(source: Source, feed: LogFeed, pages: Pages) -> None:
    """A page that loads again has its drawer, not a log pane that nobody opened."""
    source.texts["cnn"] = "one\n"
    feed.watch("cnn", pane=False)
    pages.until(lambda: pages.text("cnn") == "one\n")
    assert not feed.scene()["shown"] and feed.scene()["name"] == ""
    feed.watch("cnn")
    assert feed.scene()["shown"] and feed.scene()["name"] == "cnn"
    feed.rest()
