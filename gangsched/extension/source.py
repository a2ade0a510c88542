"""ConfigSource: where the configuration comes from, so that it can be reread.

Lives here: the file, the flags that override it, the plugins that it may name. Called by commands once,
and by reload for as long as the scheduler runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from gangsched.config import ExtenderConfig, SchedulerConfig, default_config, parse_config
from gangsched.errors import ConfigError
from gangsched.extension.loading import KnownPlugins
from gangsched.reading.strict import read_text

_NO_FLAGS: Mapping[str, str | bool] = {}

Stamp = tuple[str, int, int, int]


def _as_it_is(config: SchedulerConfig) -> SchedulerConfig:
    return config


class ConfigSource:
    """`path` "": no file, which means the defaults."""

    def __init__(
        self,
        path: str,
        plugins: KnownPlugins,
        *,
        election_flags: Mapping[str, str | bool] = _NO_FLAGS,
        finish: Callable[[SchedulerConfig], SchedulerConfig] = _as_it_is,
        scheduler_name: str = "",
    ) -> None:
        """`finish` applies further overrides; `scheduler_name`: the profile's name when there is no file."""
        self.path = path
        self.plugins = plugins
        self._election_flags = election_flags
        self._finish = finish
        self._scheduler_name = scheduler_name
        self._is_read = False
        self.first_stamp: Stamp | None = None
        """The stamp when it was read first: the start may take long after that."""

    def read(self, *, extenders: Sequence[ExtenderConfig] | None = None) -> SchedulerConfig:
        """The configuration as written now; `extenders`: those in effect, if not the file's own.

        Raises: ConfigError.
        """
        if self.path:
            config = parse_config(
                self._text(),
                source=self.path,
                plugins=self.plugins,
                election_flags=self._election_flags,
                extenders=extenders,
            )
        elif self._scheduler_name:
            config = default_config(self.plugins, scheduler_name=self._scheduler_name)
        else:
            config = default_config(self.plugins, election_flags=self._election_flags)
        return self._finish(config)

    def stamp(self) -> Stamp | None:
        """Changes when the file is written or replaced; None: there is no file.

        A mounted ConfigMap is a symbolic link to a directory that is a symbolic link: the kubelet swaps the
        inner one, so neither the path nor a link's own mtime changes.
        """
        try:
            real = os.path.realpath(self.path)
            found = os.stat(real)
        except OSError:
            return None
        return real, found.st_ino, found.st_mtime_ns, found.st_size

    def _text(self) -> str:
        """Raises: ConfigError."""
        # A shell's <(helm template …) is a pipe, and read once: a second read might wait for ever.
        if self._is_read and not os.path.isfile(self.path) and os.path.exists(self.path):
            raise ConfigError(
                "is not a regular file, and only such a file can be read again", source=self.path
            )
        if not self._is_read:
            self.first_stamp = self.stamp()
        text = read_text(self.path)
        self._is_read = True
        return text
