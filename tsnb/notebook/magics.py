"""The magics. Each parses its line and calls one function; errors of ours are shown without a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from tsnb.errors import TrialFailed, TsnbError
from tsnb.experiments.board import NoSuchTrial, trials
from tsnb.experiments.plan import TrialOptions
from tsnb.notebook import report_cells, runs, streams
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, expanded, parse, words_of
from tsnb.options import NOTEBOOK, StreamOptions, TuneOptions, help_of
from tsnb.steering import way_to

__all__ = ["TsnbMagics"]

_BY_NAME = {
    "status": streams.status,
    "logs": streams.logs,
    "restart": streams.restart,
}
_TOLD: dict[str, Callable[[Any], str]] = {
    "logs": lambda given: runs.logs(given.name, given.run),
    "rerun": lambda given: runs.rerun(given.name, given.changes),
    "extend": lambda given: runs.extend(given.name, given.epochs),
    "clone": lambda given: runs.clone(given.name, given.new, given.changes, given.at),
}
_BY_OPTIONS = {
    "record": report_cells.record,
    "balance": streams.balance,
    "tune": streams.tune,
    "rounds": streams.rounds,
}


@contextlib.contextmanager
def plain_errors(magic: str) -> Iterator[None]:
    """Show what the user can mend as one message rather than a traceback of ours."""
    try:
        yield
    except SyntaxError as error:
        line = f": {error.text.strip()}" if error.text else ""
        raise UsageError(f"{magic}: line {error.lineno} of this cell: {error.msg}{line}") from error
    except TrialFailed as error:  # its traceback stands under its own cell
        raise UsageError(f"{magic}: {str(error).partition(chr(10))[0]}") from error
    except (TsnbError, ValueError, TypeError, TimeoutError) as error:
        raise UsageError(f"{magic}: {error}") from error


@contextlib.contextmanager
def _way_elsewhere(command: str, names: Sequence[str]) -> Iterator[None]:
    """Where this notebook has no trial of a name, say how one of another notebook is reached."""
    try:
        yield
    except NoSuchTrial as error:
        ways = (way_to(name, command) for name in names if name not in trials)
        raise NoSuchTrial(f"{error}{next(filter(None, ways), '')}") from error


@magics_class
class TsnbMagics(Magics):
    """`%tensorsocket`, `%%trial`, `%%sweep` and `%trials`."""

    @line_cell_magic
    def tensorsocket(self, line: str, cell: str | None = None) -> Any:
        """Serve a loader from the background, and look after it.

        %tensorsocket start LOADER --name NAME [options]
        %%tensorsocket start --name NAME [options]   the cell's body builds `loader` in the background kernel
        %tensorsocket list
        %tensorsocket status [NAME]
        %tensorsocket logs NAME
        %tensorsocket stop [NAME] [--other]       --other: though another notebook or process serves it
        %tensorsocket restart [NAME]              the same loader from a new kernel; trials wait and go on
        %tensorsocket reload [NAME]               the same with the notebook's loader as it is now
        %tensorsocket balance [NAME] together|weights|free [--weight TRIAL=2 ...]     how compute is divided
        %tensorsocket tune [NAME] [--workers N]   how many workers the loader has, from now on; left out: what helps.
                                                  Without both nothing is changed: it says how many there are
        %tensorsocket rounds [NAME] [--every N] [--after 1h] [--worse METRIC=BY] [--select new|all|recent:N]
                                                  data that grows: when a round begins, and which samples it has; --off:
                                                  epochs follow each other again. Without options: what is set
        %tensorsocket dashboard [NAME ...] [--side]   the live panel; --side: beside the notebook (package sidecar)
        %tensorsocket report [NAME]               where each second of each trial went; stop shows it as well.
                                                  --target accuracy=0.95 [--vcpu-price 0.04] [--kwh-price 0.3]: and what
                                                  each trial had cost by then
        %tensorsocket record NAME FILE            writes all readings; tsnb.streams.replay(FILE) shows them; --stop

        Without a name, the command is for the stream of this notebook.

        Options of tune, beside NAME:
          (those of tune)

        Options of start:
          --name NAME         what trials attach by
          (those of a stream)
          --replace           serve it in place of what this notebook serves by that name; trials wait and go on
        """
        command, given = parse(line, "%tensorsocket", TENSORSOCKET)
        if cell is not None and command != "start":
            raise UsageError(f"%%tensorsocket: only start takes a cell; write %tensorsocket {command}")
        with plain_errors(f"%tensorsocket {command}"):
            if command == "dashboard":
                return streams.dashboard(*given.names, side=given.side)
            if command == "report":
                return report_cells.report(given.name, dict(given.target), given.vcpu_price, given.kwh_price)
            shown = None
            if command == "start":
                text = streams.start(self.shell, given, cell)
            elif command == "list":
                text = streams.listing()
            elif command == "reload":
                text = streams.reload(self.shell, given.name)
            elif command in _BY_OPTIONS:
                text = _BY_OPTIONS[command](given)
            elif command == "stop":
                text, shown = streams.stop(given)
            else:
                text = _BY_NAME[command](given.name)
            print(text)  # noqa: T201 (a magic's answer is text)
        return shown

    tensorsocket.__doc__ = (
        (tensorsocket.__doc__ or "")
        .replace("          (those of a stream)", help_of(StreamOptions, NOTEBOOK, 10))
        .replace("          (those of tune)", help_of(TuneOptions, NOTEBOOK, 10))
    )

    @no_var_expand
    @cell_magic
    def trial(self, line: str, cell: str) -> Any:
        """Run this cell in a background kernel of its own, with copies of the variables that it reads.

        %%trial NAME [options]
        %%trial --setup    this cell is run first in every trial from now on; an empty one ends that

        Options:
          (those of a trial)
          --with X,Y          variables to take along, though the cell does not read them by name
          --no-check          run it though it reads names that are not defined, as far as can be seen
          --wait              return when it has ended

        The cell returns at once; tsnb.trials["NAME"] has its state, wait(), stop(), interrupt(), logs(), and
        its variables: tsnb.trials["NAME"]["net"]. Running a cell of the same name again replaces the trial: the
        former run is asked to stop, and stays in the project's records.
        """
        given = TRIAL.read(words_of(expanded(line, self.shell), "%%trial"))
        if not given.setup and given.name is None:
            TRIAL.error("the following arguments are required: NAME")
        with plain_errors("%%trial"):
            runs.run(self.shell, given, cell)

    trial.__doc__ = (trial.__doc__ or "").replace(
        "          (those of a trial)", help_of(TrialOptions, NOTEBOOK, 10)
    )

    @no_var_expand
    @cell_magic
    def sweep(self, line: str, cell: str) -> Any:
        """Run this cell as many trials, one for each combination of parameters, which it finds as variables.

        %%sweep NAME --grid lr=0.1,0.01 [options]
        %%sweep "cnn-lr{lr}" --space lr=loguniform(1e-4,1e-1) --n 8 [options]

        NAME is what the trials' names begin with, or the whole name with parameters in braces.

        Parameters:
          --grid NAME=A,B,...              values of a parameter; may be repeated
          --space NAME=loguniform(A,B)     drawn instead, also uniform, randint, choice(A,B,C); may be repeated
          --n N                            how many are drawn
        How they run:
          --at-once N                      how many run at once (two for each core at most)
          --rotate BATCHES                 all live side by side and train by turns of so many batches, --at-once N
                                           of them at a time
          --plan, --deadline 18:00         profile them, run them in the best order; start only what is done by then;
                                           with --threads 1,2 each has what ends all of them soonest, with --device
                                           cuda:0,cuda:1 each gets one
          --choose NAME=A,B                with --plan: a variable that is no difference between them; each has the
                                           first, or another where it does not fit the memory with that, or all end
                                           sooner; may be repeated
        Which end early:
          --halving METRIC                 stops the worse half early, by this logged number, at step --every
                                           (100), then at twice as many, and so on; --keep 50%; --mode min|max
                                           for a metric whose name does not say which is good
          --race METRIC                    stops a trial once another is ahead of it by this logged number, batch by
                                           batch; --error 1% is the chance that any such verdict is wrong; goes
                                           with --seed N
          --population METRIC              the worst go on as changed clones of the best, by this logged number, each
                                           --every so many steps; --share 20% of them; --mode min|max
        Of each trial, as %%trial has them:
          (those of a trial)
          --with X,Y          variables to take along, though the cell does not read them by name
          --no-check          run it though it reads names that are not defined, as far as can be seen
          --wait              return when all have ended

        The cell returns at once. The sweep is its result (`_`): a table, stop(), best("loss"). `%trials stop NAME`
        stops all of it.
        """
        with plain_errors("%%sweep"):
            given = SWEEP.read(words_of(expanded(line, self.shell), "%%sweep"))
            return runs.run_sweep(self.shell, given, cell)

    sweep.__doc__ = (sweep.__doc__ or "").replace(
        "          (those of a trial)", help_of(TrialOptions, NOTEBOOK, 10)
    )

    @line_magic
    def trials(self, line: str) -> Any:
        """Look after this notebook's trials.

        %trials [list]
        %trials stop [NAME ...]            a trial or a sweep each
        %trials pause [NAME ...] [--release]   from the next batch on; the others go on, and do not wait; --release:
                               the GPU memory of what tsnb.checkpoint has is free meanwhile
        %trials resume [NAME ...]  where it was: it gets every batch once
        %trials set NAME VALUE=0.03 ...    live values (tsnb.live) of a trial or a sweep, from its next batch on
        %trials interrupt NAME ...         as the stop button of a cell: its variables stay
        %trials clone NAME [--name N] [--at EPOCH] [LIVE=VALUE ...]   makes two of it, at its next batch
        %trials wait [NAME ...]
        %trials logs NAME [--run N]     runs of before a restart too; --run: another run of that name than the last
        %trials follow NAME    shows its output under this cell from now on, after a reload of the page say
        %trials rerun NAME [PARAMETER=VALUE ...]   the same code and variables again; options too: seed=2 name=again
        %trials extend NAME --epochs N             one that is done goes on where it ended (tsnb.checkpoint)
        %trials clear          stop all and empty the table; their records stay (tsnb.results())

        Without a name, stop, pause, resume and wait mean all that this notebook has started; detached ones of
        others are in the table, and go on. The last trials that have ended keep their kernels for their variables;
        stop gives its memory back.
        """
        command, given = parse(line, "%trials", TRIALS, default="list")
        names = given.names if "names" in given else [given.name] if "name" in given else []
        with plain_errors(f"%trials {command}"), _way_elsewhere(command, names):
            if command == "list":
                return trials
            if command == "clear":
                return runs.clear()
            if command == "pause":
                return runs.pause(names, release=given.release)
            if command == "set":
                print(runs.set_values(given.name, dict(given.changes)))  # noqa: T201
                return None
            if command == "follow":
                return trials[given.name].follow()
            if command in _TOLD:
                print(_TOLD[command](given))  # noqa: T201
                return None
            act = {"resume": runs.resume, "stop": runs.stop, "interrupt": runs.interrupt, "wait": runs.wait}[
                command
            ]
            return act(names)
