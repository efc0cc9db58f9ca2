"""Objects that are bound to their process: pickling or copying one says so, and what to do instead."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

__all__ = ["Bound"]


class Bound:
    """Base of what holds connections, threads or processes, which cannot be copied or sent elsewhere.

    Attributes:
        instead: What to do, in whole sentences.
    """

    __slots__ = ()
    instead: ClassVar[str] = ""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} of tsnb cannot be pickled or copied: it is bound to the process that made it. "
            f"{self.instead}"
        )
