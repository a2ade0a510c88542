"""Builds the status of a group's object, in the terms of the API that the object was read in.

Lives here: one function per API group, from a Group to the fields to write; nothing is written here.
Not here: when it is written (reporter, the only caller). Fields that another program writes are left out: a
patch keeps them. Lists have other programs' entries too, as read; what is there when they are written stays
(kube.effects.writes).

Sources: KEP-4671 (core); scheduler-plugins' apis/scheduling/v1alpha1/types.go and its PodGroup controller,
which Koordinator's is a copy of; Volcano's pkg/scheduler/framework/session.go (jobStatus) and gang plugin;
KAI's pkg/apis/scheduling/v2alpha2/podgroup_types.go and its status updater.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gangsched.core.types.group import Group, GroupState
from gangsched.core.types.lost_members import lacks
from gangsched.model.effects import KAI_CONDITION, KAI_NODE_POOL
from gangsched.model.pod_group import PodGroup

Status = Mapping[str, Any]

UNSCHEDULABLE = "Unschedulable"
_RESERVED = (GroupState.WAITING, GroupState.BINDING)
_MAX_TRANSITIONS = 10**9


class Report(NamedTuple):
    """What to report: whether the gang is whole, and if not, why. refused: it was rejected for that
    reason."""

    scheduled: bool
    reason: str
    message: str
    refused: bool = True


class _Counts(NamedTuple):
    """Members by the phase that kubelets report."""

    running: int
    succeeded: int
    failed: int
    pending: int


def status_of(group: Group, definition: PodGroup, report: Report) -> Status | None:
    """Returns the fields to write; None where the group's API has no field for this."""
    say = _SAY.get(definition.api_version.partition("/")[0])
    return None if say is None else say(group, definition, report)


def has_phase(definition: PodGroup) -> bool:
    """Whether its API has phases, and not only whether the gang was scheduled."""
    return definition.api_version.partition("/")[0] in _WITH_PHASE


def has_conditions(definition: PodGroup) -> bool:
    """Whether its API says in a condition why a gang is not whole."""
    return definition.api_version.partition("/")[0] not in _PHASES_ALONE


def known_status(group: Group, definition: PodGroup) -> Status:
    """Returns the object's status as last written, or as read if nothing was written to this object.

    The object as read may be older than the last write, and one of its name may have been written to before.
    """
    if group.status_written is not None and group.status_written[0] == definition.uid:
        return group.status_written[1]
    return definition.status


def says_scheduled(definition: PodGroup) -> bool:
    """Whether the object, of an API without phases, already has the condition that the gang was scheduled."""
    return condition_of(definition.status.get("conditions"), _core_kind(definition)).get("status") == "True"


def is_step(old: Status, new: Status, min_count: int) -> bool:
    """Whether `new` differs by more than counts: another phase, all members have run, or none runs now.

    A write for each pod that starts would cost as much as binding it.
    """
    return _step(old, min_count) != _step(new, min_count)


def is_same(known: Status, new: Status) -> bool:
    """Whether `known` contains all of `new`, apart from the times of conditions."""
    return all(_timeless(known.get(field)) == _timeless(value) for field, value in new.items())


def with_condition(status: Status, mine: Status) -> dict[str, Any]:
    """Returns the status' conditions with this one replaced; an unchanged condition keeps its time."""
    return {"conditions": _merged(status.get("conditions"), mine)}


def _core(group: Group, definition: PodGroup, report: Report) -> Status | None:
    """Returns a condition, its time to be stamped at the edge; Initially… from 1.37."""
    if not (report.scheduled or report.refused):
        return None  # this API has no condition for a gang that is being bound
    kind = _core_kind(definition)
    mine = {
        "type": kind,
        "status": "True" if report.scheduled else "False",
        "reason": report.reason,
        "message": report.message,
        "observedGeneration": definition.generation,
    }
    before = condition_of(known_status(group, definition).get("conditions"), kind)
    if before.get("status") == "True" and not report.scheduled:
        return None  # "initially": once true it stays true
    if all(before.get(key) == value for key, value in mine.items()):
        return None
    return with_condition(definition.status, mine)


def _core_kind(definition: PodGroup) -> str:
    is_old = definition.api_version.endswith("v1alpha2")
    return "PodGroupScheduled" if is_old else "PodGroupInitiallyScheduled"


def _coscheduling(group: Group, definition: PodGroup, report: Report) -> Status:
    counts, least = _count(group), group.min_count
    if counts.succeeded >= least:
        phase = "Finished"
    elif group.has_started:
        if counts.failed and not counts.running:
            phase = "Failed"
        else:
            n_started = counts.running + counts.succeeded + counts.failed
            phase = "Running" if n_started >= least else "Unknown" if lacks(group) else "Scheduled"
    elif group.n_holding:
        phase = "Unknown" if counts.running and report.refused else "Scheduling"
    elif group.state in _RESERVED:
        phase = "Scheduling" if group.state is GroupState.BINDING else "PreScheduling"
    else:
        phase = "Pending"
    return {"phase": phase, "scheduled": group.n_bound, **_ended_and_running(counts)}


