"""SchedulerParts: the scheduler as seen by the classes that do parts of its work.

Implemented by core.scheduler. Used by core.turns.event_handlers, core.turns.overdue, core.turns.turn,
core.turns.containment and core.turns.refused_pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gangsched.core.binding.binder import Binder
from gangsched.core.device_audit.claimed_devices import ClaimedDevices
from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.attempts.reservations import Reservations
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members.membership import Membership
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.reconciler import Reconciler
from gangsched.core.groups.walltime_evictions import WalltimeEvictions
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.turns.steps import Take
from gangsched.core.types.group import Group
from gangsched.model import events as ev


class SchedulerParts(Protocol):
    """A scheduler's parts, and how steps are run."""

    shared: SharedState
    reporter: Reporter
    group_specs: GroupSpecs
    owners: Owners
    audit: DriftAudit
    claimed_devices: ClaimedDevices
    membership: Membership
    binder: Binder
    health: DeviceHealth
    attempts: Attempts
    walltime_evictions: WalltimeEvictions
    reservations: Reservations
    reconciler: Reconciler

    def apply(self, take: Take, run: Iterable[ev.Event]) -> None:
        """Passes events of one kind to `take`."""
        ...

    def for_group(self, group: Group, do: Callable[[Group], Any]) -> None:
        """Runs a step for one group. core.turns.steps decides whether it runs now and what happens if it
        raises.
        """
        ...
