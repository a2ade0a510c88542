"""The exception tree: the class of an exception tells whose fault it is.

    GangschedError
    ├── ConfigError      the user's: a file, a flag or an environment that cannot be used as it is
    ├── ParseError       the user's or a peer's: a value on an object that does not parse
    ├── ApiError         the API server's answer, or its silence
    │   └── Unreachable  there is no connection to it: logged once for all callers
    └── InvariantError   ours: an invariant of the core does not hold; carries the events that led there

"No" is not an exception: a decision is a value (`core.framework.interface.Status`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class GangschedError(Exception):
    """Base of all errors that gangsched raises itself."""


class ConfigError(GangschedError):
    """A setting that cannot be used; `path` is its place in the file, as `profiles[0].plugins.score`."""

    def __init__(self, message: str, *, path: str = "", source: str = "") -> None:
        self.message = message
        self.path = path
        self.source = source
        where = ": ".join(part for part in (source, path) if part)
        super().__init__(f"{where}: {message}" if where else message)


class ParseError(GangschedError):
    """A value on a Kubernetes object that does not parse; `field` names the key or path."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.message = message
        self.field = field
        super().__init__(f"{field}: {message}" if field else message)


class Subject(NamedTuple):
    """The object that a Status is about, if it names one; `kind` is a resource's plural or a kind."""

    kind: str = ""
    name: str = ""
    group: str = ""
    uid: str = ""


class ApiError(GangschedError):
    """An answer that is no success (`code` > 0), or none (`code` == 0: the outcome is unknown).

    `subject` is what the answer's Status is about. None: the answer was no Status, so it may come from a
    proxy in front of the API server, and proves nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
        subject: Subject | None = None,
    ) -> None:
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.subject = subject
        text = f"{code} {reason}".rstrip()
        super().__init__(f"{text}: {message}" if code else message)


class Unreachable(ApiError):
    """There was no connection, or it ended before the answer began."""


class InvariantError(GangschedError):
    """An invariant of the core is broken: a bug of ours. `story`: the events that led there, oldest first."""

    def __init__(self, message: str, *, story: Sequence[str] = ()) -> None:
        self.message = message
        self.story = tuple(story)
        super().__init__(message if not story else message + "\n  " + "\n  ".join(story))
