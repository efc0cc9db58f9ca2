"""What a report's picture says of learning: curves, the best trial, and how all of them ended."""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
from dataclasses import replace

import pytest

from tests.panel.streams import three_models
from tests.panel.test_frontend import node
from tests.reports.made import ended_badly
from tests.telemetry.test_words import SOURCE
from tsnb.reports import Report
from tsnb.reports.learned.curves import curves_of, draw_curves, line_of
from tsnb.reports.learned.ticks import is_share, texts_of, ticks
from tsnb.reports.svg import Picture
from tsnb.telemetry.lives.runs import next_step
from tsnb.telemetry.lives.spent import Spent, spent
from tsnb.telemetry.readings import EndReading, OutcomeReading
from tsnb.telemetry.shown.curves import Curve
from tsnb.telemetry.shown.outcome import best_of, ends_of, outcome
from tsnb.telemetry.shown.view import StreamView


@pytest.fixture(scope="module")
def trials() -> list[Spent]:
    """Three trials that are done, each with its numbers."""
    found = spent(list(three_models().run(30)))[:3]
    numbers = [
        {"loss": 0.1, "accuracy": 0.9},
        {"loss": 0.3, "accuracy": 0.97},
        {"loss": 0.2, "accuracy": 0.95},
    ]
    return [
        replace(trial, state="done", metrics=metrics) for trial, metrics in zip(found, numbers, strict=True)
    ]


def test_the_best_is_that_of_the_accuracy_where_one_was_logged(trials: list[Spent]) -> None:
    """A loss says less; without an accuracy it decides."""
    assert outcome(trials) == (f"{trials[1].name} is best: accuracy 97.0 %.", "3 done.")
    losses = [replace(trial, metrics={"loss": trial.metrics["loss"]}) for trial in trials]
    assert outcome(losses) == (f"{trials[0].name} is best: loss 0.100.", "3 done.")


def test_the_rule_of_a_sweep_decides_which_is_best(trials: list[Spent]) -> None:
    """Its trials were ended by that number: an accuracy beside it says less. Two rules that differ say nothing."""
    names = [trial.name for trial in trials]
    one = OutcomeReading(("loss",))
    assert outcome(trials, one) == (f"{names[0]} is best: loss 0.100.", "3 done.")
    assert f"trials[{names[0]!r}].rerun()" in next_step(trials, one)
    two = OutcomeReading(("accuracy", "loss"))
    assert outcome(trials, two)[0] == f"{names[1]} is best: accuracy 97.0 %."
    other = OutcomeReading(("churn",), {"churn": "min"})
    churns = [replace(trial, metrics={"churn": trial.metrics["loss"]}) for trial in trials]
    assert outcome(churns) == ("3 done.", ""), "no name says whether a high churn is good"
    assert outcome(churns, other)[0] == f"{names[0]} is best: churn 0.100."


