"""The exception tree: an exception is always somebody's fault, and its class says whose.

    GangschedError
    ├── ConfigError      the user's: a file, a flag, an environment that cannot be used as it is
    ├── ParseError       the user's or a peer's: a value on an object that does not parse
    ├── ApiError         the API server's answer, or its silence
    └── InvariantError   ours: a promise of the core does not hold; carries the story that led there

"No" is not an exception: a decision is a value (`core.framework.Status`).
"""

from __future__ import annotations

from collections.abc import Sequence


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


class ApiError(GangschedError):
    """The API server said no (`code` > 0), or nothing was heard (`code` == 0: the outcome is unknown)."""

    def __init__(
        self, message: str, *, code: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(f"{code} {reason}: {message}" if code else message)


class InvariantError(GangschedError):
    """A promise of the core was broken: a bug of ours. `story` is what led there, oldest first."""

    def __init__(self, message: str, *, story: Sequence[str] = ()) -> None:
        self.message = message
        self.story = tuple(story)
        super().__init__(message if not story else message + "\n  " + "\n  ".join(story))
