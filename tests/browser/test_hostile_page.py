"""Cross-site payloads in every text that a page of ours shows stay text, in a real browser."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.host import Host
from tests.panel.streams import three_models
from tests.records.recorded import begun
from tests.top.test_screen import HOST
from tsnb.experiments.overview.board import Board
from tsnb.panel.tape import Message
from tsnb.reports import Report, results
from tsnb.telemetry.forecast.eta import NO_ETA
from tsnb.telemetry.readings import HostReading, MoveReading, StreamReading
from tsnb.telemetry.recording import read_recording

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "window.owned=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</style></title></textarea><img src=x onerror={RUN}>",
    f'"><svg onload={RUN}><g/onload={RUN}></svg>',
    f"' autofocus onfocus={RUN} x='",
    f'" onmouseover={RUN} style="position:fixed;inset:0" x="',
    f"javascript:{RUN}",
    f'<a href="javascript:{RUN}">x</a><iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"${{{RUN}}}{{{{constructor.constructor('{RUN}')()}}}}`${{{RUN}}}`",
    f"<style>@import 'data:,';*{{background:url(javascript:{RUN})}}</style><base href=//evil.example>",
    f"<math><mtext></mtext><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={RUN}&gt;'>",
    f"]]><script xmlns='http://www.w3.org/1999/xhtml'>{RUN}</script><![CDATA[",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e%3Cscript%3E{RUN}%3C/script%3E&lt;script&gt;",
]
ALL = "".join(PAYLOADS)
LATE = 3
"""So many of the payloads in each text; each begins one, as long texts are cut."""

LOOK = """() => {
  const told = (found) => found.map(e => e.outerHTML.slice(0, 200));
  const all = [...document.querySelectorAll('*')], links = ['href', 'src', 'action', 'xlink:href'];
  const ours = e => e.localName === 'script' && !e.textContent.trim().startsWith('window.owned');
  return {
    owned: window.owned === 1,
    strange: told(all.filter(e => e.matches('script, iframe, object, embed, base, math, foreignObject, a')
      && e.outerHTML.includes('owned') && !ours(e))),
    events: told(all.filter(e => [...e.attributes].some(a => a.name.startsWith('on')
      || /^\\s*javascript:/i.test(a.value) && links.includes(a.name)))),
  };
}"""
UNHARMED: dict[str, Any] = {"owned": False, "strange": [], "events": []}


def hostile(shift: int) -> list[StreamReading]:
    """Return readings in which every text is a payload, beginning with another one for each field."""
    twice = PAYLOADS + PAYLOADS
    texts = iter("".join(twice[(shift + k) % len(PAYLOADS) :][:LATE]) for k in range(100_000))
    found = []
    names: dict[str, str] = {}

    def word(text: str) -> str:
        return names.setdefault(text, f"{next(texts)}")

    for reading in three_models().run(4):
        consumers = tuple(
            replace(c, name=word(c.name), state=c.state, metrics={word("loss"): 0.5}, awaits=word("awaits"))
            for c in reading.consumers
        )
        assert isinstance(HOST, HostReading)
        host = replace(
            HOST,
            consumers={c.name: use for c, use in zip(consumers, HOST.consumers.values(), strict=False)},
            gpus=tuple(replace(gpu, name=word(gpu.name)) for gpu in HOST.gpus),
            energy_j={word("cuda:0"): 5.0},
        )
        move = MoveReading(
            reading.time_s, consumers[0].name if consumers else "", word("what"), word("why"), word("how")
        )
        found.append(
            replace(
                reading, name=word("mnist"), consumers=consumers, host=host, moves=(move,),
                weights={word("weight"): 2.0}, rebalancing=f"stands back: {word('back')}", failure="",
            )
        )  # fmt: skip
    last = found[-1]
    return [*found, replace(last, time_s=last.time_s + 0.25, state="failed", failure=word("failure"))]


def shown(page: Page) -> dict[str, Any]:
    """Touch everything, then return what has happened."""
    page.evaluate(
        """() => { for (const e of document.querySelectorAll('*')) {
             for (const kind of ['mouseover', 'focus']) e.dispatchEvent(new Event(kind, {bubbles: true}));
           } for (const e of document.querySelectorAll('details')) e.open = true; }"""
    )
    page.evaluate("() => new Promise(done => setTimeout(done, 300))")
    found: dict[str, Any] = page.evaluate(LOOK)
    return found


@pytest.mark.parametrize("shift", [0, 5])
def test_payloads_in_every_text_of_the_panel_stay_text(browser: Browser, tmp_path: Path, shift: int) -> None:
    """Live, from a recording, and from the state that a notebook was saved with."""
    readings = hostile(shift)
    host = Host(browser)
    name = PAYLOADS[shift]
    host.open(
        readings[:-8],
        log={"can": True, "shown": True, "name": name, "trials": [[name, "failed"], [ALL, "done"]]},
    )
    for reading in readings[-8:]:
        host.feed(reading)
    text = f"{ALL}\n\x1b[31m{ALL}\x1b[39m\n"
    host.hear(Message({"op": "log", "name": name, "run": "1", "start": 0, "text": text, "open": ALL}))
    if message := host.tape.note("gone", ALL, ALL):
        host.hear(message)
    host.settle()
    assert shown(host.page) == UNHARMED
    assert "window.owned" in host.page.inner_text("body"), "it was shown"
    scene, *numbers = host.saved()

    path = tmp_path / "run.jsonl"
    lines = [
        json.dumps({"tsnb": "1", "recording": 1, "stream": ALL}),
        *(json.dumps(asdict(r)) for r in readings),
    ]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    replayed = Host(browser)
    replayed.open(read_recording(path))
    assert shown(replayed.page) == UNHARMED

    saved = Host(browser)
    saved.show(_everywhere(scene, PAYLOADS[shift]), *numbers)
    assert shown(saved.page) == UNHARMED


def _everywhere(state: Any, payload: str) -> Any:
    """Put a payload behind every text of a saved state that is not a word of the program's own."""
    if isinstance(state, dict):
        return {key: _everywhere(value, payload) for key, value in state.items()}
    if isinstance(state, list):
        return [_everywhere(value, payload) for value in state]
    return f"{state}{payload}" if isinstance(state, str) and " " in state else state


