"""Reporter: describes decisions in messages, as effects: pod conditions, events, PodGroup status.

Writes a thing once: an unchanged condition is not written again, and an event goes to the group's object or
its first pod, not to every member. In a large gang a few members get the full text and the rest a constant
sentence that points to them, so that a gang of 5,000 with a changing member count does not write 5,000 pods
for each new member. Reasons and actions are kube-scheduler's where it has one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from gangsched.core.state.group_status import (
    UNSCHEDULABLE,
    Report,
    condition_of,
    has_conditions,
    has_phase,
    is_same,
    is_step,
    known_status,
    says_scheduled,
    status_of,
    with_condition,
)
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import BOUND, ON_ITS_WAY, Group, MemberState, PodInfo
from gangsched.core.types.lost_members import lacks
from gangsched.core.why import OfGang, Why, words
from gangsched.core.why.binds import AnswerUnclear
from gangsched.core.why.incomplete import MembersLost
from gangsched.core.why.released import Reserved
from gangsched.core.why.resource_claims import in_two_claims
from gangsched.errors import InvariantError
from gangsched.model.effects import (
    DEVICES_HEALTHY,
    GANG_WHOLE,
    GROUP_CONDITIONS,
    POD_REFUSED,
    START_PROMISED,
    RecordEvent,
    WritePodCondition,
    WritePodGroupStatus,
)
from gangsched.model.events import PodGroupAdded, PodGroupUpdated
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import CORE, PodGroup
from gangsched.model.resource_claims.objects import DeviceId
from gangsched.model.text.printable import clean, clean_for, several

SCHEDULER_ERROR = "SchedulerError"
GATED = "SchedulingGated"
"""The reason is not Unschedulable, so that an autoscaler adds no node for such a pod."""
# Members with the full text: the first by name, which are the same after a restart and come first in `kubectl
# get pods`.
N_SPEAKERS = 5


class Reporter:
    """Turns the core's decisions into effects for people to read.

    What it writes is read by the tenants of the object's namespace, so it names no object of another one
    (clean_for). A group's `why` keeps all of it: explain and the pages show the names in it by their rights.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def rejected(self, group: Group, why: Why, *, reason: str = "FailedScheduling") -> None:
        """Reports why the group cannot start now: a condition on unbound members (or a few of them), and an
        event."""
        message = words(why)
        self._tell(group, message)
        # A gated member has its own condition (SchedulingGated, from the API server), which stays true.
        unbound = (MemberState.PENDING, MemberState.ASSUMED)
        self._tell_members(group, [i for i in group.members.values() if i.state in unbound], message)
        if group.reported != message:
            group.reported = message
            self.event(group, "Warning", reason, "Scheduling", message)
        group.why = why
        self.status(group, scheduled=False, reason=UNSCHEDULABLE, message=message)

    def kept_out(self, info: PodInfo, message: str) -> None:
        """Reports that PreEnqueue keeps the pod out of the queue; `kubectl get pods` shows it like a gate."""
        self._condition(info, GATED, message)

    def waiting(self, group: Group, why: Why, wait_s: float) -> None:
        """Reports that the group holds its reservations and waits in Permit, for at most wait_s in all."""
        self._tell(group, str(why))
        group.why = Reserved(str(group.key), why, wait_s)
        message = str(group.why)
        self._tell_members(group, group.in_state(MemberState.ASSUMED), message)
        if group.reported != message:
            group.reported = message
            self.event(group, "Normal", "GangWaiting", "Permit", message)
        self._tell_step(group)

    def preempting(self, group: Group, why: Why) -> None:
        """Reports that the group's room is reserved until its victims are gone."""
        self._tell(group, str(why))
        group.why = OfGang(str(group.key), why) if group.is_gang else why
        message = str(group.why)
        self._tell_members(group, group.in_state(MemberState.PENDING), message)
        if group.reported != message:
            group.reported = message
            self.event(group, "Normal", "Preempting", "Scheduling", message)

    def bound(self, group: Group) -> None:
        """Reports that the group is whole: one event for a gang, kube-scheduler's own for a lone pod."""
        group.why = ""
        group.reported = ""
        if group.is_gang:
            message = is_bound_where(group)
            self.event(group, "Normal", "GangScheduled", "Binding", message)
            self.status(group, scheduled=True, reason="Scheduled", message=message)
        else:
            info = group.first()
            if info is not None:
                message = (
                    f"Successfully assigned {info.pod.key} to {info.node_name or info.pod.spec.node_name}"
                )
                self.event(group, "Normal", "Scheduled", "Binding", message)

    def progressed(self, group: Group) -> None:
        """Writes the gang's new phase once it is true of the whole gang: a pod runs or has ended."""
        if group.has_started:
            self._tell_step(group)

    def redefined(self, group: Group, *, before: PodGroup | None) -> None:
        """Takes note of a new definition: an object that replaces another does not know yet that its gang has
        started."""
        now = group.definition
        if now is not None and group.has_started and (before is None or before.uid != now.uid):
            self.found_started(group)

    def found_started(self, group: Group) -> None:
        """Writes that the gang has started, unless its object says so: the process that bound it may have
        been killed first, or the object is new."""
        definition = group.definition
        if definition is None or not definition.uid:
            return
        if has_phase(definition):
            self._tell_step(group)
        elif not says_scheduled(definition):
            self.status(group, scheduled=True, reason="Scheduled", message=is_bound_where(group))

    def aborted(self, group: Group, message: str) -> None:
        """Reports that a gang that was bound in part, or reserved, releases what it holds."""
        self._tell(group, message)
        self.event(group, "Warning", "GangAborted", "Scheduling", message)

    def bound_in_part(self, group: Group, why: Why) -> None:
        """Reports that some binds landed and others failed. The unbound members and the gang's object show it
        only once completing the gang has failed too: most often they are bound within the same second."""
        message = f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count}): {why}"
        self.aborted(group, message)
        group.why = why
        if group.is_completing:
            self._tell_members(group, group.in_state(MemberState.PENDING), message)
            self.status(group, scheduled=False, reason=UNSCHEDULABLE, message=message)

    def lost_members(self, group: Group, why: MembersLost | None) -> None:
        """Reports that a gang that has started lacks members; None: it has enough again."""
        is_whole, message = why is None, is_bound_where(group) if why is None else clean(str(why))
        kind, reason = ("Normal", "Scheduled") if is_whole else ("Warning", "LostMembers")
        self.event(group, kind, "GangScheduled" if is_whole else reason, "Scheduling", message)
        self._tell_step(group)  # of Coscheduling's API, which has phases and no conditions
        if group.definition is not None and has_conditions(group.definition):
            self.status(group, scheduled=is_whole, reason=reason, message=message)
        self._tell_condition(group, GANG_WHOLE, is_whole, "Whole" if is_whole else reason, message)

    def bind_unclear(self, group: Group, message: str) -> None:
        """Reports that the API server still gives no clear answer to a group's binds after several tries.

        Its pods get no condition: it is unknown which of them are bound.
        """
        group.why = AnswerUnclear(str(group.key), message)
        message = str(group.why)
        self._tell(group, message)
        if group.reported != message:
            group.reported = message
            self.event(group, "Warning", "AnswerUnclear", "Binding", message)
        self.status(group, scheduled=False, reason="AnswerUnclear", message=message)

    def event(self, group: Group, kind: str, reason: str, action: str, message: str) -> None:
        """Records one event on the group's object, or on its first pod if it has none."""
        definition = group.definition
        if definition is not None and definition.uid:
            regarding = (
                "PodGroup",
                definition.api_version,
                group.key.namespace,
                group.key.name,
                definition.uid,
            )
            self._event(regarding, kind, reason, action, message, group.cause_id)
            return
        info = group.first()
        if info is not None:
            self.pod_event(info.pod, kind, reason, action, message, cause_id=group.cause_id)

    def pod_event(
        self, pod: Pod, kind: str, reason: str, action: str, message: str, *, cause_id: str = ""
    ) -> None:
        meta = pod.metadata
        self._event(
            ("Pod", "v1", meta.namespace, meta.name, meta.uid), kind, reason, action, message, cause_id
        )

    def object_event(
        self, of: PodGroupAdded | PodGroupUpdated, kind: str, reason: str, action: str, message: str
    ) -> None:
        """Records an event on a PodGroup that may have no pods yet."""
        meta = of.item.metadata
        regarding = ("PodGroup", of.api_version, meta.namespace, meta.name, meta.uid)
        self._event(regarding, kind, reason, action, message, "")

    def node_problem(self, node: Node, message: str, *, reason: str = "InvalidDeviceInventory") -> None:
        """Reports that the node's inventory, status or another report of it is unusable."""
        regarding = ("Node", "v1", "", node.metadata.name, node.metadata.uid)
        self._event(regarding, "Warning", reason, "Scheduling", message, "")

    def tell_of_nodes(self) -> None:
        """Reports the problems that the cache found in node and device reports, and in claims."""
        shared, cache = self._shared, self._shared.cache
        if cache.claims.clashes:
            for device, *claims in cache.claims.clashes:
                self._clash(device, claims)
            cache.claims.clashes.clear()
        if not cache.clashes and not cache.bad_reports:
            return
        for uid, node_name, device_id in cache.clashes:
            info = cache.pods.get(uid)
            if info is not None:
                message = f"device {device_id} on {node_name} is held by another live pod too"
                self.pod_event(info.pod, "Warning", "DeviceMismatch", "Scheduling", message)
                shared.count("device_clashes")
        cache.clashes.clear()
        for node, problem in cache.bad_reports:
            self.node_problem(node, problem, reason="InvalidNodeReport")
        cache.bad_reports.clear()

    def _clash(self, device: DeviceId, uids: Sequence[str]) -> None:
        """Reports a device that two resource claims have, on the pods of ours that are bound with it."""
        book, is_told = self._shared.cache.claims, False
        known = [book.claims[uid] for uid in uids if uid in book.claims]
        for claim, other in permutations(known, 2):
            for uid in book.users(claim):
                info = self._shared.cache.pods.get(uid)
                if info is None or info.group is None or not (info.state is BOUND or info.bind in ON_ITS_WAY):
                    continue
                message = str(in_two_claims(device, claim, other))
                self.pod_event(info.pod, "Warning", "DeviceMismatch", "Scheduling", message)
                is_told = True
        self._shared.count("device_clashes", is_told)

    def refused(self, kind: str, namespace: str, name: str, uid: str, message: str) -> None:
        """Reports an object that does not parse."""
        regarding = (kind, "v1", namespace, name, uid)
        self._event(regarding, "Warning", "FailedScheduling", "Scheduling", message, "")

    def refused_pod(self, pod: Pod, message: str) -> None:
        """Reports a pod that we cannot handle: a condition while it is unbound, and an event."""
        meta, message = pod.metadata, clean_for(pod.metadata.namespace, message)
        if not pod.spec.node_name:
            self._shared.emit(
                WritePodCondition(
                    meta.uid, meta.namespace, meta.name, "PodScheduled", "False", SCHEDULER_ERROR, message, ""
                )
            )
        reason = POD_REFUSED if pod.spec.node_name else "FailedScheduling"
        self.pod_event(pod, "Warning", reason, "Scheduling", message)

    def status(self, group: Group, *, scheduled: bool, reason: str, message: str) -> None:
        """Writes the status of the group's object, in its dialect, when it differs from the last one
        written."""
        definition = group.definition
        if definition is None or not definition.uid:
            return
        report = Report(scheduled, reason, clean_for(group.key.namespace, message))
        status = status_of(group, definition, report)
        if status is not None and group.key.dialect == CORE:
            for own in group.reported_conditions.values():
                status = with_condition(status, own)
        if status is not None and not is_same(known_status(group, definition), status):
            self._write(group, definition, status)

    def _tell_step(self, group: Group) -> None:
        """Writes the phase of a gang that has started or is about to, if its object has phases and the phase
        is new."""
        definition = group.definition
        if definition is None or not definition.uid or not has_phase(definition):
            return
        report = Report(group.has_started and not lacks(group), "Scheduled", "", refused=False)
        status = status_of(group, definition, report)
        known = known_status(group, definition)
        if status is not None and is_step(known, status, group.min_count):
            self._write(group, definition, status)

    def devices(self, group: Group, *, healthy: bool, reason: str, message: str) -> None:
        """Writes the state of a running gang's devices as a condition of its object, if its dialect has
        one."""
        self._tell_condition(group, DEVICES_HEALTHY, healthy, reason, message)

    def start_promised(
        self, group: Group, *, promised: bool, reason: str, message: str, is_written: bool = True
    ) -> None:
        """Writes whether and when a start is promised to the gang, as a condition of its object, likewise.

        is_written: at once; else with the object's next write."""
        self._tell_condition(group, START_PROMISED, promised, reason, message, is_written=is_written)

    def condition(self, group: Group, kind: str) -> Mapping[str, Any]:
        """Returns the condition as last written, by an earlier process too; empty if it never was."""
        definition = group.definition
        if (written := group.reported_conditions.get(kind)) is not None or definition is None:
            return written or {}
        return condition_of(definition.status.get("conditions"), kind)

    def _tell_condition(
        self, group: Group, kind: str, is_so: bool, reason: str, message: str, *, is_written: bool = True
    ) -> None:
        definition = group.definition
        if kind not in GROUP_CONDITIONS:
            raise InvariantError(f"{kind} is not among the conditions that are written")
        if definition is None or not definition.uid or group.key.dialect != CORE:
            return
        mine = {
            "type": kind,
            "status": "True" if is_so else "False",
            "reason": reason,
            "message": clean_for(group.key.namespace, message),
            "observedGeneration": definition.generation,
        }
        if group.reported_conditions.get(kind) == mine:
            return
        group.reported_conditions[kind] = mine
        if not is_written:
            return
        self._write(group, definition, with_condition(known_status(group, definition), mine))

    def _write(self, group: Group, definition: PodGroup, status: Mapping[str, Any]) -> None:
        group.status_written = definition.uid, status
        self._shared.emit(
            WritePodGroupStatus(
                uid=definition.uid,
                namespace=group.key.namespace,
                name=group.key.name,
                api_version=definition.api_version,
                status=status,
                cause_id=group.cause_id,
            )
        )

    def _tell(self, group: Group, message: str) -> None:
        if self._shared.observer is not None:
            self._shared.observer.reported(group, clean(message))

    def _tell_members(self, group: Group, infos: Sequence[PodInfo], message: str) -> None:
        """Writes the full text to a few members, a constant sentence to the rest."""
        if len(infos) <= N_SPEAKERS:
            for info in infos:
                self._condition(info, UNSCHEDULABLE, message)
            return
        speakers = {info.uid for info in heapq.nsmallest(N_SPEAKERS, infos, key=_name)}
        pointer = f"gang {group.key} waits as a whole: its first {N_SPEAKERS} pods by name say why"
        for info in infos:
            self._condition(info, UNSCHEDULABLE, message if info.uid in speakers else pointer)

    def _condition(self, info: PodInfo, reason: str, message: str) -> None:
        message = clean_for(info.pod.metadata.namespace, message)
        if info.reported == message:
            return
        info.reported = message
        for condition in info.pod.status.conditions or ():
            if condition.type == "PodScheduled" and (
                condition.status,
                condition.reason,
                condition.message,
            ) == (
                "False",
                reason,
                message,
            ):
                return
        meta = info.pod.metadata
        cause_id = info.group.cause_id if info.group else ""
        self._shared.emit(
            WritePodCondition(
                meta.uid, meta.namespace, meta.name, "PodScheduled", "False", reason, message, cause_id
            )
        )

    def _event(
        self,
        regarding: tuple[str, str, str, str, str],
        kind: str,
        reason: str,
        action: str,
        message: str,
        cause_id: str,
    ) -> None:
        what, api_version, namespace, name, uid = regarding
        message = clean_for(namespace, message)
        self._shared.emit(
            RecordEvent(what, api_version, namespace, name, uid, kind, reason, action, message, cause_id)
        )


def is_bound_where(group: Group) -> str:
    nodes = {info.node_name for info in group.in_state(BOUND)}
    return f"gang {group.key}: {several(group.n_bound, 'pod')} bound to {several(len(nodes), 'node')}"


def _name(info: PodInfo) -> str:
    return info.pod.metadata.name
