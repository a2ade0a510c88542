"""Roles: how many members of each role a gang needs, and which role a member has; a parser of the checkers'
own.

Reads Volcano's tasks, KAI's subgroups and YuniKorn's task groups, well-formed ones only; None for what cannot
be read. Called by lab.sim.reading.documents and lab.sim.judges.gangs.starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gangsched.lab.sim.reading.texts import json_of, whole_number
from gangsched.model.objects import CustomObject, Pod

Roles = Mapping[str, int]
_TASK_GROUPS = "yunikorn.apache.org/task-groups"
_NAMED_BY = {
    "volcano": "volcano.sh/task-spec",
    "kai": "kai.scheduler/subgroup-name",
    "yunikorn": "yunikorn.apache.org/task-group-name",
}


def role_of(dialect: str, pod: Pod) -> str:
    """Returns the role that the pod states; "": none."""
    key = _NAMED_BY.get(dialect, "")
    return (pod.metadata.annotations or {}).get(key) or (pod.metadata.labels or {}).get(key, "")


def roles_of(dialect: str, pod: Pod, spec: Mapping[str, Any]) -> Roles | None:
    """How many of each role start together, by the gang's object or this member; {}: it has no roles."""
    if dialect == "yunikorn":
        return task_groups((pod.metadata.annotations or {}).get(_TASK_GROUPS, ""))
    if dialect == "kai":
        return subgroups(spec)
    if dialect != "volcano":
        return {}
    tasks = spec.get("minTaskMember") or {}
    minima = _minima(tasks, at_least=0) if isinstance(tasks, dict) else None
    if minima is None:
        return None
    # Volcano: if minMember is less than the tasks' minima together, only minMember counts.
    is_counted = sum(minima.values()) <= (whole_number(spec.get("minMember") or 0, at_least=0) or 0)
    return {task: n for task, n in minima.items() if n} if is_counted else {}


def missing_roles(
    dialect: str, there: Sequence[Pod], item: CustomObject | None
) -> Iterator[tuple[str, int, int]]:
    """Yields (role, how many of it are there, its minimum) for each role that is short."""
    spec = (item.spec or {}) if item is not None else {}
    of_role = Counter(role_of(dialect, pod) for pod in there)
    for role, n in ((roles_of(dialect, there[0], spec) or {}) if there else {}).items():
        if of_role[role] < n:
            yield role, of_role[role], n


def task_groups(text: str) -> Roles | None:
    """Reads YuniKorn's task groups."""
    groups = json_of(text)
    if not isinstance(groups, list) or not groups or not all(isinstance(one, dict) for one in groups):
        return None
    minima = {one.get("name"): one.get("minMember") for one in groups}
    are_named = len(minima) == len(groups) and all(isinstance(name, str) and name for name in minima)
    return _minima({str(name): n for name, n in minima.items()}) if are_named else None


def subgroups(spec: Mapping[str, Any]) -> Roles | None:
    """Reads KAI's subgroups without children: each has a minimum of its own, 0 if it states none."""
    listed = spec.get("subGroups") or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return None
    parents = {str(one.get("parent")).lower() for one in listed if one.get("parent")}
    minima = {str(one.get("name")): one.get("minMember") or 0 for one in listed}
    return _minima({name: n for name, n in minima.items() if name.lower() not in parents}, at_least=0)


def _minima(stated: Mapping[str, object], *, at_least: int = 1) -> Roles | None:
    found = {
        role: n for role, one in stated.items() if (n := whole_number(one, at_least=at_least)) is not None
    }
    return found if len(found) == len(stated) else None
