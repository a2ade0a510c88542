"""KAI: an annotation, and its PodGroup with subgroups. Sources: KAI-Scheduler
`pkg/apis/scheduling/v2alpha2/podgroup_types.go`, `pkg/scheduler/api/podgroup_info/subgroup_info/factory.go`.

Where there are subgroups they say how many start together, and minMember does not: each subgroup that is
nobody's parent has a minimum, and every pod is in one of them. Its queue is not played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import MAX_MEMBERS, count
from gangsched.model.objects import CustomObject

POD_GROUP_NAME = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
_MAX_SUBGROUPS = 1000
_FIELD = "spec.subGroups"


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec = item.spec or {}
    min_count = count(spec.get("minMember") or 0, "spec.minMember", at_least=0)
    numbers: Numbers = {"min_count": max(min_count, 1)}
    unsupported = [] if not _is_bound_to(spec.get("topologyConstraint")) else [_topology("spec")]
    subgroups = spec.get("subGroups") or ()
    if subgroups:
        roles = _roles(subgroups)
        numbers |= {"roles": roles, "known_roles": tuple(roles), "min_count": sum(roles.values())}
        unsupported += [
            _topology(f"{_FIELD}[{one['name']}]")
            for one in subgroups
            if _is_bound_to(one.get("topologyConstraint"))
        ]
    if spec.get("preemptibility") == "non-preemptible":
        unsupported.append(
            "spec.preemptibility: non-preemptible: a pod of a higher priority may take its room"
        )
    return {**numbers, "unsupported": tuple(unsupported[:3])}


def _roles(subgroups: object) -> dict[str, int]:
    if not isinstance(subgroups, Sequence) or len(subgroups) > _MAX_SUBGROUPS:
        raise ParseError(f"not a list of at most {_MAX_SUBGROUPS} subgroups", field=_FIELD)
    minima: dict[str, int] = {}
    parents: dict[str, str] = {}
    for i, one in enumerate(subgroups):
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str) or not one["name"]:
            raise ParseError("a subgroup needs a name", field=f"{_FIELD}[{i}].name")
        name, parent = one["name"], one.get("parent")
        if name in minima:
            raise ParseError(f"{name[:80]!r} is there twice", field=f"{_FIELD}[{i}].name")
        minima[name] = max(count(one.get("minMember") or 0, f"{_FIELD}[{i}].minMember", at_least=0), 1)
        if isinstance(parent, str) and parent:
            parents[name] = parent
    known = {name.lower(): name for name in minima}
    for name, parent in parents.items():
        if parent.lower() not in known:
            raise ParseError(f"its parent {parent[:80]!r} is not there", field=f"{_FIELD}[{name[:80]}]")
    for name in parents:
        if _is_its_own_ancestor(name, parents, known):
            raise ParseError("it is its own ancestor", field=f"{_FIELD}[{name[:80]}]")
    above = {known[parent.lower()] for parent in parents.values()}
    roles = {name: n for name, n in minima.items() if name not in above}
    if sum(roles.values()) > MAX_MEMBERS:
        raise ParseError(f"more than {MAX_MEMBERS} members together", field=_FIELD)
    return roles


def _is_its_own_ancestor(name: str, parents: Mapping[str, str], known: Mapping[str, str]) -> bool:
    at = name
    for _ in range(len(parents) + 1):
        if at not in parents:
            return False
        at = known[parents[at].lower()]
    return True


def _is_bound_to(constraint: Any) -> bool:
    return isinstance(constraint, Mapping) and bool(constraint.get("requiredTopologyLevel"))


def _topology(field: str) -> str:
    return f"{field}.topologyConstraint.requiredTopologyLevel: KAI's Topology objects are not read"


DIALECT = Dialect(
    name="kai",
    annotations=(POD_GROUP_NAME,),
    role_labels=(SUBGROUP,),
    kinds=(ObjectKind("scheduling.run.ai", ("v2alpha2",)),),
    from_object=_from_object,
)
