"""The sentences: each situation is named, with its numbers, and the advice is the one that helps there."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.stalling.made_up import measured
from tsnb.stalling import FrozenCost
from tsnb.stalling.sentences import tables

SHARE = "Next: serve this loader once"


def test_a_trial_that_waits_on_full_cores_is_told_to_share() -> None:
    """Workers would not help, since no core is free; one loader does."""
    text = measured(prepare_ms=3, compute_ms=0.5, workers=2, stalled=0.7).text
    assert "One trial waits 70% of its time for data: the loader delivers 667 samples/s (2 workers)" in text
    assert "the model could train on 2,000 samples/s." in text
    assert (
        "Four trials with separate loaders would get 143 samples/s each, and 400 on one shared loader (2.8x)."
        in text
    )
    assert SHARE in text and "tsnb.attach()" in text
    assert "num_workers" not in text
    assert "Then the 2 cores are the limit, busy with the models for 40% of the time." in text


def test_where_cores_are_free_the_shared_loader_gets_more_workers() -> None:
    """As many as the trials can use, no more; it is compared with what loaders of their own could give at best."""
    told = measured(prepare_ms=4, compute_ms=1, workers=1, cores=8, trials=4, stalled=0.75)
    assert told.sharing(4).gain == 1  # with one worker, sharing gains nothing: there are cores enough
    assert f"{SHARE} with num_workers=4, with `tsnb.serve" in told.text
    assert (
        "Each of four trials would then get 1,000 samples/s, and 400 at best with separate loaders."
        in told.text
    )
    known = replace(told, rounds=((told.own, told.one),) * 3)
    assert "1,000 (950 to 1,050) samples/s, and 400 (380 to 420) at best with separate loaders." in known.text


def test_one_trial_with_free_cores_is_told_the_workers_it_lacks() -> None:
    """Where sharing gains nothing, more workers may: the fewest that give nearly the most."""
    text = measured(prepare_ms=4, compute_ms=1, workers=1, cores=64, trials=1, stalled=0.75).text
    assert "On a shared loader one trial would get 250 samples/s (1.00x)." in text
    assert "Next: num_workers=4; one trial would get 1,000 samples/s (4.0x)." in text
    assert SHARE not in text


def test_a_loader_without_workers_is_told_to_use_some() -> None:
    """One worker lets loading and computing overlap; a second one would have no core."""
    text = measured(prepare_ms=1, compute_ms=1, workers=0, cores=2, trials=1, stalled=0.5).text
    assert "(no worker)" in text
    assert f"{SHARE}, `tsnb" in text or "num_workers=1" in text


def test_a_model_that_is_the_limit_is_not_told_to_share() -> None:
    """But it hears what CPU sharing would save."""
    text = measured(prepare_ms=1, compute_ms=5, workers=1, cores=64, stalled=0.02).text
    assert text.startswith("The model is the limit: it trains on 200 samples/s and waits 2% of its time")
    assert SHARE not in text
    assert (
        "hardly faster, though it saves 12% of the CPU time: each model's own computing is the limit." in text
    )


def test_a_model_that_fills_the_cores_is_named() -> None:
    """Hardly any loading beside much computing: the formula gives next to nothing, and so it is said."""
    text = measured(prepare_ms=0.05, compute_ms=5, workers=1, cores=2).text
    assert "the 2 cores are the limit, busy with the models for 100% of the time" in text
    assert SHARE not in text


def test_a_gpu_is_named() -> None:
    """Trials on one GPU."""
    text = measured(prepare_ms=0.1, compute_ms=1, cores=64, device=True).text
    assert "the GPU that the trials share is the limit" in text


def test_batches_that_lie_ready_and_still_are_waited_for_are_not_blamed_on_the_loader() -> None:
    """A loader that is faster than the model alone cannot be called too slow: it is the handing over, or the cores."""
    text = measured(prepare_ms=0.2, compute_ms=1, stalled=0.3).text
    assert text.startswith(
        "One trial waits 30% of its time, although the loader alone delivers 5,000 samples/s"
    )
    assert "transferring batches from the workers takes long" in text
    short = measured(prepare_ms=0.9, compute_ms=1, stalled=0.3, cores=1).text
    assert "both together need more than the one core." in short


def test_without_a_step_a_limit_is_named_and_the_step_asked_for() -> None:
    """The loader's pace as the time that a model may take for a batch."""
    text = measured(prepare_ms=1, compute_ms=None).text
    assert "A model that takes less than 32 ms for a batch of 32 waits for it" in text
    assert "at most" in text and "Pass train_step=" in text


