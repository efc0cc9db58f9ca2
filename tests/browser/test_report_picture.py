"""A report's picture in a real browser: nothing runs over its edge or into its neighbour, in light and in dark."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import ARTIFACTS
from tests.panel.streams import Stream, Trial, three_models
from tests.reports.made import duelled, ended_badly
from tsnb.planners.timeline import PlannedTrial, Timeline
from tsnb.reports import Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GAP = 2
"""Pixels between a name and its bar at least."""

BOXES = """() => {
  const svg = document.querySelector("svg");
  const whole = svg.viewBox.baseVal;
  return {
    whole: [whole.width, whole.height],
    bars: [...svg.querySelectorAll("rect:not([class*=card]):not([class*=ground])")].map((bar) => {
      const box = bar.getBBox();
      return [bar.textContent, box.x, box.y, box.x + box.width, box.y + box.height];
    }),
    texts: [...svg.querySelectorAll("text")].map((text) => {
      const box = text.getBBox();
      const words = [...text.childNodes].filter((n) => n.nodeName !== "title").map((n) => n.textContent).join("");
      return [words, box.x, box.y, box.x + box.width, box.y + box.height];
    }),
  };
}"""


def many() -> Report:
    """Twenty trials with long names and high numbers, half of which leave."""
    random.seed(5)
    trials = [
        Trial(
            f"resnet50-lr0.00{k}-wd0.1-cosine", 0.02 + 0.01 * k, joins_s=k, leaves_s=40 + k if k % 2 else 1e9
        )
        for k in range(20)
    ]
    return Report(list(Stream(trials, name="imagenet-224-augmented", batch_s=0.001).run(90)), ended=True)


def planned() -> Report:
    """Names of wide letters and of narrow ones, as long as they may be, in a plan too."""
    names = [
        "RESNET50-WIDE-WWWWWW",
        "WWWWWWWWWWWW",
        "mmmmmmmmmmmmmmmmmmm-lr0.1",
        "illicit-filling" * 4,
        "a" * 64,
    ]
    readings = list(Stream([Trial(name, 0.02 + 0.01 * k) for k, name in enumerate(names)]).run(30))
    spans = [PlannedTrial(name, (0.0, 10.0 + k), (0.0, 12.0 + k)) for k, name in enumerate(names)]
    return Report(readings, ended=True, plan=Timeline("plan", tuple(spans)))


def duels(*names: str) -> Report:
    """The verdict is a long bold headline, and arms have long names that begin alike."""
    readings, told = duelled(*names, seeds=8)
    return Report(readings, ended=True, duels=told)


REPORTS: dict[str, Callable[[], Report]] = {
    "three": lambda: Report(list(three_models().run(130)), ended=True),
    "many": many,
    "planned": planned,
    "ended": lambda: Report(ended_badly(), ended=True),
    "duel": lambda: duels("momentum-against-classify"),
    "duels": lambda: duels("momentum-against-classify", "warm-up-against-none"),
    "wide": lambda: duels("W" * 40, "MOMENTUM-AGAINST-NESTEROV"),
}


@pytest.mark.parametrize("which", REPORTS)
def test_no_text_runs_over_the_edge_or_into_another(browser: Browser, which: str) -> None:
    """Measured with the widest font of the list (DejaVu Sans), which this machine has."""
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_content(REPORTS[which]().svg)
    found = page.evaluate(BOXES)
    width, height = found["whole"]
    assert len(found["texts"]) > 40
    for words, left, top, right, bottom in found["texts"]:
        assert left >= 10 and right <= width - 10 and top >= 0 and bottom <= height, words
    for k, (words, left, top, right, bottom) in enumerate(found["texts"]):
        for other, left2, top2, right2, bottom2 in found["texts"][k + 1 :]:
            apart = right <= left2 or right2 <= left or bottom - 2 <= top2 or bottom2 - 2 <= top
            assert apart, f"{words!r} runs into {other!r}"
        for bar, left2, top2, right2, bottom2 in found["bars"]:
            apart = right + GAP <= left2 or right2 <= left or bottom - 2 <= top2 or bottom2 - 2 <= top
            assert apart, f"{words!r} runs into the bar {bar!r}"
    page.close()


@pytest.mark.parametrize("width", [600, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_cell_shows_all_of_it_on_a_ground_of_its_theme(browser: Browser, scheme: str, width: int) -> None:
    """As an image, which is how JupyterLab and GitHub show it: as wide as its place, dark where the page is dark."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    picture = quote(REPORTS["three"]()._repr_mimebundle_()["image/svg+xml"])
    page.set_content(
        f'<meta name="color-scheme" content="light dark"><img src="data:image/svg+xml,{picture}">'
    )
    page.wait_for_function("() => document.querySelector('img').complete")
    box = page.locator("img").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width
    assert box["width"] > 0.9 * width
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"report-{scheme}-{width}.png")
    assert (brightness(page) > 200) is (scheme == "light")
    page.close()


def brightness(page: Page) -> float:
    """Return how bright the picture's ground is, 0 to 255: a point between its edge and its first text."""
    return float(
        page.evaluate("""() => {
          const image = document.querySelector("img");
          const canvas = document.createElement("canvas");
          canvas.width = 900;
          canvas.height = 450;
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0, 900, 450);
          const [r, g, b] = context.getImageData(8, 100, 1, 1).data;
          return (r + g + b) / 3;
        }""")
    )


PLACES = """() => [...document.querySelectorAll("figure")].map((figure) => {
  const whole = figure.getBoundingClientRect();
  return [...figure.querySelectorAll(".annotation-text, .gtitle, .legendtext, .xtitle")].map((text) => {
    const box = text.getBoundingClientRect();
    const inside = [box.left - whole.left, box.top - whole.top, whole.right - box.right, whole.bottom - box.bottom];
    return [text.textContent, ...inside, box.left, box.top, box.right, box.bottom];
  });
})"""


@pytest.mark.parametrize("width", [360, 1400])
def test_the_figures_of_a_page_are_whole_on_a_phone_too(browser: Browser, tmp_path: Path, width: int) -> None:
    """What trials did was cut at the edge, names lay over each other, and the title covered the legend."""
    names = [f"train_mlp-lr{lr}-width{wide}" for lr in (0.01, 0.001) for wide in (64, 256, 512)]
    trials = [
        Trial(name, 0.02 + 0.01 * k, joins_s=1.5 * k, leaves_s=57 - 3 * k) for k, name in enumerate(names)
    ]
    path = Report(list(Stream(trials, name="digits").run(60)), ended=True).save(tmp_path / "report.html")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("figure:last-of-type .xtitle")
    figures = page.evaluate(PLACES)
    assert len(figures) == 7 and sum(map(len, figures)) > 60
    for texts in figures:
        said = " ".join(text for text, *_ in texts)
        assert "joined" in said or "where each second went" in said, said
        for k, (text, *inside, left, top, right, bottom) in enumerate(texts):
            assert min(inside) >= -0.5, f"{text!r} is cut"
            for other, _, _, _, _, left2, top2, right2, bottom2 in texts[k + 1 :]:
                apart = right <= left2 or right2 <= left or bottom <= top2 + 2 or bottom2 <= top + 2
                assert apart, f"{text!r} runs into {other!r}"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('.picture svg').getBoundingClientRect().width") >= 640
    page.close()
