"""What may stand behind a magic's name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from IPython.core.error import UsageError

import tsnb
from tsnb import cli
from tsnb.cli import commands
from tsnb.experiments import Trial
from tsnb.experiments.plan import OPTION_NAMES, TrialOptions
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, options_of, parse, words_of
from tsnb.options import StreamOptions, options_from
from tsnb.panel import Panel


def start(line: str) -> Any:
    return parse(f"start {line}", "%tensorsocket", TENSORSOCKET)[1]


def test_every_option_of_start_is_read_in_its_unit() -> None:
    """Shares as 2% or 0.02, seconds with or without the letter, whole numbers."""
    given = start(
        "train --name m --window 4 --late-join 2% --stall-timeout 5s --seed 0 --workers 2 --cache 2GiB --detach "
        "--max-batch-bytes 512MiB"
    )
    assert vars(given) == {
        "loader": "train", "name": "m", "window": 4, "late_join": 0.02, "stall_timeout_s": 5.0, "seed": 0,
        "workers": 2, "memory": None, "cache": 2 << 30, "max_batch_bytes": 512 << 20,
        "engine": "local", "rebalance": False, "detach": True, "restart": None, "pacing": "together",
        "weights": [], "replace": False, "guard": False, "then": None,
        "inputs": False,
    }  # fmt: skip
    assert start("train --name m --rebalance").rebalance
    assert start("train --name m --guard").guard
    auto = start("train --name m --workers auto --memory 4GiB")
    assert (auto.workers, auto.memory) == ("auto", 4 << 30)
    assert start("train --name m --restart on-crash").restart == "on-crash"
    assert start("train --name m --late-join 0.5").late_join == 0.5
    assert start("train --name m --late-join=100%").late_join == 1.0


def test_balance_takes_a_mode_weights_and_a_name_where_there_are_several() -> None:
    """The name may be left out; a weight is NAME=NUMBER."""

    def balance(line: str) -> Any:
        return parse(f"balance {line}", "%tensorsocket", TENSORSOCKET)[1]

    assert vars(balance("free")) == {"name": None, "pacing": "free", "weight": []}
    given = balance("digits weights --weight cnn=2 --weight mlp=0.5")
    assert (given.name, given.pacing, given.weight) == ("digits", "weights", [("cnn", 2.0), ("mlp", 0.5)])
    assert start("train --name m --pacing weights --weight cnn=2").weights == [("cnn", 2.0)]
    with pytest.raises(UsageError, match="Write NAME=NUMBER"):
        balance("digits weights --weight cnn")


def test_the_signature_of_serve_has_the_options_of_a_stream() -> None:
    """Names and defaults, but for what a background kernel alone knows; so the magic, the command and `serve` agree."""
    keywords = inspect.signature(tsnb.serve).parameters
    of_serve = {name: p.default for name, p in keywords.items() if name not in ("loader", "name", "origin")}
    assert of_serve["weights"] is None
    assert {**of_serve, "weights": {}, "detach": False, "restart": None} == vars(StreamOptions())


def test_numpys_numbers_become_pythons_own() -> None:
    """What goes to a background kernel goes as text, which has words for those alone."""
    given = StreamOptions(window=np.int64(4), stall_timeout_s=np.float32(2.0), guard=np.bool_(True))  # type: ignore[arg-type]
    plain = StreamOptions(window=4, stall_timeout_s=2.0, guard=True)
    assert repr(given) == repr(plain)


@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        ("--window 0", {"window": 0}),
        ("--late-join 250%", {"late_join": 2.5}),
        ("--stall-timeout 0s", {"stall_timeout_s": 0.0}),
        ("--seed -1", {"seed": -1}),
        ("--workers -1", {"workers": -1}),
        ("--engine rey", {"engine": "rey"}),
    ],
)
def test_bounds_are_the_same_wherever_an_option_is_given(
    words: str, keywords: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The magic, the command line and `tsnb.serve` refuse it in the same words."""
    flag, value = words.split()
    with pytest.raises(ValueError, match=f"{next(iter(keywords))}=.* is invalid. Pass ") as refused:
        tsnb.serve([1], name="m", **keywords)
    wanted = str(refused.value).partition(" is invalid. Pass ")[2].removesuffix(".")
    with pytest.raises(UsageError, match=f" is invalid. Pass {re.escape(wanted)}"):
        start(f"train --name m {flag}={value}")
    with pytest.raises(SystemExit):
        cli.main(["serve", "a:b", "--name", "m", f"{flag}={value}"])
    assert f" is invalid. Pass {wanted}" in capsys.readouterr().err


