"""The report as a picture, as text and as files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.panel.streams import Stream, Trial, three_models
from tests.reports.made import consumer, ended_badly, reading
from tsnb.errors import ExtraMissing
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.reports import Report
from tsnb.reports.drawing import BAR, RIGHT
from tsnb.reports.svg import DARK, LIGHT, text_width

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made() -> Report:
    return Report(list(three_models().run(100)), ended=True)


def texts(picture: str) -> list[str]:
    tree = ET.fromstring(picture)
    for found in tree.iter(f"{SVG}text"):
        for hint in found.findall(f"{SVG}title"):
            hint.text = ""
    return ["".join(found.itertext()) for found in tree.iter(f"{SVG}text")]


def test_a_cell_gets_a_picture_and_text(made: Report) -> None:
    """What GitHub, a terminal and a saved notebook can show: SVG and plain text."""
    bundle = made._repr_mimebundle_(include=None, exclude=None)
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    assert bundle["text/plain"] == repr(made)
    # JupyterLab cuts off what is wider than a cell; a file has a size of its own
    assert ET.fromstring(bundle["image/svg+xml"]).get("width") == "100%"
    assert ET.fromstring(made.svg).get("width") == "900"


def test_the_picture_is_well_formed_and_needs_nothing_else(made: Report) -> None:
    """No script, no address, no font of its own: a page that strips all of that shows the same."""
    tree = ET.fromstring(made.svg)
    assert {found.tag.removeprefix(SVG) for found in tree.iter()} == {
        "svg", "style", "rect", "text", "tspan", "path", "title",
    }  # fmt: skip
    assert "http" not in made.svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"\bon\w+=|url\(|@import|href", made.svg)
    assert len(made.svg) < 80_000, "it is saved in the notebook"
    label = tree.get("aria-label") or ""
    assert "resnet18-wide" in label
    assert "computing" in label


def test_the_picture_says_how_a_trial_ended_that_was_not_done() -> None:
    """With the panel's marks, and of what it failed; of one that is done nothing needs to be said."""
    found = texts(Report(ended_badly(), ended=True).svg)
    said = [text for text in found if text.startswith(("✕", "■", "⊘"))]
    assert len(said) == 2 and said[1] == "■ stopped"
    assert said[0].startswith("✕ failed: ValueError: loss is nan after a long way") and len(said[0]) <= 140
    assert "nan" in found


def test_the_picture_says_what_the_story_says(made: Report) -> None:
    """Each trial with its numbers, the sentence, the marks, the axis."""
    found = texts(made.svg)
    for trial in made.story.trials:
        assert sum(trial.name in text for text in found) >= 2, "once in the table, once beside its strip"
    together = " ".join(found)
    assert made.story.lead in together
    assert "resnet18-wide-sgd timed out" in together
    assert "min:s since the start" in together


def test_each_mark_stands_at_its_moment(made: Report) -> None:
    """Its text begins 3 points to the right of it, or ends 3 to the left; the axis is as long as the story."""
    tree, story = ET.fromstring(made.svg), made.story
    at = {
        "".join(one.itertext()): (float(one.get("x", "nan")), one.get("text-anchor"))
        for one in tree.iter(f"{SVG}text")
    }
    shown = [mark for mark in story.marks if mark.text in at]
    assert len(shown) >= 3
    for mark in shown:
        x, anchor = at[mark.text]
        moment = x + 3 if anchor == "end" else x - 3
        share = (mark.time_s - story.begin_s) / story.seconds
        assert moment == pytest.approx(BAR[0] + share * (RIGHT - BAR[0]), abs=0.1), mark


def test_strips_are_as_long_as_trials_were_there() -> None:
    """A stream that is idle before and after takes no room; times stay those since its start."""
    stream = Stream([Trial("a", 0.02, joins_s=300.0, leaves_s=340.0)])
    readings = list(stream.run(700, every_s=1.0))
    tree = ET.fromstring(Report(readings, ended=True).svg)
    ends = [
        float(x)
        for path in tree.iter(f"{SVG}path")
        for x in re.findall(r"[MH]([\d.]+)", path.get("d", ""))
        if path.get("fill", "").startswith("#")
    ]
    assert max(x for x in ends if x <= RIGHT) > RIGHT - 40, ends[-5:]
    told = texts(Report(readings, ended=True).svg)
    clocks = [text for text in told if re.fullmatch(r"\d:\d\d", text)]
    assert {"5:00", "5:30"} <= {*clocks} and "0:00" not in clocks, clocks


def test_names_end_before_their_bars_and_are_whole_in_their_tooltips() -> None:
    """In the rows, the strips and the plan; what fits is not cut, and names of one sweep differ when they are."""
    names = ["W" * 18, "illicit-filling-till-1", "resnet50-lr0.001-cosine", "resnet50-lr0.002-cosine"]
    readings = list(Stream([Trial(name, 0.02) for name in names]).run(20))
    plan = Timeline("plan", tuple(PlannedTrial(name, (0.0, 9.0)) for name in names))
    tree = ET.fromstring(Report(readings, ended=True, plan=plan).svg)
    told = [(text, text.findtext(f"{SVG}title")) for text in tree.iter(f"{SVG}text")]
    written = [
        (float(text.attrib["x"]), "".join(text.itertext())[len(name) :], name)
        for text, name in told
        if name in names and float(text.attrib["x"]) < BAR[0]  # beside curves they have another room
    ]
    assert len(written) == 3 * len(names)
    assert len({(x, word) for x, word, _ in written}) == 2 * len(names), "rows; strips and plan alike"
    for x, word, name in written:
        assert 80 < text_width(word, 12) < BAR[0] - x
        assert name != "illicit-filling-till-1" or word == name


