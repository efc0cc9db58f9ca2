"""The live panel: an anywidget fed by readings.

The widget is thin: `Tape` decides what is sent, the stream's one `Watch` where it comes from, the front end how it
looks.
Only two things live here: the *snapshot* (a page that is loaded again asks for the widget's state, and gets
all of the tape, built in that moment; nothing large is kept in a trait), and the way back, from a button to a
callback.

Threads: readings arrive on the watch's thread, state requests and clicks on the kernel's; one lock guards
the tape. Nothing is computed under it that takes longer than copying the history (0.4 MB at most).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from tsnb.errors import TsnbError
from tsnb.experiments.verbs import VERBS
from tsnb.panel.logs import LogFeed
from tsnb.panel.saved import Fallback, bundle, page_of, saved
from tsnb.panel.shown_stream import ShownStream
from tsnb.panel.tape import Message, Tape
from tsnb.private.files import replace_file
from tsnb.telemetry.observer import pause
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.history import MOST, History
from tsnb.telemetry.watching import Watch

__all__ = ["Panel"]

_log = logging.getLogger(__name__)


class Panel(anywidget.AnyWidget):
    """A live view of a stream, or of several together, from readings alone. Made by `tsnb.dashboard()`.

    Attributes:
        logs: Feeds the log pane; its `source` is handed in by code that knows the trials.

    Args:
        name: The stream; None: whichever single one is served.
        more: Other streams that it shows too: a trial on several of them is one row.
        recorded: Whether it will be fed what happened at another time.
    """

    _esm = bundle("panel.js")
    _css = bundle("panel.css")
    scene = traitlets.Dict().tag(sync=True)
    """All words; filled in by `get_state` only."""
    history = traitlets.Bytes(b"").tag(sync=True)
    """All frames; filled in by `get_state` only."""
    curves = traitlets.Bytes(b"").tag(sync=True)
    """All that was logged; filled in by `get_state` only."""
    view = traitlets.Dict().tag(sync=True)
    """What a reader has chosen to see, kept for the page that loads next; below 1 kB."""
    still = traitlets.Unicode("").tag(sync=True)
    """The mark of the picture beside it; empty: it has none."""

    def __init__(
        self,
        name: str | None = None,
        *more: str,
        recorded: bool = False,
        **traits: Any,
    ) -> None:
        self._lock = threading.Lock()
        names = dict.fromkeys([name or "", *more])
        self._channels = [ShownStream(each, self._lock, self, recorded=recorded) for each in names]
        self._follows = False
        self._steer: Callable[[str, str], None] | None = None
        self._make_report: Callable[..., None] | None = None
        self._closed = False
        self._is_left = False
        self._picture: Fallback | None = None
        self.logs = LogFeed(self._send_log)
        super().__init__(**traits)
        self.on_msg(self._hear)
        self._answer_while_busy()

    @classmethod
    def of_recording(cls, readings: Iterable[StreamReading]) -> Panel:
        """Return a panel of a stream's recorded readings: all of it, marked as a recording, its buttons off.

        Args:
            readings: In the order of time.
        """
        panel = cls(recorded=True)
        found = list(readings)
        if len(found) > MOST:  # a recording of hours: what a stream's own history would have kept of it
            kept = History()
            for reading in found:
                kept.add(reading)
            found = kept.readings()
        with panel._lock:  # not tick by tick: a page that opens asks once, and gets all of it
            for reading in found:
                panel._tape.feed(reading)
        return panel

    @property
    def steer(self) -> Callable[[str, str], None] | None:
        """Called with a verb and a consumer's name when a button of its row is clicked, on a thread of its own.

        None: the stream is asked, and there is no button for what only the trial's notebook can do.
        """
        return self._steer

    @steer.setter
    def steer(self, steer: Callable[[str, str], None] | None) -> None:
        self._steer = steer
        self._allow(interrupt=steer is not None)

    @property
    def make_report(self) -> Callable[..., None] | None:
        """Called when the report button is clicked, on a thread of its own; None: there is no such button.

        Where several streams are shown, with the name of the one whose button it was.
        """
        return self._make_report

    @make_report.setter
    def make_report(self, report: Callable[..., None] | None) -> None:
        self._make_report = report
        self._allow(report=report is not None)

    @property
    def picture(self) -> Fallback | None:
        """The picture beside it, which stays where the panel cannot be shown; None: it has none."""
        return self._picture

    @picture.setter
    def picture(self, picture: Fallback | None) -> None:
        with self._lock:
            self._picture = picture
        self.still = "" if picture is None else picture.mark

    @property
    def _tape(self) -> Tape:
        """What was told of the first stream."""
        return self._channels[0].tape

    @property
    def stream(self) -> str:
        """The stream's name, of several the first one's; empty while it is unknown."""
        return self._tape.name

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of all streams that it shows."""
        return tuple(channel.name for channel in self._channels if channel.name)

    def stream_of(self, name: str) -> str:
        """Return the stream that a consumer is on now, the first of several; the panel's first if it is on none."""
        there = [channel.name for channel in self._channels if channel.pid_of(name) is not None]
        return there[0] if there else self.stream

    def pid_of(self, name: str) -> int | None:
        """Return the process of a consumer that is on a stream now; None if none has that name."""
        pids = (channel.pid_of(name) for channel in self._channels)
        return next((pid for pid in pids if pid is not None), None)

    @property
    def state(self) -> str:
        """The stream's state as the panel shows it; of several the first one's."""
        return self._tape.state

    def follow(self) -> None:
        """Show the stream from now on, until `close()`, with what this process already knows of it.

        A panel without a name itself looks for the one stream that is served, and then joins its watch.
        """
        self._follows = True
        for channel in self._channels:
            channel.follow()

    def join(self, name: str) -> None:
        """Show another stream too; the first one where none was known so far."""
        if name in self.streams or self._closed:
            return
        if not self.streams:
            self._channels[0].be(name)
            return
        with self._lock:
            channel = ShownStream(name, self._lock, self)
            channel.tape.allow(**self._tape.can)
            self._channels.append(channel)
            self.deliver_all()
        if self._follows:
            channel.follow()

    def feed(self, reading: StreamReading) -> None:
        """Show a reading of a stream that this process does not watch: of several, the one of its name."""
        named = [channel for channel in self._channels if channel.name == reading.name]
        (named or self._channels)[0].feed(reading)

    def note(self, state: str, text: str, name: str = "") -> None:
        """Show a state and a sentence of the first stream that no reading carries (see `Tape.note`)."""
        self._channels[0].note(state, text, name)

    def close(self) -> None:
        """Stop following and remove the widget."""
        self.logs.close()
        with self._lock:
            self._closed = True
        for channel in self._channels:
            channel.close()
        super().close()

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the widget's state; the snapshot is built now. Called when a page opens or loads again."""
        state: dict[str, Any] = super().get_state(key=key, drop_defaults=drop_defaults)
        # before __init__ has run, traitlets asks already
        if "_channels" in self.__dict__ and {"scene", "history", "curves"} & state.keys():
            with self._lock:
                scene, history, curves = self._recorded() if self._is_left else self._everything()
                state.update(scene=scene, history=history, curves=curves)
        return state

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the panel as it is now to an HTML file, which shows it in any browser, without a network.

        The file shows a recording: charts and rows work, and buttons that steer trials are off.

        Example:
            >>> tsnb.dashboard("digits").save("digits.html")

        Args:
            path: Path of the file, which ends with .html. A new file is this user's alone (mode 0600).

        Returns:
            The path.

        Raises:
            ValueError: If the path does not end with .html.
            OSError: If the file cannot be written.
        """
        target = Path(path)
        if target.suffix != ".html":
            raise ValueError(f"{target.name!r} cannot be written: a panel is saved as .html.")
        with self._lock:
            scene, history, curves = self._recorded()
        state = {"scene": scene, "history": history, "curves": curves, "view": {**self.view, "drawer": ""}}
        script, css = (bundle(file).read_text(encoding="utf-8") for file in ("panel.js", "panel.css"))
        replace_file(target, page_of(f"tsnb {', '.join(self.streams)}", script, css, state))
        return target

    def leave_recording(self) -> None:
        """Send all of it once as a recording, for a client that keeps widgets' state and has no page (nbclient)."""
        self._is_left = True
        self.send_state(["scene", "history", "curves"])

    def _allow(self, **can: bool) -> None:
        with self._lock:
            for channel in self._channels:
                message = channel.tape.allow(**can)
                if message:
                    self.deliver(channel, message)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle: Any = super()._repr_mimebundle_(**options)  # a dict before anywidget 0.9.14
        with self._lock:
            # a saved notebook has this text for good, beside a picture of the end: numbers of now would be old ones
            brief = self._picture is not None
            text = "\n\n".join(channel.text(brief=brief) for channel in self._channels)
        if isinstance(bundle, tuple):
            return {**bundle[0], "text/plain": text}, bundle[1]
        return {**(bundle or {}), "text/plain": text}

    def _everything(self, *, over: bool = False) -> tuple[dict[str, Any], bytes, bytes]:
        """Return scene, history and curves of all streams as of now; the lock is held.

        Args:
            over: As in `Tape.scene`.
        """
        tapes = [channel.tape for channel in self._channels]
        parts = [(tape.scene(over=over), tape.history(), tape.curves()) for tape in tapes]
        scenes, histories, curves = zip(*parts, strict=True)
        if len(tapes) == 1:
            return {**scenes[0], "log": self.logs.scene()}, histories[0], curves[0]
        lengths = [[len(history), len(curve)] for _, history, curve in parts]
        scene = {"streams": list(scenes), "lengths": lengths, "log": self.logs.scene()}
        return scene, b"".join(histories), b"".join(curves)

    def _recorded(self) -> tuple[dict[str, Any], bytes, bytes]:
        """Return the same as a recording, with what only the notebook knows; the lock is held."""
        scene, history, curves = self._everything(over=True)
        log = {**scene["log"], "can": False, "shown": False}
        return saved(scene) | {"known": self._known(), "log": log}, history, curves

    def _last_ticks(self) -> int | list[int]:
        """Return the number of the last tick, of several streams that of each; the lock is held."""
        ticks = [channel.tape.ticks for channel in self._channels]
        return ticks[0] if len(ticks) == 1 else ticks

    def _send_log(self, content: dict[str, Any]) -> None:
        """Send a part of a log. Called on the log feed's thread."""
        with self._lock:
            self._deliver(Message(content))

    def leave_output(self, mark: str, data: dict[str, Any]) -> None:
        """Have an output in the cell that shows the panel; a page that was loaded again knows it by its mark only."""
        with self._lock:
            self._deliver(Message({"op": "output", "model": self.model_id, "mark": mark, "data": data}))

    def deliver_all(self) -> None:
        """Send everything so far; the lock is held."""
        scene, history, curves = self._everything()
        self._deliver(Message({"op": "all", "scene": scene}, history), curves)

    def deliver(self, channel: ShownStream, message: Message) -> None:
        """Send a message about one of the streams; the lock is held."""
        at = self._channels.index(channel)
        self._deliver(Message({**message.content, "at": at}, message.frame) if at else message)

    def pictured(self, channel: ShownStream, reading: StreamReading | None) -> None:
        """Tell the picture beside the panel what the panel was told; the lock is held."""
        if self._picture is not None:
            self._picture.news(reading, channel.name)

    def _deliver(self, message: Message, *more: bytes) -> None:
        """Send a message; the lock is held, so that messages leave in order."""
        if self.comm is None:
            return
        try:
            self.send(message.content, [message.frame, *more] if message.frame or more else None)
        except (
            OSError,
            RuntimeError,
        ) as error:  # the kernel is going down: its sockets or threads are closed
            _log.debug("the panel cannot receive data: %s", error)

    def _hear(self, _: object, content: dict[str, Any], buffers: object) -> None:
        """Answer the front end. Called by ipywidgets on the kernel's (sub)shell thread."""
        op, name = content.get("op"), str(content.get("name", ""))
        at = content.get("at", 0)
        channel = self._channels[at if isinstance(at, int) and 0 <= at < len(self._channels) else 0]
        if op == "hello":
            self._greet(content)
        elif op == "ping":
            with self._lock:
                self._deliver(Message({"op": "pong"}))
        elif op in ("log", "log off", "trial", "params", "view"):
            self._hear_of_reader(op, name, content)
        elif op in VERBS and VERBS[op].there:
            self._in_background(name, lambda trial: self.logs.steer(op, trial, content), what=op)
        elif op in VERBS and (self._steer or op != "interrupt"):
            steer = self._steer or self.ask_stream
            self._in_background(name, lambda trial: steer(op, trial), what=op)
        elif op == "stop stream":
            self._in_background("", lambda _: channel.act(Watch.request_stop), what=op, at=at)
        elif op == "balance":
            self._in_background("", lambda _: channel.balance(content), what=op, at=at)
        elif op == "report" and self._make_report:
            report = self._make_report
            given = () if len(self._channels) == 1 else (channel.name,)
            self._in_background("", lambda _: report(*given), what="report", at=at)

    def _greet(self, content: dict[str, Any]) -> None:
        """Tell a page that was loaded what it has missed."""
        with self._lock:
            if self._last_ticks() != content.get("n"):
                self.deliver_all()
        if self._picture is not None:
            self._picture.again()

    def _hear_of_reader(self, op: str, name: str, content: dict[str, Any]) -> None:
        """Answer what concerns a trial's log and its drawer; keep what the reader has chosen to see."""
        if op == "view":
            if isinstance(chosen := content.get("view"), dict):
                self.view = chosen
        elif op == "log":
            pane = not content.get("tail")
            self.logs.watch(name, str(content.get("run", "")), int(content.get("at", 0)), pane=pane)
        elif op == "log off":
            self.logs.rest()
        elif op == "trial":
            has = content.get("has")
            self.logs.show(name, map(str, has) if isinstance(has, list) else ())
        elif op == "params" and self.logs.source is not None:
            self._send_log({"op": op, **self._known()})

    def _known(self) -> dict[str, Any]:
        """Return what only the notebook knows of its trials."""
        return {**self.logs.known(), "plan": self._plan()}

    def _plan(self) -> dict[str, Any] | None:
        """Return the newest plan of this process, if trials of it took batches of a stream that is shown."""
        plans = (channel.plan() for channel in self._channels)
        return next((plan for plan in plans if plan is not None), None)

    def _in_background(self, name: str, act: Callable[[str], None], what: str = "stop", at: int = 0) -> None:
        """Act away from the shell: it may wait for a child process, and a cell may be running."""

        def run() -> None:
            try:
                act(name)
            except (TsnbError, OSError, LookupError, RuntimeError, ValueError, TypeError) as error:
                where = {"at": at} if at else {}
                self.send({"op": "refused", "what": what, "name": name, "why": str(error), **where})

        threading.Thread(target=run, name=f"tsnb-{what}-{name}", daemon=True).start()

    def ask_stream(self, verb: str, name: str) -> None:
        """Ask each stream that a consumer is on to stop it, pause it or let it go on."""
        there = [channel for channel in self._channels if channel.pid_of(name) is not None]
        for channel in there or self._channels[:1]:
            if verb == "stop":
                channel.act(lambda watch: watch.request_consumer_stop(name))
            else:
                pause(channel.name or None, name, on=verb == "pause")

    def _answer_while_busy(self) -> None:
        """Let clicks and state requests reach their own subshell while a cell runs.

        JupyterLab sends them to a subshell; ipykernel 7.4 routes them to the shell that wrote last, which is
        the busy one. The method is private to ipykernel: where it is missing, messages wait for the cell.
        """
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = lambda data, default: default  # noqa: ARG005