def test_each_verb_is_on_every_surface(capsys: pytest.CaptureFixture[str]) -> None:
    """What may be done to a trial: a method, a magic, a command that answers with JSON, and the panel's way back.

    `pause` with `release` is one word more on each, and a wish of its own in the panel.
    """
    verbs = ["pause", "resume", "set", "interrupt", "stop", "clone", "extend"]
    worded = {"release": "pause"}
    panel = Panel()
    done: list[str] = []

    def note(name: str, act: Callable[[str], None], what: str = "stop", at: int = 0) -> None:
        done.append(what)

    panel._in_background = note  # type: ignore[method-assign]
    panel.steer = lambda verb, name: done.append(verb)
    for verb in [*verbs, *worded]:
        method = worded.get(verb, verb)
        assert hasattr(Trial, method)
        assert method in TRIALS, f"%trials {method}"
        with pytest.raises(SystemExit) as ended:
            cli.main([method, "--help"])
        assert ended.value.code == 0
        help_text = capsys.readouterr().out
        assert "--json" in help_text, f"tsnb {method} --json"
        if verb in worded:
            assert inspect.signature(getattr(Trial, method)).parameters[verb].default is False
            assert f"--{verb}" in TRIALS[method].format_usage(), f"%trials {method} --{verb}"
            assert f"--{verb}" in help_text, f"tsnb {method} --{verb}"
        said = {"value": "lr", "text": "0.1", "as": "hot", "changes": [["lr", "0.1"]], "epochs": 5}
        panel._hear(panel, {"op": verb, "name": "cnn", **said}, [])
        assert done[-1:] == [verb], f"the panel's {verb}"
    panel.close()


def test_units_are_the_same_wherever_an_option_is_typed() -> None:
    """`5s` and `2%` on the command line as in a notebook."""
    words = [
        "--window",
        "4",
        "--late-join",
        "2%",
        "--stall-timeout",
        "5s",
        "--weight",
        "cnn=2",
        "--pacing",
        "weights",
    ]
    command = commands._parser().parse_args(["serve", "a:b", "--name", "m", *words])
    typed = start(f"train --name m {' '.join(words)}")
    assert options_from(command) == options_from(typed)
    assert options_from(typed).stall_timeout_s == 5.0
    assert options_from(typed).weights == {"cnn": 2.0}


def test_the_signature_of_run_has_the_options_of_a_trial() -> None:
    """Names and defaults, so that `%%trial`, `tsnb.run` and sweeps agree; the rest of `run` is about the function."""
    keywords = inspect.signature(tsnb.run).parameters
    of_run = {name: p.default for name, p in keywords.items()}
    plain = vars(TrialOptions())
    assert {name: of_run[name] or plain[name] for name in OPTION_NAMES} == {
        name: plain[name] for name in OPTION_NAMES
    }
    assert set(of_run) - set(OPTION_NAMES) == {"fn", "name", "with_", "check", "wait", "params"}
    typed_there = {action.dest for action in TRIAL._actions}
    assert set(OPTION_NAMES) <= typed_there