def test_a_loader_that_costs_less_than_handing_it_over_is_not_to_be_shared() -> None:
    """With a step or without: it is said that trials would be slower, why, and what to do; no share below 0 %."""
    for compute_ms in (0.05, None):
        told = measured(prepare_ms=0.01, served_ms=0.5, compute_ms=compute_ms, workers=0)
        assert told.sharing(4).gain < 0.5
        assert "Sharing would make four trials slower" in told.text, told.text
        assert "Next: keep a separate loader for each trial." in told.text and SHARE not in told.text
        assert "hardly faster" not in told.text
        assert "-" not in [row[-1][0] for row in tables(told)[1]] and tables(told)[1][1][-1] == "none"


def test_other_programs_are_told_of() -> None:
    """Numbers from a busy machine say so; those from a calm one are not watered down."""
    assert "Other programs took 1.2 of 2 cores" in measured(others=1.2).text
    assert "Other programs" not in measured(others=0.1).text + measured(others=None).text


def test_it_is_shown_as_text_and_as_html_with_the_same_numbers() -> None:
    """A row for each number of trials; what comes from the user is escaped, and nothing else is markup."""
    told = measured(prepare_ms=3, compute_ms=0.5, workers=2, trials=12)
    text, html = repr(told), told._repr_html_()
    for trials in (1, 2, 3, 4, 8, 12):
        pace = f"{told.sharing(trials).shared.samples_per_s:,.0f}"
        assert re.search(rf"(?m)^{trials} +.* {pace} ", text), text
        assert f"<td style='text-align:left'>{trials}</td>" in html and pace in html
    assert html.count("<table") == html.count("</table>") == 2
    assert told.text.split(". ")[0] in html.replace("</b>", "").replace("<p><b>", "")


def test_code_in_a_sentence_is_shown_as_code() -> None:
    """A terminal has it between backticks; a notebook, whose HTML is no Markdown, had them too."""
    told = measured(prepare_ms=3, compute_ms=0.5, workers=1)
    assert '`tsnb.serve(loader, name="data")`' in told.text
    html = told._repr_html_()
    assert "`" not in html and "<code>tsnb.serve(loader, name=&quot;data&quot;)</code>" in html


def test_a_frozen_part_that_is_the_limit_is_named_with_what_spares_it() -> None:
    """In the words of the panel; where it is a small part, its share alone is told."""
    told = measured(prepare_ms=4, compute_ms=1, workers=2, cores=2, stalled=0.75)
    text = replace(told, frozen=FrozenCost("ResNet", 0.003, 0.75)).text
    limit = (
        "The frozen part is the limit: ResNet takes 75% of the loader's time, and a cache of its features would spare "
        "that from the second pass on (cache=). Fewer trials would not help."
    )
    assert limit in text
    assert "tsnb.serve(loader, then=trunk, name=" in text and "--then trunk" in text
    small = replace(told, frozen=FrozenCost("ResNet", 0.0004, 0.1)).text
    assert "ResNet takes 10% of the loader's time." in small
    assert "The frozen part is the limit" not in small
    fast = measured(prepare_ms=1, compute_ms=5, workers=1, cores=64, stalled=0.02)
    assert "The frozen part is the limit" not in replace(fast, frozen=FrozenCost("ResNet", 0.001, 0.9)).text
    assert "the loader is the limit" not in replace(told, frozen=FrozenCost("ResNet", 0.003, 0.75)).text
