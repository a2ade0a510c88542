"""Device files in /dev that are /dev/null under other names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path


def make_device_files(names: Iterable[str]) -> None:
    """Character devices that are /dev/null under other names."""
    for name in names:
        path = Path("/dev") / name
        if not path.exists():
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))


def remove_device_files(pattern: str) -> None:
    for path in Path("/dev").iterdir():
        if re.fullmatch(pattern, path.name):
            path.unlink()
