"""The magics. Each parses its line and calls one function; errors of ours are shown without a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from tsnb.errors import TrialFailed, TsnbError
from tsnb.experiments.overview.board import NoSuchTrial, trials
from tsnb.notebook import report_cells, runs, streams
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, expanded, parse, words_of
from tsnb.notebook.magic_help import commands_text, options_text
from tsnb.steering import way_to

__all__ = ["TsnbMagics"]

_BY_NAME = {
    "status": streams.status,
    "logs": streams.logs,
    "restart": streams.restart,
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


def _fill(magic: Any, place: str, text: str) -> None:
    """Put what is made from the parsers into a magic's help."""
    magic.__doc__ = (magic.__doc__ or "").replace(f"        {place}", text)


@magics_class
class TsnbMagics(Magics):
    """`%tensorsocket`, `%%trial`, `%%sweep` and `%trials`."""

    @line_cell_magic
    def tensorsocket(self, line: str, cell: str | None = None) -> Any:
        """Serve a loader in the background, and look after the stream.

        (commands)

        Without NAME, a command acts on the stream of this notebook. A cell that starts with
        %%tensorsocket start --name NAME builds the variable `loader` itself, in the background process.
        """
        command, given = parse(line, "%tensorsocket", TENSORSOCKET)
        if cell is not None and command != "start":
            raise UsageError(f"%%tensorsocket: only start takes a cell. Write %tensorsocket {command}")
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

    _fill(tensorsocket, "(commands)", commands_text("%tensorsocket", TENSORSOCKET, 8))

    @no_var_expand
    @cell_magic
    def trial(self, line: str, cell: str) -> Any:
        """Run this cell as a trial, in its own process, with copies of the variables that it reads.

        %%trial NAME [options]
        %%trial --setup           run this cell first in every later trial; an empty cell ends that
        %%trial NAME --against OTHER --metric val_loss     compare this cell with the code of trial OTHER

        Options:
        (options)

        The cell returns at once. tsnb.trials["NAME"] is the trial: its state, wait(), stop(), logs(), and its
        variables, for example tsnb.trials["NAME"]["net"]. Running a cell of the same name again stops and replaces
        the trial; the former run stays in the project's records.
        """
        given = TRIAL.read(words_of(expanded(line, self.shell), "%%trial"))
        if not given.setup and given.name is None:
            TRIAL.error("the following arguments are required: NAME")
        with plain_errors("%%trial"):
            return runs.run(self.shell, given, cell)

    _fill(trial, "(options)", options_text(TRIAL, 10, without=["setup"]))

    @no_var_expand
    @cell_magic
    def sweep(self, line: str, cell: str) -> Any:
        """Run this cell as many trials, one per combination of parameters, which it finds as variables.

        %%sweep NAME --grid lr=0.1,0.01 [options]
        %%sweep "cnn-lr{lr}" --space lr=loguniform(1e-4,1e-1) --n 8 [options]

        NAME is the first part of the trials' names, or a whole name with parameters in braces.

        Options:
        (options)

        The cell returns at once. Its result (`_`) is the sweep: a table, with wait(), stop() and best("loss").
        %trials stop NAME stops all of its trials.
        """
        with plain_errors("%%sweep"):
            given = SWEEP.read(words_of(expanded(line, self.shell), "%%sweep"))
            return runs.run_sweep(self.shell, given, cell)

    _fill(sweep, "(options)", options_text(SWEEP, 10))

    @line_magic
    def trials(self, line: str) -> Any:
        """Look after this notebook's trials.

        (commands)

        %trials alone shows the table. Without NAME, stop, pause, resume and wait act on all trials that this
        notebook has started. The last trials that have ended keep their processes for their variables, and stop
        frees that memory.
        """
        command, given = parse(line, "%trials", TRIALS, default="list")
        names = given.names if "names" in given else [given.name] if "name" in given else []
        with plain_errors(f"%trials {command}"), _way_elsewhere(command, names):
            if command == "list":
                return trials
            if command == "clear":
                return runs.clear()
            if command == "follow":
                return trials[given.name].follow()
            if command == "wait":
                return runs.wait(names)
            told = (
                runs.logs(given.name, given.run) if command == "logs" else runs.steer(command, names, given)
            )
            if not isinstance(told, str):
                return told
            print(told)  # noqa: T201 (a magic's answer is text)
            return None

    _fill(trials, "(commands)", commands_text("%trials", TRIALS, 8))
