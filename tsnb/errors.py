"""Every error tsnb raises on purpose. Imports nothing.

```
TsnbError
  ProducerNotFound(LookupError)    no producer has that name; lists the names that are served
  NameInUse(ValueError)            a producer or a live consumer of that name exists; says which process holds it
  ProducerGone(ConnectionError)    the producer died or stopped while attached; says how to go on
  JoinRefused                      the stream cannot take this consumer (protocol version, too many consumers)
  ConsumerParked                   this consumer stood still and its place in the epoch was given up
  GroupBroken                      another rank of this consumer's group has gone, so none goes on
  StopRequested                    this consumer was asked to stop (the panel's button)
  ConsumerReplaced                 a newer attach of the same name took this consumer's place
  ArenaFull(BufferError)           no slot came free in time; says how many and who holds them
  BatchTooLarge(ValueError)        one batch exceeds a slot; says both sizes and the option to raise
  BatchNotShareable(TypeError)     a batch holds something that cannot be shared; names the place in it
  LoaderFailed                     the user's loader raised; carries its traceback from the producer's process
  NotShippable(TypeError)          an object cannot travel to a background kernel; names the attribute and the fix
  TrialFailed                      a trial's cell raised; carries its traceback
  UnsupportedPlatform(OSError)     neither Linux nor macOS
  ProtocolError
    LocalProtocolError             our side would have sent something malformed
    RemoteProtocolError            the other side sent something malformed
  ExtraMissing(ImportError)        names the `pip install tsnb[...]`

SharedBatchWarning(UserWarning)    a batch was changed in place, or so many are held that further ones are copied
```
"""

from __future__ import annotations

__all__ = [
    "ArenaFull",
    "BatchNotShareable",
    "BatchTooLarge",
    "ConsumerParked",
    "ConsumerReplaced",
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
    "TrialFailed",
    "TsnbError",
    "UnsupportedPlatform",
]


class TsnbError(Exception):
    """Base of every error that tsnb raises on purpose."""


class ProducerNotFound(TsnbError, LookupError):
    """No producer of that name is served, or none or several where a name was left out."""


class NameInUse(TsnbError, ValueError):
    """A live producer, consumer or trial has this name already; the message says which process holds it."""


class ProducerGone(TsnbError, ConnectionError):
    """The producer died or stopped while this consumer was attached."""


class JoinRefused(TsnbError):
    """The stream does not take this consumer; the message says why and what to do."""


class ConsumerParked(TsnbError):
    """This consumer stood still past `stall_timeout_s` and its place in the epoch was given up."""


class GroupBroken(TsnbError):
    """Another rank of this consumer's group has gone: in a collective this one would wait for it."""

    at_once: bool = False
    """Whether batches that were copied ahead count for nothing either."""


class ConsumerReplaced(TsnbError):
    """A newer `attach` of the same name in this process took this consumer's place."""


class StopRequested(TsnbError):
    """This consumer was asked to stop, by the panel's button or another process."""


class ArenaFull(TsnbError, BufferError):
    """No slot came free in time."""


class BatchTooLarge(TsnbError, ValueError):
    """One batch does not fit into a slot."""


class BatchNotShareable(TsnbError, TypeError):
    """A batch holds a value, or has a shape, that cannot be shared or re-batched."""


class LoaderFailed(TsnbError):
    """The user's loader raised, or gave nothing.

    Attributes:
        summary: What happened, without the traceback.
        loader_traceback: The loader's own traceback as text, from the producer's process
            (empty where the loader raised nothing but was unusable).
    """

    def __init__(self, message: str, loader_traceback: str = "") -> None:
        text = f"{message}\n\n{loader_traceback.rstrip()}" if loader_traceback else message
        super().__init__(text)
        self.summary = message
        self.loader_traceback = loader_traceback


class NotShippable(TsnbError, TypeError):
    """An object cannot travel to a background kernel."""


class TrialFailed(TsnbError):
    """A trial's cell raised; the message carries its traceback."""


class UnsupportedPlatform(TsnbError, OSError):
    """This operating system is not supported yet."""


class ProtocolError(TsnbError):
    """A message broke the protocol between producer and consumer."""


class LocalProtocolError(ProtocolError):
    """This side was about to break the protocol."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol."""


class ExtraMissing(TsnbError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class SharedBatchWarning(UserWarning):
    """The user's code does with shared batches what it would better not do; said once a consumer."""