def test_a_trial_s_options_are_read() -> None:
    """`--env` may be repeated."""
    given = TRIAL.read(
        words_of("cnn --stream p --batch-size 8 --threads 2 --env A=1 --env B='x y' --wait", "%%trial")
    )
    assert (given.name, given.stream, given.batch_size, given.threads, given.wait) == (
        "cnn",
        "p",
        8,
        2,
        True,
    )
    assert given.env == [("A", "1"), ("B", "x y")]
    assert (given.device, given.seed) == (None, None)
    assert (given.after, given.restart, given.detach, given.log_to) == (None, None, False, ())
    given = TRIAL.read(
        words_of("b --after a --restart on-crash --detach --log-to tensorboard,mlflow", "%%trial")
    )
    assert (given.after, given.restart, given.detach) == ("a", "on-crash", True)
    assert given.log_to == ("tensorboard", "mlflow")
    assert SWEEP.read(words_of("cnn --grid lr=1,2 --plan --threads 1,2", "%%sweep")).threads == (1, 2)
    for wrong in ("1,x", "0,2", "1,", "0"):
        with pytest.raises(UsageError, match=r"--threads: .*Pass a whole number, 1 or more"):
            TRIAL.read(words_of(f"cnn --threads {wrong}", "%%trial"))


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("bits='8',16", ["8", 16]),
        ("""net='a,b',"c d" """, ["a,b", "c d"]),
        ("k={'a':1},{'a':2}", [{"a": 1}, {"a": 2}]),
        (""" "net='a, b',c" """, ["a, b", "c"]),
    ],
)
def test_quotes_in_values_are_pythons(written: str, values: list[object]) -> None:
    """Quoted text is text, though it looks like a number; what is around it is split as ever."""
    line = f'"cnn {{lr}}" --grid {written} --env "A=x y" --grid=lr=1,2  # a comment'
    given = SWEEP.read(words_of(line, "%%sweep"))
    assert given.name == "cnn {lr}"
    assert [found for _, found in given.grid] == [values, [1, 2]]
    assert given.env == [("A", "x y")]


def test_changes_of_a_rerun_are_python_values_or_text() -> None:
    """Numbers, truth values and lists are those; a word is text."""
    line = "rerun cnn lr=0.01 steps=5 augment=True sizes=[1,2] optimizer=adam name=other"
    command, given = parse(line, "%trials", TRIALS)
    assert (command, given.name) == ("rerun", "cnn")
    assert dict(given.changes) == {
        "lr": 0.01, "steps": 5, "augment": True, "sizes": [1, 2], "optimizer": "adam", "name": "other",
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"'lr' is not a setting\. Write NAME=VALUE"):
        parse("rerun cnn lr", "%trials", TRIALS)


def test_settings_may_stand_behind_options() -> None:
    """`cnn --name hot lr=0.03` is what one types; in a notebook and in a terminal."""
    for line in ("cnn --name hot lr=0.03", "cnn lr=0.03 --name hot", "--name hot cnn lr=0.03"):
        given = parse(f"clone {line}", "%trials", TRIALS)[1]
        assert (given.name, given.new, given.changes) == ("cnn", "hot", [("lr", 0.03)])
    words = ["mnist/cnn", "--name", "hot", "--json", "lr=0.03", "net=big"]
    command = commands._parser().parse_args(["clone", *words])
    assert (command.target, command.new, command.json) == ("mnist/cnn", "hot", True)
    assert command.changes == ["lr=0.03", "net=big"]


