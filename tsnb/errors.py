"""Every error that tsnb raises on purpose. Imports nothing.

```
TsnbError
  ProducerNotFound(LookupError)    no stream of that name is running
    StreamNotNamed                 several streams are running, and the call names none of them
  NameInUse(ValueError)            a running stream or trial already has that name
  ProducerGone(ConnectionError)    the stream's process died or was stopped while a trial was attached
    StreamStopped                  a user stopped the stream
  JoinRefused                      the stream cannot give the trial what it asked for
  ConsumerTimedOut                   the trial missed batches that the stream no longer holds
  GroupBroken                      another rank of the trial's group has ended
  StopRequested                    the trial was asked to stop
  ConsumerReplaced                 the trial was detached, or a newer loop took its place
  ArenaFull(BufferError)           there is not enough shared memory
  BatchTooLarge(ValueError)        a batch does not fit into its buffer
  BatchNotShareable(TypeError)     a batch contains a value that cannot be shared or cut
  LoaderFailed                     the loader raised an error or returned nothing
  NotShippable(TypeError)          an object cannot be pickled for another process
  TrialFailed                      a trial ended without success
  UnsupportedPlatform(OSError)     the system is neither Linux nor macOS, or hides its processes
  ProtocolError
    LocalProtocolError             this side was about to send a malformed message
    RemoteProtocolError            the other side sent a malformed message
  ExtraMissing(ImportError)        an optional package is not installed

SharedBatchWarning(UserWarning)    a shared batch was modified in place, or too many batches are kept
```

Each docstring has the cause first, and then, after "Fix:", what a user does about it. `docs/make_reference.py` makes
docs/error-index.md of them.
"""

from __future__ import annotations

__all__ = [
    "ArenaFull",
    "BatchNotShareable",
    "BatchTooLarge",
    "ConsumerReplaced",
    "ConsumerTimedOut",
    "ExtraMissing",
    "GroupBroken",
    "JoinRefused",
    "LoaderFailed",
    "LocalProtocolError",
    "NameInUse",
    "NotShippable",
    "ProducerGone",
    "ProducerNotFound",
    "ProtocolError",
    "RemoteProtocolError",
    "SharedBatchWarning",
    "StopRequested",
    "StreamNotNamed",
    "StreamStopped",
    "TrialFailed",
    "TsnbError",
    "UnsupportedPlatform",
]


class TsnbError(Exception):
    """Base class of every error that tsnb raises on purpose.

    Fix: Read the last sentence of the message. It says what to do.
    """


class ProducerNotFound(TsnbError, LookupError):
    """No stream of that name is running.

    Or no name was given, and there is not exactly one stream.

    Fix: Start the stream, or name one of the running streams, for example `tsnb.attach(stream="mnist")`.
    `tsnb list` shows them.
    """


class StreamNotNamed(ProducerNotFound):
    """Several streams are running, and the call names none of them.

    Fix: Name one of the streams that the message lists, for example `tsnb.attach(stream="mnist")`.
    """

    said = ""
    """The message without its last sentence, which says how to name one; empty: it has no such sentence."""
    example = ""
    """The name of one of them."""


class NameInUse(TsnbError, ValueError):
    """A running stream or trial already has this name.

    The message names the process.

    Fix: Choose another name, or stop the stream or trial that has it.
    """


class ProducerGone(TsnbError, ConnectionError):
    """The stream's process died or was stopped while the trial was attached.

    Fix: Serve the loader again and rerun the trial. Serve with `restart="on-crash"` and `seed=` to let trials
    continue after a crash.
    """


class StreamStopped(ProducerGone):
    """A user stopped the stream while the trial was attached.

    A trial that ends with this error counts as stopped, not as failed.

    Fix: Nothing is wrong. To continue, serve the loader again and rerun the trial.
    """


class JoinRefused(TsnbError):
    """The stream cannot give the trial what it asked for.

    Fix: Change or leave out the argument that the message names. With `join="now"`, for example, a trial does
    not wait for the next epoch, and raises this error if the running one cannot be had whole.
    """