def _volcano(group: Group, definition: PodGroup, report: Report) -> Status:
    counts, known = _count(group), definition.status
    if group.has_started and counts.running and lacks(group):
        phase = "Unknown"
    elif group.has_started:
        # In this API Running means that the pods have their nodes, and Completed that no pod is left to run.
        phase = "Running" if counts.running or counts.pending else "Completed"
    elif group.n_bound and counts.running and report.refused:
        phase = "Unknown"
    elif group.state in _RESERVED or known.get("phase") == "Inqueue":
        phase = "Inqueue"  # their controllers create pods once it is Inqueue, and it never goes back
    else:
        phase = "Pending"
    status: dict[str, Any] = {"phase": phase, **_ended_and_running(counts)}
    if report.scheduled:
        mine = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}
        others = [c for c in _list(known.get("conditions")) if c.get("type") != "Unschedulable"]
        status["conditions"] = _merged(others, mine)
    elif report.refused:
        reason = report.reason
        if reason == UNSCHEDULABLE and not group.problem:
            reason = "NotEnoughResources" if group.is_complete else "NotEnoughTasks"
        mine = {"type": "Unschedulable", "status": "True", "reason": reason, "message": report.message}
        status["conditions"] = _merged(known.get("conditions"), mine)
    return status


def _kai(group: Group, definition: PodGroup, report: Report) -> Status:
    """Counts, and the condition of a group without room; KAI's API has no phases."""
    counts, known = _count(group), _list(definition.status.get("schedulingConditions"))
    status: dict[str, Any] = {**_ended_and_running(counts), "pending": counts.pending}
    ours = {"type": KAI_CONDITION, "nodePool": KAI_NODE_POOL}
    others = [c for c in known if any(c.get(key) != value for key, value in ours.items())]
    if report.scheduled:
        status["schedulingConditions"] = others
    elif report.refused:
        before = next((c for c in known if c not in others), {})
        mine = {
            **ours,
            "status": "True",
            "reason": report.reason,
            "message": report.message,
            "reasons": [{"reason": report.reason, "message": report.message}],
        }
        if any(before.get(key) != value for key, value in mine.items()):
            mine["transitionID"] = str(1 + max((_transition(c) for c in known), default=0))
        else:
            mine = dict(before)
        # Its readers take the last of the list for the latest.
        status["schedulingConditions"] = [*others, mine]
    return status


_SAY: Mapping[str, Callable[[Group, PodGroup, Report], Status | None]] = {
    "scheduling.k8s.io": _core,
    "scheduling.x-k8s.io": _coscheduling,
    "scheduling.sigs.k8s.io": _coscheduling,
    "scheduling.volcano.sh": _volcano,
    "scheduling.run.ai": _kai,
}
_PHASES_ALONE = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
_WITH_PHASE = frozenset(_SAY) - {"scheduling.k8s.io"}


def _count(group: Group) -> _Counts:
    running = succeeded = failed = 0
    for info in group.members.values():
        phase = info.pod.status.phase
        if phase == "Running":
            running += 1
        elif phase == "Succeeded":
            succeeded += 1
        elif phase == "Failed":
            failed += 1
    return _Counts(running, succeeded, failed, len(group.members) - running - succeeded - failed)


def _ended_and_running(counts: _Counts) -> dict[str, int]:
    return {"running": counts.running, "succeeded": counts.succeeded, "failed": counts.failed}


def _list(value: object) -> list[dict[str, Any]]:
    # Any client with the right to write statuses may have written it.
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def condition_of(conditions: object, kind: str) -> dict[str, Any]:
    """Returns the condition of this type; empty if the list has none."""
    return next((one for one in _list(conditions) if one.get("type") == kind), {})


def _merged(conditions: object, mine: Status) -> list[dict[str, Any]]:
    before, own = condition_of(conditions, mine["type"]), dict(mine)
    if before.get("status") == mine["status"] and before.get("lastTransitionTime"):
        own["lastTransitionTime"] = before["lastTransitionTime"]
    return [*(c for c in _list(conditions) if c.get("type") != mine["type"]), own]


def _timeless(value: object) -> object:
    if not isinstance(value, list):
        return value
    return [{k: v for k, v in one.items() if k != "lastTransitionTime"} for one in _list(value)]


def _step(status: Status, min_count: int) -> tuple[object, bool, bool]:
    running = _number(status.get("running"))
    n_started = running + _number(status.get("succeeded")) + _number(status.get("failed"))
    return status.get("phase"), n_started >= min_count, running > 0 and n_started >= min_count


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _transition(condition: Mapping[str, Any]) -> int:
    text = condition.get("transitionID")
    if not isinstance(text, str) or not text.isascii() or not text.isdecimal() or len(text) > 9:
        return 0
    return int(text)
