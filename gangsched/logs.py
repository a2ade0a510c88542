"""Log lines: message plus key=value for people, or JSON with kube-scheduler's keys for collectors.

Set up once by the command line; every module logs through structlog with keywords.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

if "rich" not in sys.modules and "structlog" not in sys.modules:
    # structlog imports rich, if installed, for tracebacks that we do not print: 45 ms of CPU, a tenth of a
    # scheduler's start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

from gangsched.model.text.printable import one_line

_processors: list[Any] = []
"""One list, changed in place: loggers that were used before keep it, and follow a later set-up."""


class _Lossy:
    """A log's file. Only lines that cannot be written are lost, when a disk is full or the pipe's reader has
    ended, as with a restart of journald. `file` None: stderr as it is when a line comes.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            (self._file or sys.stderr).write(text)

    def flush(self) -> None:
        with suppress(OSError):
            (self._file or sys.stderr).flush()


def set_up_logs(style: str, *, debug: bool = False, file: TextIO | None = None) -> None:
    """Sets up logging. `style`: text or json. Lines go to stderr, or to `file`: stdout is for answers."""
    _processors[:] = [structlog.processors.add_log_level, _stamp, _json if style == "json" else _text]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(file))),
        cache_logger_on_first_use=True,
    )


def _stamp(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["ts"] = round(time.time(), 3)
    return line


def _text(_: Any, __: str, line: MutableMapping[str, Any]) -> str:
    ts, level, message = line.pop("ts"), line.pop("level"), line.pop("event")
    clock = time.strftime("%H:%M:%S", time.localtime(ts)) + f".{int(ts % 1 * 1000):03d}"
    pairs = " ".join(f"{key}={_quoted(value)}" for key, value in line.items())
    return one_line(f"{clock} {level:<7} {message} {pairs}".rstrip())


def _json(_: Any, __: str, line: MutableMapping[str, Any]) -> str:
    import msgspec

    line["msg"] = line.pop("event")
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except UnicodeEncodeError:  # a file's name: Python reads bytes that are not UTF-8 as lone surrogates
        return msgspec.json.encode({key: one_line(str(value)) for key, value in line.items()}).decode()


def _quoted(value: Any) -> str:
    """Quotes a value unless it is one plain word; escapes its quotes, so that it cannot forge another key."""
    text = str(value)
    if text and " " not in text and '"' not in text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