def test_payloads_in_every_text_of_reports_and_tables_stay_text(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report's page with its figures, its picture alone, the table of results, and that of the trials."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path / "project"))
    report = Report(hostile(0), ended=True)
    page = browser.new_page()
    page.goto(report.save(tmp_path / "report.html").as_uri(), timeout=90_000)
    assert shown(page) == UNHARMED
    page.goto(report.save(tmp_path / "report.svg").as_uri())
    assert page.evaluate("() => window.owned === undefined")
    page.goto("about:blank")
    page.set_content(report.svg)
    assert shown(page) == UNHARMED

    params: dict[str, Any] = {"kind": ALL, PAYLOADS[3]: PAYLOADS[2]}
    run = begun("cnn", sweep=PAYLOADS[0], **params)
    run.end("failed", ALL)
    page.set_content(results()._repr_html_())
    assert shown(page) == UNHARMED and "window.owned" in page.inner_text("body")

    trial = SimpleNamespace(
        name=ALL, number=1, state=PAYLOADS[2], options={}, duration_s=1.0, params={PAYLOADS[0]: PAYLOADS[2]},
        metrics={ALL: 0.5}, eta=NO_ETA, parent=None, waits_for=PAYLOADS[1],
    )  # fmt: skip
    monkeypatch.setattr(Board, "values", lambda self: [trial])
    page.set_content(Board()._repr_html_())
    assert shown(page) == UNHARMED and "window.owned" in page.inner_text("body")
    page.close()