def test_the_arms_of_a_duel_are_told_by_its_verdict(
    trials: list[Spent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its seeds was called the best of all, above a verdict that found no difference."""
    told = OutcomeReading(duels="Duel d: no difference found.")
    assert outcome(trials, told) == ("Duel d: no difference found.", "3 done.")
    # what a duel of this process says itself is newer: a saved picture said both "so far" and the verdict
    here = {trials[0].name: "Duel d: better."}
    said = [lambda names: " ".join(here[name] for name in names if name in here)]
    monkeypatch.setattr("tsnb.telemetry.shown.outcome.duel_texts", said)
    assert outcome(trials, told) == ("Duel d: better.", "3 done.")
    assert outcome(trials[1:], told) == ("Duel d: no difference found.", "2 done.")


def test_trials_that_are_equal_to_the_best_are_named(trials: list[Spent]) -> None:
    """Only one was named, as if it were better; one that failed is not equal to one that is done."""
    equal = [replace(trial, metrics={"accuracy": 0.974811}) for trial in trials]
    first, second, third = sorted(trial.name for trial in trials)
    assert outcome(equal)[0] == f"{first} is best: accuracy 97.5 %, equal to {second} and {third}."
    at = next(k for k, trial in enumerate(equal) if trial.name == third)
    equal[at] = replace(equal[at], state="failed")
    assert outcome(equal)[0] == f"{first} is best: accuracy 97.5 %, equal to {second}."
    many = [replace(trials[0], name=f"t{k}", metrics={"accuracy": 0.5}) for k in range(9)]
    assert outcome(many)[0] == "t0 is best: accuracy 50.0 %, equal to 8 others."


def test_a_failed_trial_is_not_the_best_while_another_is_done(trials: list[Spent]) -> None:
    """Its number may be a lucky one: it did not come to its end."""
    failed = [replace(trials[1], state="failed"), trials[0], trials[2]]
    rest = f"2 done, 1 failed. {trials[1].name} ended early with 97.0 %."
    assert outcome(failed) == (f"{trials[2].name} is best: accuracy 95.0 %.", rest)


def test_a_report_of_what_is_over_says_how_to_go_on(trials: list[Spent]) -> None:
    """In the picture and in the text, with the best trial's name; nothing while a trial still trains."""
    made = Report(list(three_models().run(30)), ended=True)
    made.story = replace(made.story, trials=tuple(trials))
    name = trials[1].name
    said = f"Next: tsnb.trials['{name}'].rerun() runs it again. If its code has a tsnb.checkpoint, .extend"
    assert said in made.text and f"{name} is best: accuracy 97.0 %. 3 done." in made.text
    assert said in html.unescape(made.svg)
    going = (*trials[:2], replace(trials[2], state="streaming"))
    made = Report(list(three_models().run(30)))
    made.story = replace(made.story, trials=going)
    assert "Next:" not in made.text + made.svg and "is best" not in made.text


def test_no_trial_is_best_where_nobody_knows_which_way_is_good(trials: list[Spent]) -> None:
    """How they ended is said all the same."""
    strange = [replace(trial, metrics={"churn": 0.5 + k}) for k, trial in enumerate(trials)]
    assert best_of(strange) is None
    assert outcome(strange) == ("3 done.", "")
    assert outcome([replace(trial, state="streaming") for trial in trials]) == ("", "")


def test_a_curve_of_the_picture_is_the_panels() -> None:
    """Four readings a second have one logged number many times; what is kept and drawn of them, a page has as well."""
    readings, view = list(three_models().run(60)), StreamView()
    for reading in readings:
        view.feed(reading)
    curves = curves_of(readings)
    for name, row in view.rows.items():
        own = view.curves.points(row.number, row.places["loss"])
        assert curves["loss"][name] == view.logged()["loss"][name]
        assert list(curves["loss"][name].points) == own and len(own) > 100
        low, high = min(point[4] for point in own), max(point[5] for point in own)
        assert all(low <= value <= high for _, value in line_of(curves["loss"][name]))


def test_the_picture_has_a_chart_of_each_number_and_marks_where_a_trial_failed() -> None:
    """A ring stands before the name: a page may keep the picture for good, and green would say that it is live."""
    svg = Report(ended_badly(), ended=True).svg
    titles = re.findall(r"<tspan font-weight=\"600\">(\w+)</tspan>", svg)
    assert "accuracy" in titles
    assert svg.count("✕") >= 2, "in its row, and at the end of its curve"
    running = Report(list(three_models().run(30))).svg
    assert re.search(r"from [-0-9]{10}, [:0-9]{8}, as of [:0-9]{8}<", running), (
        "it cannot know what runs later"
    )
    assert "still running" not in running and "#1a7f37" not in running


def test_a_number_that_each_trial_logged_once_has_a_chart_of_dots() -> None:
    """As in the panel: a score on the test set, say, which has no line."""
    readings = [
        replace(one, consumers=tuple(replace(c, metrics={"loss": c.metrics["loss"]}) for c in one.consumers))
        for one in three_models().run(30)
        if all("loss" in c.metrics for c in one.consumers)
    ]
    last = readings.pop()
    scored = (
        replace(c, metrics={**c.metrics, "test_score": 0.5 + 0.1 * k}) for k, c in enumerate(last.consumers)
    )
    svg = Report([*readings, replace(last, consumers=tuple(scored))]).svg
    titles = re.findall(r"<tspan font-weight=\"600\">(\w+)</tspan>", svg)
    assert titles[1:3] == ["loss", "test_score"]


RANGES = [
    *[(0.0, 1.0), (1.05, 1.2), (0.97, 0.9702), (0.115, 0.121), (-2e-5, 3e-5), (3e-6, 8e-6)],
    *[(99_990.0, 150_000.0), (1e6, 1.0001e6), (-1e30, 1e30), (5.0, 5.0), (-3.0, -1.0), (0.0, 3.0)],
]


def test_axes_of_the_picture_and_of_the_panel_have_the_same_numbers() -> None:
    """In any range, as numbers and as per cent; no two have one text, and there are few."""
    chance = random.Random(5)
    ranges = [*RANGES, *((at, at + 10 ** chance.uniform(-6, 6)) for at in range(-9, 9))]
    script = f"""
    import {{ isShare, textsOf, ticks }} from {json.dumps((SOURCE / "ticks.js").as_uri())};
    const found = {json.dumps(ranges)}.flatMap(([low, high]) => [2, 4, 5].map((most) => {{
      const at = ticks(low, high, most);
      const whole = ticks(low, high, most, {{ least: 1 }});
      return [at, textsOf(at), textsOf(at, true), whole, isShare("val_acc", low, high)];
    }}));
    console.log(JSON.stringify(found));
    """
    done = subprocess.run(
        [node(), "--input-type=module", "-e", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    panel = iter(json.loads(done.stdout))
    for low, high in ranges:
        for most in (2, 4, 5):
            at = ticks(low, high, most)
            texts, shares = texts_of(at), texts_of(at, share=True)
            ours = [at, texts, shares, ticks(low, high, most, least=1), is_share("val_acc", low, high)]
            assert ours == next(panel), (low, high, most)
            assert len(set(texts)) == len(texts) <= most + 1 and len(set(shares)) == len(shares)


def test_a_trial_of_which_only_is_known_that_it_left_is_in_the_counts() -> None:
    """Nine trials had ended, and eight were counted: the ninth was killed a moment ago."""
    trials = [
        replace(spent(list(three_models().run(5)))[0], name=name, state=state) for name, state in LEFT.items()
    ]
    assert ends_of(trials) == "1 done, 2 ended"


LEFT = {"a": "done", "b": "left", "c": "gone"}


def test_it_trained_until_the_last_trial_was_seen_though_only_one_told_its_end() -> None:
    """A report right after the stream's end said the five seconds of the trial that had failed."""
    *before, last = three_models().run(30)
    bad = last.consumers[0]
    at = len(before) // 2
    end = EndReading(bad.name, "failed", before[at].time_s, bad.pid, error="ValueError: no")
    readings = [replace(one, ends=(end,) if k >= at else ()) for k, one in enumerate([*before, last])]
    readings = [
        replace(one, consumers=tuple(c for c in one.consumers if c.name != bad.name)) if k > at else one
        for k, one in enumerate(readings)
    ]
    story = Report(readings, ended=True).story
    first_s = next(one.time_s for one in readings if one.consumers)
    assert story.trained_s == pytest.approx(last.time_s - first_s, abs=1.0)


def test_names_beside_a_chart_stay_by_their_lines_though_many_end_at_its_bottom(trials: list[Spent]) -> None:
    """Names of the highest lines moved up with those at the bottom, out of the chart and over the sentence."""
    lasts = {"top": 2.3, "upper": 1.2, **{f"low{k}": 0.02 + 0.001 * k for k in range(5)}}
    its = [replace(trials[0], name=name) for name in lasts]
    curves = {
        "loss": {
            name: Curve([(t, 10.0 * t, -1.0, last, last, last, last, 1.0) for t in (1.0, 2.0)])
            for name, last in lasts.items()
        }
    }
    picture, same = Picture(900), dict.fromkeys(lasts, "held-line")
    bottom = draw_curves(picture, curves, its, same, dict.fromkeys(lasts, "circle"), {}, (20.0, 880.0), 100.0)
    svg = picture.finished(bottom, "")
    found = {
        name: float(y)
        for y, name in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(?:<title>[^<]*</title>)?(\w+)</text>', svg)
    }
    assert list(lasts) <= sorted(found, key=lambda name: found[name])
    chart = (100 + 36, bottom - 22)
    assert all(chart[0] <= found[name] - 4 <= chart[1] for name in lasts), found
    assert found["upper"] - found["top"] > 40, "where their lines end"
