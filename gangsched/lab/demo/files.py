"""The files that the demo leaves or needs, checked before anything starts: a wrong name costs no time.

Called by gangsched.lab.demo.command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gangsched.errors import ConfigError
from gangsched.telemetry.sending.trace_file import opened
from gangsched.whole_file import private, write_whole


class Written:
    """A file that is written at the end; that it can be written is checked when this is made.

    Raises: ConfigError, naming the option.
    """

    def __init__(self, given: str, option: str) -> None:
        self.path = Path(given)
        self._is_new = not self.path.exists()
        _open(self.path, "a", option, given)

    def write(self, text: str) -> None:
        """Writes the file. Raises: ConfigError."""
        try:
            write_whole(self.path, text.encode())
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", source=str(self.path)) from None
        self._is_new = False

    def drop(self) -> None:
        """Removes the file if it did not exist before and nothing has been written."""
        if self._is_new:
            self.path.unlink(missing_ok=True)


def kubeconfig_path(given: str, folder: Path) -> Path:
    """Where the kubeconfig goes: as given, which must not exist yet, else into the demo's own folder.

    Raises: ConfigError.
    """
    if not given:
        return folder / "kubeconfig"
    path = Path(given)
    if path.exists():
        # It is removed at the end, so it must not be the user's own ~/.kube/config.
        raise ConfigError(
            "exists already; the demo makes a new file and removes it", source=f"--kubeconfig-out {given}"
        )
    _open(path, "x", "--kubeconfig-out", given)
    return path


def trace_path(given: str, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """Where the traces go, and why there are none ("" if there are).

    A named file is appended to. Without a name it is one in the user's cache, which each demo replaces.
    Raises: ConfigError, for a name that was given.
    """
    if given:
        try:
            opened(Path(given)).close()
        except OSError as error:
            raise ConfigError(
                f"cannot be written: {error.strerror}", source=f"--trace-file {given}"
            ) from None
        return Path(given), ""
    root = environ.get("XDG_CACHE_HOME", "")
    path = (Path(root) if root else Path.home() / ".cache") / "gangsched" / "demo-traces.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(path, "w", opener=private).close()
    except OSError as error:
        return (
            None,
            f"No traces: {path} cannot be written ({error.strerror}); name another with --trace-file.",
        )
    return path, ""


def _open(path: Path, mode: str, option: str, given: str) -> None:
    try:
        path.open(mode).close()
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", source=f"{option} {given}") from None
