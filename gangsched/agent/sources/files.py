"""A JSON file of devices, or a directory of such files: any kind of device, from any tool that writes it.

Lives here: finding and reading files, and what stays listed if one does not parse. Not here: the format
(device_file). The content is read each time, a few kilobytes from the page cache: a time stamp does not
distinguish two writes within its granularity, and a ConfigMap's file changes by a symbolic link.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gangsched.agent.report.reports import Place, Report, Silence
from gangsched.agent.sources.device_file import MAX_FILE_BYTES, parse_device_file
from gangsched.errors import ConfigError
from gangsched.model.text.printable import several

MAX_FILES = 256


class FileSource:
    """A removed file lists nothing; an unparsable one keeps its last list.

    A path that has never existed may be misspelt: it is reported as a problem and removes no device.
    """

    period_s = 1.0
    silence = Silence.NOTHING

    def __init__(self, path: str) -> None:
        self.name = path
        self._path = Path(path)
        self._read: dict[Path, bytes] = {}
        self._good: dict[Path, Place] = {}
        self._problem: dict[Path, str] = {}
        self._n_left_out = 0
        self._was_there = False

    def read(self) -> Report:
        """Raises: nothing."""
        try:
            files, looked = self._files()
        except OSError as error:
            problem = f"{self.name}: cannot be read: {error.strerror}; what it last listed stays"
            return Report(self.name, self._places(), (problem,), problem, whole=bool(self._read))
        self._was_there = self._was_there or bool(files) or self._path.is_dir()
        if not self._was_there:
            problem = f"{looked}, and there has been none since the start; the Node's list stays as it is"
            return Report(self.name, problems=(problem,), looked=looked, whole=False)
        kept: tuple[dict[Path, Any], ...] = (self._read, self._good, self._problem)
        for known in kept:
            for gone in [path for path in known if path not in files]:
                del known[gone]
        for path in files:
            self._look(path)
        problems = [self._problem[path] for path in files if path in self._problem]
        if self._n_left_out:
            problems.append(
                f"{self.name}: {several(self._n_left_out, 'file')} more than the {MAX_FILES} that are read;"
                " join them"
            )
        whole = not self._n_left_out and all(path in self._good for path in self._problem)
        return Report(self.name, self._places(), tuple(problems), looked, whole=whole)

    def _files(self) -> tuple[list[Path], str]:
        """The files to read, and a description of the search. Raises: OSError."""
        self._n_left_out = 0
        if self._path.is_dir():
            found = sorted(
                path for path in self._path.iterdir() if path.suffix == ".json" and path.name[0] != "."
            )
            files = [path for path in found if path.is_file()]
            self._n_left_out = max(0, len(files) - MAX_FILES)
            return files[:MAX_FILES], f"{self.name}: {len(files)} files *.json"
        if self._path.exists():
            return [self._path], self.name
        return [], f"{self.name}: no such file or directory"

    def _look(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._read.pop(path, None)
            self._problem[path] = f"{path}: cannot be read: {error.strerror}{self._stays(path)}"
            return
        if self._read.get(path) == data:
            return
        self._read[path] = data
        try:
            if len(data) > MAX_FILE_BYTES:
                raise ConfigError(f"has more than {MAX_FILE_BYTES} bytes, too many for a list of devices")
            listed = parse_device_file(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            self._problem[path] = f"{path}: is not text: byte {error.start}{self._stays(path)}"
        except ConfigError as error:
            named = ConfigError(error.message, path=error.path, source=str(path))
            self._problem[path] = f"{named}{self._stays(path)}"
        else:
            self._good[path] = Place(str(path), listed)
            self._problem.pop(path, None)

    def _stays(self, path: Path) -> str:
        return "; what it listed before stays" if path in self._good else ""

    def _places(self) -> tuple[Place, ...]:
        return tuple(self._good[path] for path in sorted(self._good))
