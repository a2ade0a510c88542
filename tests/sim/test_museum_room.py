"""The bug museum's third room: mistakes about which group may have which room, put back one at a time in
storms.

Each must be caught within a bound of seeds, by the invariant that it breaks, and the unbroken scheduler must
come through the seed that caught it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gangsched.core.binding import group_outcome, start_records
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.binding.start_records import StartRecords
from gangsched.core.cache.devices import ledger as device_ledger
from gangsched.core.cache.devices.ledger import Inventories
from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.groups.attempts.making_room import MakingRoom
from gangsched.core.groups.members import membership
from gangsched.core.preemption import queue_rights, victims
from gangsched.core.preemption.queue_rights import QueueRights
from gangsched.core.state.line.waking import _Cures
from gangsched.model.objects import Node
from gangsched.plugins.nodes.node_unschedulable import NodeUnschedulable
from gangsched.plugins.nodes.taint_toleration import TaintToleration
from gangsched.plugins.volumes import claim_binding, volume_binding, volume_matching, volume_restrictions
from gangsched.plugins.volumes.node_volume_limits import NodeVolumeLimits
from tests.support.breaking import assert_caught

MAX_SEEDS = 40
Patch = pytest.MonkeyPatch
Amounts = Mapping[str, int]


def cordons_are_not_seen(patch: Patch) -> None:
    patch.setattr(NodeUnschedulable, "filter", lambda self, state, template, view: None)


def taints_are_not_seen(patch: Patch) -> None:
    patch.setattr(TaintToleration, "filter", lambda self, state, template, view: None)


def no_pod_is_evicted_for_others(patch: Patch) -> None:
    patch.setattr(MakingRoom, "make", lambda self, unit, error: error)


def what_is_free_counts_alone(patch: Patch) -> None:
    """A group that waits is tried again where it fits, and not where it would fit once less important pods
    go."""
    patch.setattr(_Cures, "_may_preempt", lambda self, profile, group, kept: False)


def gangs_are_evicted_pod_by_pod(patch: Patch) -> None:
    patch.setattr(victims, "stays_whole", lambda group: False)


def guarantees_take_nothing_back(patch: Patch) -> None:
    patch.setattr(QueueRights, "_may_take_from", lambda self, way, requests, *, is_lower: is_lower)


def one_pod_at_most_is_given_back(patch: Patch) -> None:
    refuses = QueueRights.refuses
    patch.setattr(
        QueueRights, "refuses", lambda self, some: "one too many" if some[1:] else refuses(self, some)
    )


def the_last_that_is_guaranteed_is_not_given(patch: Patch) -> None:
    is_within = queue_rights.is_within

    def stricter(guaranteed: Amounts, used: Amounts, request: Amounts) -> bool:
        return is_within(guaranteed, used, {name: n + 1 for name, n in request.items() if n})

    patch.setattr(queue_rights, "is_within", stricter)


def attached_volumes_are_not_counted(patch: Patch) -> None:
    patch.setattr(NodeVolumeLimits, "filter", lambda self, state, template, view: None)


def one_pod_is_any_pod(patch: Patch) -> None:
    patch.setattr(volume_restrictions, "_is_used", lambda template, view: False)


def volumes_are_everywhere(patch: Patch) -> None:
    patch.setattr(volume_binding, "on_nodes", lambda volume, view: None)


def a_made_volume_is_not_looked_at(patch: Patch) -> None:
    """A claim that is bound is enough, wherever the driver has made its volume."""
    patch.setattr(claim_binding, "_unsuitable", lambda claim, volume, node_name, nodes: "")


def what_is_given_to_others_is_free(patch: Patch) -> None:
    patch.setattr(volume_matching.Given, "give", lambda self, choice: None)


def failed_devices_are_left(patch: Patch) -> None:
    patch.setattr(DeviceHealth, "_set_due", lambda self, failure: None)


def an_unreadable_list_is_a_list_of_nothing(patch: Patch) -> None:
    right = Inventories.put

    def put(self: Inventories, row: int, node: Node, *rest: Any) -> tuple[frozenset[str], str]:
        found = right(self, row, node, *rest)
        self._ledger.unread.discard(row)
        return found

    patch.setattr(Inventories, "put", put)


def what_is_not_known_is_free(patch: Patch) -> None:
    patch.setattr(device_ledger, "may_hold", lambda *args, **more: False)


def every_gang_bound_in_part_is_unwound(patch: Patch) -> None:
    patch.setattr(GroupOutcome, "half_bound", lambda self, group: self.unwind(group))


def no_gang_bound_in_part_is_unwound_at_once(patch: Patch) -> None:
    patch.setattr(group_outcome, "UNWIND", "never")


def a_record_is_not_read(patch: Patch) -> None:
    """Of a gang that has lost members, a member older than the last bind counts as left out of it."""
    patch.setattr(start_records, "_record", lambda pod, gang: None)


def every_gang_that_is_short_is_in_part(patch: Patch) -> None:
    patch.setattr(StartRecords, "was_whole", lambda self, group: False)


def bound_counts_as_started(patch: Patch) -> None:
    patch.setattr(start_records, "is_refused", lambda pod: False)


def what_a_deposed_leader_wrote_stays(patch: Patch) -> None:
    patch.setattr(membership, "note_doubt", lambda *args, **more: False)


# The mistake, the storm, and the beginning of what the checkers say of it.
EXHIBITS: dict[str, tuple[Callable[[Patch], None], str, str]] = {
    "cordons are not seen": (cordons_are_not_seen, "storm", "room: "),
    "taints are not seen": (taints_are_not_seen, "storm", "room: "),
    "no pod is evicted for others": (no_pod_is_evicted_for_others, "preempting", "preemption-used: "),
    "what is free counts alone": (what_is_free_counts_alone, "preempting", "preemption-used: "),
    "gangs are taken pod by pod": (gangs_are_evicted_pod_by_pod, "preempting", "gangs-not-torn: "),
    "guarantees take nothing back": (guarantees_take_nothing_back, "lending", "guarantees-given-back: "),
    "one pod at most is given back": (one_pod_at_most_is_given_back, "lending", "guarantees-given-back: "),
    "the last that is guaranteed": (
        the_last_that_is_guaranteed_is_not_given,
        "lending",
        "guarantees-given-back: ",
    ),
    "all bound in part are unwound": (every_gang_bound_in_part_is_unwound, "unwind", "partial-bind-policy: "),
    "none is unwound at once": (no_gang_bound_in_part_is_unwound_at_once, "unwind", "partial-bind-policy: "),
    "what is not known is free": (what_is_not_known_is_free, "storm", "known-devices: "),
    "a record is not read": (a_record_is_not_read, "refused", "refused-members: "),
    "every gang that is short is in part": (every_gang_that_is_short_is_in_part, "storm", "restarts: "),
    "every gang that is short, by a second": (every_gang_that_is_short_is_in_part, "duel", "restarts: "),
    "what the deposed wrote stays": (what_a_deposed_leader_wrote_stays, "duel", "restarts: "),
    "bound counts as started": (bound_counts_as_started, "refused", "refused-members: "),
    "failed devices are left": (failed_devices_are_left, "sick", "failed-devices: "),
    "an unreadable list lists nothing": (an_unreadable_list_is_a_list_of_nothing, "sick", "failed-devices: "),
    "volumes are everywhere": (volumes_are_everywhere, "volumes", "volumes-reached: "),
    "a made volume is not looked at": (a_made_volume_is_not_looked_at, "volumes", "volumes-reached: "),
    "one pod is any pod": (one_pod_is_any_pod, "volumes", "volumes-for-one-pod: "),
    "attached volumes are not counted": (attached_volumes_are_not_counted, "volumes", "volumes-counted: "),
    "what is given to others is free": (what_is_given_to_others_is_free, "volumes", "volumes-given-once: "),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    mistake, storm, begins = EXHIBITS[exhibit]
    assert_caught(exhibit, mistake, storm, begins, n_seeds=MAX_SEEDS)