WRONG = [
    ("strat loader", r"no command 'strat'\. Did you mean 'start'\? Commands: start, list, status"),
    ("", "needs a command: start, list"),
    ("start loader --nam m", r"unknown option --nam\. Did you mean '--name'\?"),
    ("start loader --name m --windw=3", r"unknown option --windw\. Did you mean '--window'\?"),
    ("start loader --name m --frobnicate", "unknown option --frobnicate"),
    ("start loader", "required: --name"),
    ("start loader --name m --window 0", "'0' is invalid. Pass a number of batches, 1 or more"),
    ("start loader --name m --window x", "'x' is invalid. Pass a number of batches, 1 or more"),
    ("start loader --name m --late-join 200%", r"'200%' is invalid. Pass a share of an epoch, 0 to 1"),
    (
        "start loader --name m --stall-timeout -3",
        "'-3' is invalid. Pass a number of seconds, more than 0|expected one argument",
    ),
    (
        "start loader --name m --stall-timeout soon",
        "'soon' is invalid. Pass a number of seconds, more than 0",
    ),
    ("start loader --name m --restart always", "argument --restart: 'always' is invalid. Pass 'on-crash'"),
    ("start loader --name m --restrat on-crash", r"unknown option --restrat\. Did you mean '--restart'\?"),
    ("restrat m", r"no command 'restrat'\. Did you mean 'restart'\?"),
    ("relaod m", r"no command 'relaod'\. Did you mean 'reload'\?"),
    ("start one two --name m", "unrecognized arguments: two"),
    ("status a b", "unrecognized arguments: b"),
    ("logs", "required: NAME"),
    ("start 'loader", "No closing quotation"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[line or "empty" for line, _ in WRONG])
def test_a_mistake_is_answered_with_what_was_meant(line: str, message: str) -> None:
    """One message, without a traceback, that names the mistake and the nearest right word."""
    with pytest.raises(UsageError, match=message):
        parse(line, "%tensorsocket", TENSORSOCKET)


def test_an_empty_trials_line_lists_them() -> None:
    """The most frequent question needs no word."""
    assert parse("", "%trials", TRIALS, default="list")[0] == "list"


def test_a_setting_needs_a_name_and_a_value() -> None:
    """`--env` without `=` is told how to write it."""
    with pytest.raises(UsageError, match="Write NAME=VALUE"):
        TRIAL.read(["cnn", "--env", "DEBUG"])


def test_every_option_stands_in_the_magic_s_help() -> None:
    """`%tensorsocket?` and `%%trial?` leave nothing out."""
    from tsnb.notebook.magics import TsnbMagics

    for parser, magic in (
        (TENSORSOCKET["start"], TsnbMagics.tensorsocket),
        (TRIAL, TsnbMagics.trial),
        (SWEEP, TsnbMagics.sweep),
    ):
        assert all(option in (magic.__doc__ or "") for option in options_of(parser))
    assert all(command in (TsnbMagics.tensorsocket.__doc__ or "") for command in TENSORSOCKET)
    assert all(command in (TsnbMagics.trials.__doc__ or "") for command in TRIALS)


def test_what_a_report_a_recording_and_a_side_panel_take() -> None:
    """Names where they are needed, `--side` and `--stop` as switches."""

    def given(line: str) -> dict[str, Any]:
        return dict(vars(parse(line, "%tensorsocket", TENSORSOCKET)[1]))

    assert given("dashboard --side") == {"names": [], "side": True}
    assert given("dashboard mnist") == {"names": ["mnist"], "side": False}
    assert given("dashboard train val") == {"names": ["train", "val"], "side": False}
    assert given("report") == {"name": None, "target": [], "vcpu_price": None, "kwh_price": None}
    assert given("report x --target accuracy=0.95")["target"] == [("accuracy", 0.95)]
    assert given("record mnist one.jsonl") == {"name": "mnist", "file": "one.jsonl", "stop": False}
    assert given("record mnist --stop") == {"name": "mnist", "file": None, "stop": True}
    with pytest.raises(UsageError, match=r"Did you mean '--side'\?"):
        given("dashboard --sid")
    with pytest.raises(UsageError, match="required: NAME"):
        given("record")


def test_the_usage_of_a_trials_cell_asks_for_its_name() -> None:
    """Only --setup does without one."""
    with pytest.raises(
        UsageError, match=r"unknown option --nothing(?s:.*)Usage: %%trial \[--setup\] .* NAME$"
    ):
        TRIAL.read(["a", "--nothing"])
