"""The documentation site: it builds without a warning, and its reference knows every public name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tsnb
from tests.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
LINKS_TO_A_PAGE_OF_THE_TABLE = 2
"""One in the table, one in the menu."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    """A new public function without one is noticed here."""
    text = (site / "reference.html").read_text(encoding="utf-8")
    parts = [part for part in tsnb.__all__ if inspect.ismodule(getattr(tsnb, part)) and part != "errors"]
    names = [name for name in tsnb.__all__ if name not in (*parts, "errors")]
    names += [f"{part}.{name}" for part in parts for name in getattr(tsnb, part).__all__]
    assert not [name for name in names if f'id="tsnb.{name}"' not in text]
    assert not [name for name in tsnb.errors.__all__ if f'id="tsnb.errors.{name}"' not in text]


@pytest.mark.slow
def test_the_home_page_leads_to_the_others(site: Path) -> None:
    """Its picture is shown, its table and its menu lead to pages."""
    text = (site / "index.html").read_text(encoding="utf-8")
    assert "side by side on one" in text
    assert 'src="_images/panel.png"' in text
    assert text.count('href="tutorial.html"') >= LINKS_TO_A_PAGE_OF_THE_TABLE


@pytest.mark.slow
@pytest.mark.browser
def test_the_search_finds_a_page_and_a_function(site: Path) -> None:
    """A reader who opens the site from disk types words into the box: the page on them and the reference come up."""
    with chromium() as browser:
        page = browser.new_page()
        for words, wanted in (
            ("pause a trial", "pause-and-stop.html"),
            ("tsnb.stalls", "reference.html#tsnb.stalls"),
        ):
            page.goto((site / "index.html").as_uri())
            page.locator("input[name=q]").first.fill(words)
            page.keyboard.press("Enter")
            found = page.locator("#search-results ul.search > li > a")
            found.first.wait_for(timeout=30_000)
            page.get_by_text("Search finished").wait_for(timeout=30_000)
            links = [link.get_attribute("href") or "" for link in found.all()]
            assert any(link.split("?")[0] == wanted or link.startswith(wanted) for link in links), (
                words,
                links,
            )