class ConsumerTimedOut(TsnbError):
    """The trial timed out: it stalled for longer than `stall_timeout_s`.

    Or it missed batches that the stream no longer holds, for example after a pause.

    Fix: Iterate again for the next epoch. For long steps on purpose, serve with a larger `stall_timeout_s=`.
    """


class GroupBroken(TsnbError):
    """Another rank of the trial's group has died or left.

    So no rank of the group receives more batches.

    Fix: Read the output of the rank that the message names. Then start all ranks again from a checkpoint.
    """

    at_once: bool = False
    """Whether batches that were copied ahead are dropped as well."""


class ConsumerReplaced(TsnbError):
    """The trial was detached, or a newer loop or process took its place.

    Fix: Attach again. Give each loop and each process its own name.
    """


class StopRequested(TsnbError):
    """A user asked the trial to stop, in the panel or on the command line.

    Fix: Nothing is wrong. Catch the error only to save something first.
    """


class ArenaFull(TsnbError, BufferError):
    """There is not enough shared memory.

    The stream needs it for its batches and for its cache.

    Fix: Serve with a smaller `window=`, `late_join=` or `cache=`, or use a smaller batch size. The message
    names the numbers. From a stream, the error arrives inside a `LoaderFailed`.
    """


class BatchTooLarge(TsnbError, ValueError):
    """A batch is larger than the buffers of the stream.

    Their size follows from the first batch.

    Fix: Serve with the `max_batch_bytes=` that the message names. The error arrives inside a `LoaderFailed`.
    """


class BatchNotShareable(TsnbError, TypeError):
    """A batch contains a value that cannot be shared.

    Or the batch cannot be cut to another batch size.

    Fix: Change your `collate_fn` at the place that the message names, for example to return tensors. If the
    value cannot be shared, the error arrives inside a `LoaderFailed`.
    """


class LoaderFailed(TsnbError):
    """The loader raised an error, or returned no batch.

    The message has the loader's own traceback.

    Fix: Correct the loader. To see the error alone, run `for batch in loader: pass` in the notebook.

    Attributes:
        summary: Cause of the failure, without the traceback.
        loader_traceback: Traceback of the loader as a string, from the process of the stream. Empty if the loader
            raised no error but could not be used.
    """

    def __init__(self, message: str, loader_traceback: str = "") -> None:
        text = f"{message}\n\n{loader_traceback.rstrip()}" if loader_traceback else message
        super().__init__(text)
        self.summary = message
        self.loader_traceback = loader_traceback


class NotShippable(TsnbError, TypeError):
    """An object cannot be pickled for the process of a trial or a stream.

    The message names the attribute.

    Fix: Create the object inside the cell or function instead, or leave it out.
    """


class TrialFailed(TsnbError):
    """A trial that you waited for ended without success.

    The message has its traceback.

    Fix: Correct the trial's code and run it again.
    """


class UnsupportedPlatform(TsnbError, OSError):
    """The system is neither Linux nor macOS, or `/proc` is not mounted.

    Fix: Run tsnb on Linux, in WSL2 or in a container.
    """


class ProtocolError(TsnbError):
    """A message between a stream and a trial broke their protocol.

    Fix: Use the same version of tsnb in all processes.
    """


class LocalProtocolError(ProtocolError):
    """This process was about to send a malformed message.

    Fix: Restart the kernel. If the error returns, report it with its traceback.
    """


class RemoteProtocolError(ProtocolError):
    """The other process sent a malformed message.

    Fix: Use the same version of tsnb in all processes, and restart the stream.
    """


class ExtraMissing(TsnbError, ImportError):
    """An optional package is not installed.

    Fix: Run the `pip install` command of the message.
    """


class SharedBatchWarning(UserWarning):
    """A shared batch was modified in place, or a trial keeps too many.

    Each trial warns once.

    Fix: Write `x = x / 255` instead of `x /= 255`, or attach with `private=True` to receive copies. If the
    trial keeps too many batches, further ones are copied: keep fewer at a time.
    """
