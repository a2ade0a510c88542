"""The NICs of this node: their counters and link speeds, from /sys and the kernel's ethtool interface.

Lives here: reading, and which NICs count. Not here: rates (`meters`). A byte that leaves through a VLAN or a
bond also leaves through a NIC below it, so only the lowest of the chosen NICs count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import psutil

SYS_NET = Path("/sys/class/net")
_MEGABIT_BYTES = 125_000


class Nic(NamedTuple):
    """speed: bytes a second in one direction; 0: not known, or the link is down.

    lower: the NICs below it. is_standby: in a bond that sends through another NIC.
    """

    name: str
    is_up: bool
    is_physical: bool
    is_standby: bool
    speed: int
    sent: int
    received: int
    lower: tuple[str, ...] = ()


def read_nics(root: Path = SYS_NET) -> list[Nic]:
    """Reads all NICs, by name. Raises: OSError, if the directory does not exist."""
    return [nic for entry in sorted(root.iterdir()) if (nic := _read(entry)) is not None]


def counted(nics: Iterable[Nic], patterns: Sequence[str]) -> list[Nic]:
    """Returns the NICs to count: by name patterns (none: physical NICs), so that no byte counts twice."""
    by_name = {nic.name: nic for nic in nics}
    if patterns:
        chosen = [nic for nic in by_name.values() if any(fnmatchcase(nic.name, one) for one in patterns)]
    else:
        chosen = [nic for nic in by_name.values() if nic.is_physical]
    names = {nic.name for nic in chosen}
    return [nic for nic in chosen if names.isdisjoint(_below(nic, by_name))]


def _below(nic: Nic, by_name: Mapping[str, Nic]) -> set[str]:
    """Returns all NICs below it, at any depth."""
    found: set[str] = set()
    todo = list(nic.lower)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += by_name[name].lower if name in by_name else ()
    return found


def _read(entry: Path) -> Nic | None:
    counters = entry / "statistics"
    try:
        sent, received = (int((counters / f"{way}_bytes").read_text()) for way in ("tx", "rx"))
    except (OSError, ValueError):
        return None  # no NIC (bonding_masters is a file), or removed meanwhile
    state = _text(entry / "operstate")
    # NICs without a carrier (loopback, some virtual ones) always report "unknown".
    is_up = state in ("up", "unknown")
    return Nic(
        name=entry.name,
        is_up=is_up,
        is_physical=(entry / "device").exists(),
        is_standby=_is_standby(entry),
        speed=_speed(entry) if is_up else 0,
        sent=sent,
        received=received,
        lower=tuple(sorted(link.name.removeprefix("lower_") for link in entry.glob("lower_*"))),
    )


def _speed(entry: Path) -> int:
    text = _text(entry / "speed")  # "-1" or empty if the driver does not know
    megabits = int(text) if text.isdecimal() else 0
    if not megabits and entry.parent == SYS_NET:
        stats = psutil.net_if_stats().get(entry.name)  # by ethtool's ioctl
        megabits = stats.speed if stats is not None else 0
    # Some drivers pass the kernel's SPEED_UNKNOWN through as 2^32 - 1 or 2^16 - 1.
    return megabits * _MEGABIT_BYTES if 0 < megabits < 2**32 - 1 and megabits != 2**16 - 1 else 0


def _is_standby(entry: Path) -> bool:
    bond = entry / "master" / "bonding"
    if not _text(bond / "mode").startswith("active-backup"):
        return False
    return _text(bond / "active_slave") != entry.name


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
