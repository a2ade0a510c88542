"""The map of devices in few lines: one for each node and resource, one for each gang. Called by `command`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.devices.report import FREE, RESERVED, DeviceRow, NodeMap, is_sick
from gangsched.model.text.printable import clean

_MAX_NAMED = 4
TIME = "%Y-%m-%dT%H:%M:%SZ"


def print_summary(maps: Sequence[NodeMap], console: Console) -> None:
    """Prints the map by node, then by gang."""
    _print(console, ("NODE", "RESOURCE", "FREE", "RESERVED", "HELD", "SICK", "BY"), _by_node(maps))
    gangs = list(_by_gang(maps))
    if gangs:
        console.print()
        _print(console, ("GANG OR POD", "RESOURCE", "HELD", "RESERVED", "UNTIL", "NODES"), gangs)


def holder_of(device: DeviceRow) -> str:
    """The gang that has it, or the pod; "" for none."""
    return next((holder.gang or holder.pod for holder in device.holders), device.kubelet)


def time_text(at: datetime | None) -> str:
    """A time in UTC; "-" for none."""
    return "-" if at is None else at.strftime(TIME)


def _by_node(maps: Sequence[NodeMap]) -> Iterator[tuple[str, ...]]:
    for one in maps:
        for resource in dict.fromkeys(device.resource for device in one.devices):
            devices = [device for device in one.devices if device.resource == resource]
            n_free = sum(d.state == FREE and not is_sick(d) for d in devices)
            n_reserved = sum(d.state == RESERVED for d in devices)
            n_held = sum(bool(d.holders or d.kubelet) for d in devices)
            n_sick = sum(map(is_sick, devices))
            by = "; ".join(_holders(one, resource, devices)) or "-"
            counts = (f"{n_free} of {len(devices)}", *(str(n or "-") for n in (n_reserved, n_held, n_sick)))
            yield one.name, resource, *counts, by


def _holders(one: NodeMap, resource: str, devices: Sequence[DeviceRow]) -> Iterator[str]:
    """ "default/old 2", "default/evaluate 4 reserved until …"."""
    held = Counter(who for device in devices if (who := holder_of(device)))
    reserved = Counter((d.reserved_by, d.reserved_until) for d in devices if d.state == RESERVED)
    parts = [f"{who} {n}" for who, n in held.items()]
    parts += [f"{who} {n} reserved{_until(until)}" for (who, until), n in reserved.items()]
    for promise in one.promised:
        if promise.resource == resource:
            how = "reserved" if promise.is_taken else "promised when others have gone"
            parts.append(f"{promise.group} {promise.amount} {how}{_until(promise.until)}")
    yield from parts[:_MAX_NAMED]
    if len(parts) > _MAX_NAMED:
        yield f"{len(parts) - _MAX_NAMED} more"


def _by_gang(maps: Sequence[NodeMap]) -> Iterator[tuple[str, ...]]:
    held: Counter[tuple[str, str]] = Counter()
    reserved: Counter[tuple[str, str]] = Counter()
    until: dict[tuple[str, str], datetime] = {}
    nodes: dict[tuple[str, str], dict[str, None]] = {}
    for one in maps:
        for device in one.devices:
            own = device.reserved_by or holder_of(device)
            if not own:
                continue
            key = own, device.resource
            (reserved if device.state == RESERVED else held)[key] += 1
            if device.reserved_until is not None:
                until[key] = device.reserved_until
            nodes.setdefault(key, {})[one.name] = None
    for key, there in sorted(nodes.items()):
        names = list(there)
        more = f", {len(names) - _MAX_NAMED} more" * (len(names) > _MAX_NAMED)
        counts = (str(held[key] or "-"), str(reserved[key] or "-"), time_text(until.get(key)))
        yield *key, *counts, ", ".join(names[:_MAX_NAMED]) + more


def _until(at: datetime | None) -> str:
    return "" if at is None else f" until {time_text(at)}"


def _print(
    console: Console, headings: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]
) -> None:
    table = printing.table()
    for heading in headings:
        right = heading in ("FREE", "RESERVED", "HELD", "SICK")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    console.print(table)
