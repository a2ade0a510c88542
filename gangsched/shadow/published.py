"""When and where shadow mode's report goes: at SIGUSR1 and at the end; text to stdout, JSON to a file.

Lives here: signal, file, clock. Not here: the report's content (report.py). One task of process.app's loop.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import structlog

from gangsched.errors import ConfigError
from gangsched.shadow.records import Records
from gangsched.shadow.report import report_data, report_text
from gangsched.whole_file import private, write_whole

_log = structlog.get_logger(__name__)


class ShadowSettings(msgspec.Struct, frozen=True):
    """report_file: where the JSON report goes, "" for nowhere."""

    report_file: str = ""


class Reports:
    """Publishes the report of `records` on request."""

    def __init__(self, records: Records, settings: ShadowSettings, *, names: Sequence[str]) -> None:
        """Raises: ConfigError, if the file cannot be written: better now than at the end."""
        self._records = records
        self._path = Path(settings.report_file) if settings.report_file else None
        self._names = names
        self._since_s = time.monotonic()
        if self._path is not None:
            try:
                self._path.touch()
            except OSError as error:
                raise ConfigError(f"{self._path}: {error.strerror}", path="--shadow-report") from None

    async def run(self) -> None:
        """Reports on every SIGUSR1 until cancelled."""
        with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                self.say()

    def say(self) -> None:
        """Publishes both reports now. One that cannot be written is skipped, and logged."""
        for_s = time.monotonic() - self._since_s
        try:
            print(report_text(self._records, names=self._names, for_s=for_s), file=sys.stdout, flush=True)
        except OSError as error:  # a full disk, or a reader that has gone
            _log.warning("the shadow report cannot be written", file="stdout", err=error.strerror)
        if self._path is None:
            return
        data = report_data(self._records, names=self._names, for_s=for_s)
        try:
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(data), indent=1), opener=private)
        except OSError as error:
            _log.warning("the shadow report cannot be written", file=str(self._path), err=error.strerror)
