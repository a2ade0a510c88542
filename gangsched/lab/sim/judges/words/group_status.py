"""What the objects of gangs say when nothing moves any more, against what their pods are.

Phases and conditions are those that each API documents (sources: core.state.group_status). Not here: counts,
which may lag behind by a few pods, and the words of pods (lab.sim.judges.at_rest). Called by
lab.sim.judges.step_judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, GroupState
from gangsched.lab.sim.reading.documents import Gang, gang_of, needed_by
from gangsched.lab.sim.reading.received import Received
from gangsched.model.objects import Pod

_UNSCHEDULABLE_IN_KAI = "UnschedulableOnNodePool"
_Status = Mapping[str, Any]


def untrue_words(scheduler: Scheduler, received: Received) -> Iterator[str]:
    """group-status: the object of a gang that runs does not call it pending, nor that of a gang that waits
    scheduled.

    Not of a gang that has started and is short of members now, whose numbers are refused, or which is about
    to get a message about what it lacks.
    """
    members: dict[Gang, list[Pod]] = {}
    for pod in received.pods.values():
        gang = gang_of(pod) if pod.spec.scheduler_name in scheduler.shared.profiles else None
        if gang is not None and gang in received.groups:
            members.setdefault(gang, []).append(pod)
    unjudged = {
        (group.key.dialect, str(group.key))
        for group in scheduler.shared.groups.values()
        if group.problem or (group.state is GroupState.GATHERING and group.deadline_s < NEVER_S)
    }
    for gang, pods in members.items():
        item = received.groups[gang]
        needed = needed_by(gang, pods, item)
        contradicts = _READERS.get(gang.dialect)
        if needed is None or contradicts is None or (gang.dialect, str(gang)) in unjudged:
            continue
        there = [pod for pod in pods if pod.spec.node_name and pod.status.phase != "Failed"]
        if len(there) >= needed:
            if len(there) < len(pods):
                continue  # the message is about those that wait beside it
            runs = True
        elif not any(pod.spec.node_name for pod in pods) and len(pods) >= needed:
            runs = False
        else:
            continue
        if contradicts(item.status or {}, runs):
            is_so = "runs" if runs else "waits"
            yield f"group-status: {gang} {is_so}, and its object says {item.status}"


def _core(status: _Status, runs: bool) -> bool:
    """ "Initially" scheduled stays true, once it is."""
    found = [one.get("status") for one in _dicts(status.get("conditions")) if _is_of_start(one)]
    return runs and found != ["True"]


def _is_of_start(condition: Mapping[str, Any]) -> bool:
    return str(condition.get("type")).startswith("PodGroup") and str(condition["type"]).endswith("Scheduled")


def _coscheduling(status: _Status, runs: bool) -> bool:
    of_running = ("Scheduled", "Running", "Finished", "Failed")
    return (status.get("phase") in of_running) is not runs


def _volcano(status: _Status, runs: bool) -> bool:
    return (status.get("phase") in ("Running", "Completed")) is not runs


def _kai(status: _Status, runs: bool) -> bool:
    found = [
        one for one in _dicts(status.get("schedulingConditions")) if one["type"] == _UNSCHEDULABLE_IN_KAI
    ]
    return bool(found) is runs


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


_READERS: Mapping[str, Callable[[_Status, bool], bool]] = {
    "core": _core,
    "coscheduling": _coscheduling,
    "volcano": _volcano,
    "kai": _kai,
}