@pytest.mark.parametrize(("joining_s", "named"), [(0.2, True), (0.0005, False)])
def test_what_a_bar_shows_is_in_the_key(joining_s: float, named: bool) -> None:
    """A sliver of "waiting to join a pass" had no colour in the key."""
    there = consumer("a", 1.5, 0.2, joining_s=joining_s, attached_s=2.0)
    svg = Report([reading(0, consumer("a")), reading(2, there)]).svg
    assert ("waiting to join a pass" in texts(svg)) is named
    assert ("<title>a: waiting to join a pass" in svg) is named


def test_the_bars_are_as_long_as_the_time(made: Report) -> None:
    """A trial's bar, part by part, in proportion to its seconds."""
    tree = ET.fromstring(made.svg)
    widths = {
        (found.findtext(f"{SVG}title") or "").rpartition(" ")[0]: float(found.get("width", "0"))
        for found in tree.iter(f"{SVG}rect")
    }
    first = made.story.trials[0]
    scale = widths["cnn-small: computing"] / first.computing_s
    assert widths["cnn-small: waiting for slower trials"] == pytest.approx(first.held_s * scale, abs=0.1)
    assert widths["resnet10: computing"] == pytest.approx(made.story.trials[1].computing_s * scale, abs=0.2)


def test_what_stands_on_the_ground_is_legible_in_both_themes() -> None:
    """Text has the contrast that WCAG asks for (4.5), on light and on dark, on the ground and on the card."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme in (LIGHT, DARK):
        for text in ("text", "soft"):
            for ground in ("ground", "card"):
                low, high = sorted((luminance(theme[text]), luminance(theme[ground])))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (theme, text, ground)


def test_names_are_text_whatever_stands_in_them() -> None:
    """A name that is markup or long stays text, and does not run into its bar."""
    name = "<script>&\"'" + "x" * 60
    shown = Report([reading(0, consumer(name)), reading(5, consumer(name, 4.0, 1.0))]).svg
    assert "<script>" not in shown
    cut = [text for text in texts(shown) if text.startswith("<script") and "…x" in text]
    assert len(cut) == 2, "in the table and beside its strip"
    assert max(map(len, cut)) < 25


def test_many_trials_have_a_picture_too() -> None:
    """Thirty-two trials, each with a name of its own and a mark: rows for all, room for some of the marks."""
    trials = [Trial(f"sweep-lr{k}", 0.05, joins_s=k * 0.5) for k in range(32)]
    shown = Report(list(Stream(trials).run(30))).svg
    ET.fromstring(shown)
    assert sum(text.startswith("sweep-lr31") for text in texts(shown)) >= 2
    assert len(shown) < 400_000


def test_a_stream_of_one_reading_has_a_report() -> None:
    """Its totals; there is no time to cut in strips."""
    shown = Report([reading(0, consumer("a", 30.0, 10.0))])
    assert "Over time" not in shown.svg
    assert "75 %" in shown.text
    assert "not observed from its start" in shown.text


def test_files_by_their_suffix(made: Report, tmp_path: Path) -> None:
    """SVG, JSON and a page; anything else says what there is."""
    assert ET.parse(made.save(tmp_path / "r.svg")).getroot().tag == f"{SVG}svg"
    numbers = json.loads(made.save(str(tmp_path / "r.json")).read_text())
    assert numbers["report"] == 1
    assert numbers["trials"][0]["name"] == "cnn-small"
    with pytest.raises(
        ValueError,
        match=r"'r\.pdf' cannot hold a report. Use a name that ends in \.svg, \.html, \.json, \.png",
    ):
        made.save(tmp_path / "r.pdf")
    nan = Report([reading(0, consumer("a", 1.0, metrics={"loss": float("nan")}))])
    text = nan.save(tmp_path / "nan.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["trials"][0]["metrics"] == {"loss": None}


def test_the_page_holds_the_picture_and_figures_and_loads_nothing(made: Report, tmp_path: Path) -> None:
    """It works from a stick: plotly's script stands in it once."""
    page = made.save(tmp_path / "r.html").read_text()
    assert made.svg in page
    assert page.count("Plotly.newPlot(") >= 7
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="http', page)
    assert page.count("plotly.js v") == 1


def test_png_needs_kaleido_and_says_so(made: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names what to install, and what works without."""
    monkeypatch.setattr("tsnb.reports.document.find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match=r"pip install 'tsnb\[png\]'.*report\.svg"):
        made.save(tmp_path / "r.png")


def test_the_figure_has_every_second(made: Report) -> None:
    """The plotly bars are the story's seconds."""
    bars = {bar.name: list(bar.x) for bar in made.figure().data if bar.x is not None and bar.x[0] is not None}
    assert bars["waiting for slower trials"] == pytest.approx([t.held_s for t in made.story.trials], abs=1e-3)
    # plotly takes the axis's kind from the first bars: with none in them it would be one of numbers
    assert made.figure().layout.yaxis.type == "category"
    assert bars["timed out"][3] == pytest.approx(made.story.trials[3].parked_s, abs=1e-3)


@pytest.mark.slow
def test_png_is_a_picture(made: Report, tmp_path: Path) -> None:
    """Through kaleido and the Chrome that is here; without a Chrome the message says how to get one."""
    pytest.importorskip("kaleido")
    if not any(map(shutil.which, ("chromium", "google-chrome", "chrome"))):
        pytest.skip("no Chrome")
    assert made.save(tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
