"""Mixes: storms beside what belongs to others: hostile objects, failed devices, claims, two schedulers.

Each alone was quiet where two at once were not. Of those here a seed of the storm `mixed` draws one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gangsched.config.queueing import QueueingSettings
from gangsched.sim.duel import make_follower

if TYPE_CHECKING:
    from gangsched.sim.storms import Storm

_HOSTILE = ("limits", "queues", "lending", "claims", "overtime", "volumes", "racks", "preempting", "labels")
_SICK = ("overrun", "overtime", "lending", "limits", "volumes", "racks", "preempting", "labels")
_CLAIMS = ("volumes", "racks", "preempting", "sick", "unwind")
_DUEL = ("claims", "overtime", "preempting", "racks", "sick", "hostile", "labels")


def mixes(storms: Mapping[str, Storm]) -> tuple[Storm, ...]:
    """All of them."""
    sick = storms["sick"].settings
    failing = {"on_failure": sick.devices.on_failure, "failure_grace_s": sick.devices.failure_grace_s}
    found = [replace(storms[name], rates=storms["hostile"].rates) for name in _HOSTILE]
    for name in _SICK:
        own = storms[name].settings
        both = replace(own, devices=replace(own.devices, **failing), on_partial_bind=sick.on_partial_bind)
        found.append(replace(storms[name], settings=both))
    for name in _CLAIMS:
        bounded = replace(storms[name].settings, queueing=QueueingSettings(2, mode="hard"))
        found.append(replace(storms[name], settings=bounded))
    for k, name in enumerate(_DUEL):
        found.append(replace(storms[name], make=make_follower, is_duel=True, foresees=k % 2 == 1))
    return tuple(found)
