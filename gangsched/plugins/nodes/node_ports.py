"""NodePorts: a host port on a node belongs to one pod.

A capacity plugin, because a gang's own members compete for ports: one per node at most.
Source: kube-scheduler `plugins/nodeports/node_ports.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.interface import (
    EVERYWHERE,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    IntArray,
    Rows,
)
from gangsched.core.types.templates.pod_template import ANY_ADDRESS, HostPort, PodTemplate

REASON = "node(s) didn't have free ports for the requested pod ports"
_EVERY = "0.0.0.0"


class NodePorts:
    """Capacity 1 where all wanted host ports are free, 0 elsewhere."""

    name = "NodePorts"
    cured_by = Change.NODE_ADDED | Change.ROOM_FREED

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.host_ports)

    def capacity(
        self, state: CycleState, template: PodTemplate, view: RoomQueries, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        if not template.host_ports:
            return None
        ports = view.ports()
        if not isinstance(rows, slice):
            free = (not _conflict(template.host_ports, ports.get(int(row), {})) for row in rows)
            return np.fromiter(free, dtype=np.int64, count=len(rows))
        room = np.ones(view.n_rows, dtype=np.int64)
        # Visits only rows with host ports in use: a Python loop, but pods with host ports are few and never
        # the bulk of a gang.
        for row, taken in ports.items():
            if _conflict(template.host_ports, taken):
                room[row] = 0
        return room[rows]

    def reasons(
        self, state: CycleState, template: PodTemplate, view: RoomQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        room = self.capacity(state, template, view)
        return () if room is None else ((REASON, room == 0),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: RoomQueries) -> bool:
        if template is None or change.row < 0:
            return True
        if not change.what & Change.NODE_ADDED and not change.ports:
            return False
        return not _conflict(template.host_ports, view.ports().get(change.row, {}))


def _conflict(wanted: Sequence[HostPort], taken: Mapping[HostPort, int]) -> bool:
    """Whether two have the same protocol and port, with an address in common; 0.0.0.0 is every address.

    Each is looked up: a pod may want hundreds, and others, bound by whoever, have taken ten thousands.
    """
    for address, protocol, number in wanted:
        if address == _EVERY:
            if (ANY_ADDRESS, protocol, number) in taken:
                return True
        elif address != ANY_ADDRESS and (
            (address, protocol, number) in taken or (_EVERY, protocol, number) in taken
        ):
            return True
    return False
