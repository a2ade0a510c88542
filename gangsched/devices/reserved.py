"""What a scheduler has reserved and not yet bound, laid over the map of devices. No object of the API server
has it, only the scheduler's own page /reservations. Read before pods are listed, so that pods bound meanwhile
show as bound. Called by `command`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from gangsched.devices.report import FREE, RESERVED, DeviceRow, NodeMap, Promise
from gangsched.errors import ApiError
from gangsched.model.walltime import LATEST_S
from gangsched.web.commands.asking import ask, decoded, server_of
from gangsched.web.pages.answers import RESERVATIONS_PATH, Reservation, ReservationsPage

_SCHEDULER_ONLY = "What is reserved and not yet bound is not shown"


async def ask_reserved(args: argparse.Namespace) -> tuple[Sequence[Reservation], str]:
    """Returns the scheduler's reservations; or none, and a sentence with the reason. Raises: ConfigError."""
    try:
        page = decoded(args, await ask(args, RESERVATIONS_PATH), ReservationsPage)
    except ApiError as error:
        return (), f"{_SCHEDULER_ONLY}: {error.message}"
    if not page.leads:
        return page.rows, f"{server_of(args)} does not lead: what it shows as reserved is what it follows."
    if page.is_cut:
        return page.rows, f"Only the first {len(page.rows)} reservations are shown."
    return page.rows, ""


def with_reserved(maps: Sequence[NodeMap], rows: Sequence[Reservation], now: datetime) -> list[NodeMap]:
    """Returns the map with reserved free devices shown as such, and with room that is promised."""
    taken: dict[tuple[str, str, str], Reservation] = {}
    promised: dict[str, list[Promise]] = {}
    for row in rows:
        for one in row.ids:
            taken[row.node, row.resource, one] = row
        if not row.ids:
            promise = Promise(row.group, row.resource, row.amount, row.is_taken, _until(row, now))
            promised.setdefault(row.node, []).append(promise)
    return [
        replace(
            one,
            devices=tuple(_marked(one.name, device, taken, now) for device in one.devices),
            promised=tuple(promised.get(one.name, ())),
        )
        for one in maps
    ]


def _marked(
    node: str, device: DeviceRow, taken: Mapping[tuple[str, str, str], Reservation], now: datetime
) -> DeviceRow:
    row = taken.get((node, device.resource, device.id))
    if row is None or device.state != FREE:
        return device
    return replace(device, state=RESERVED, reserved_by=row.group, reserved_until=_until(row, now))


def _until(row: Reservation, now: datetime) -> datetime | None:
    if row.left_s is None or abs(row.left_s) >= LATEST_S:  # no calendar has a day that is as far
        return None
    return (now + timedelta(seconds=row.left_s)).replace(microsecond=0)
