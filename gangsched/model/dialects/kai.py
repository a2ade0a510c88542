"""KAI: an annotation, and its PodGroup with subgroups. Sources: KAI-Scheduler
`pkg/apis/scheduling/v2alpha2/podgroup_types.go`, `pkg/scheduler/api/podgroup_info/subgroup_info/factory.go`.

If there are subgroups, they state how many pods start together, not minMember: each subgroup without children
has a minimum, which may be 0, and every pod is in one of these. All children of a subgroup are needed, as in
KAI if minSubGroup is not given: a smaller minSubGroup is refused. The queue is ignored.

A level of a topologyConstraint is a node label, as listed in its Topology object, so that object need not be
read: all members go to nodes with the same value of that label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import GROUPS_KEY, MAX_MEMBERS, count, priority_class
from gangsched.model.fields import Fields
from gangsched.model.objects import CustomObject
from gangsched.model.stated.topology import Topology, both, topology_level

POD_GROUP_NAME = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
_MAX_SUBGROUPS = 1000
_FIELD = "spec.subGroups"
_CONSTRAINT = "topologyConstraint"


_FIELDS = Fields(
    read=(
        "spec.minMember",
        "spec.minSubGroup",
        "spec.priorityClassName",
        "spec.preemptibility",
        *(f"spec.{_CONSTRAINT}.{level}" for level in ("requiredTopologyLevel", "preferredTopologyLevel")),
        *(f"{_FIELD}[].{name}" for name in ("name", "minMember", "minSubGroup", "parent")),
        f"{_FIELD}[].{_CONSTRAINT}.requiredTopologyLevel",
        f"{_FIELD}[].{_CONSTRAINT}.preferredTopologyLevel",
    ),
    without_effect={
        "spec.queue": "queues are in gangsched's own configuration",
        f"spec.{_CONSTRAINT}.topology": "a level is a node label by itself",
        f"{_FIELD}[].{_CONSTRAINT}.topology": "a level is a node label by itself",
        "spec.markUnschedulable": "every gang that waits says so",
        "spec.schedulingBackoff": "a gang is tried again when something has changed that could let it start",
        "spec.parallelism": "of older versions; KAI itself does not read it",
        "spec.completions": "of older versions; KAI itself does not read it",
        "spec.backoffLimit": "of older versions; KAI itself does not read it",
    },
    wishes={
        "spec.preemptionDelay": "the group may evict others as soon as it cannot start without; give its "
        "pods a PriorityClass with preemptionPolicy Never if it must not",
        "spec.stalenessGracePeriod": "a running group that has lost members is left to its controller",
    },
)


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec = item.spec or {}
    min_count = count(spec.get("minMember") or 0, "spec.minMember", at_least=0)
    numbers: Numbers = {"min_count": max(min_count, 1), **priority_class(spec)}
    unsupported = []
    topology = _levels(spec, "spec")
    subgroups = spec.get("subGroups") or ()
    if subgroups:
        roles, n_children = _roles(subgroups)
        numbers |= {
            "roles": {name: n for name, n in roles.items() if n},
            "known_roles": tuple(roles),
            "min_count": max(sum(roles.values()), 1),
        }
        unsupported += _fewer_children(spec, "spec", n_children[""])
        for one in subgroups:
            field = f"{_FIELD}[{one['name'][:80]}]"
            unsupported += _fewer_children(one, field, n_children[one["name"].lower()])
            asked = _levels(one, field)
            if len(subgroups) == 1:
                topology = both(topology, asked)
            elif asked:
                unsupported.append(
                    f"{field}.{_CONSTRAINT}: subgroups are not each placed in a domain; write a PodGroup with"
                    f" the constraint for each, and {GROUPS_KEY} on all of them so that they start together"
                )
    if spec.get("preemptibility") == "non-preemptible":
        unsupported.append(
            "spec.preemptibility: non-preemptible: a pod of higher priority may still preempt it; remove "
            "this field, and give the pods a priority that no other pods have"
        )
    topology = both(topology, annotated["topology"])
    return {**numbers, "topology": topology, "unsupported": tuple(unsupported[:3])}


def _fewer_children(asking: Mapping[str, Any], field: str, n_children: int) -> list[str]:
    """Says that some of the children are not enough, if `asking` needs no more than some of its subgroups."""
    text = asking.get("minSubGroup")
    if text is None or not n_children:
        return []
    number = count(text, f"{field}.minSubGroup", at_least=0)
    if number >= n_children:
        return []
    return [
        f"{field}.minSubGroup: {number} of {n_children} subgroups: which of them start is not decided here; "
        "remove it, and all of them start together, or write a PodGroup for each that may start by itself"
    ]


def _roles(subgroups: object) -> tuple[dict[str, int], Counter[str]]:
    """Returns the minimum of each subgroup without children, and the number of children of each subgroup, by
    its name in lower case ("": of the whole). Raises: ParseError.
    """
    if not isinstance(subgroups, Sequence) or len(subgroups) > _MAX_SUBGROUPS:
        raise ParseError(f"not a list of at most {_MAX_SUBGROUPS} subgroups", field=_FIELD)
    minima: dict[str, int] = {}
    parents: dict[str, str] = {}
    for i, one in enumerate(subgroups):
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str) or not one["name"]:
            raise ParseError("a subgroup needs a name", field=f"{_FIELD}[{i}].name")
        name, parent = one["name"], one.get("parent")
        if name in minima:
            raise ParseError(f"{name[:80]!r} is given twice", field=f"{_FIELD}[{i}].name")
        minima[name] = count(one.get("minMember") or 0, f"{_FIELD}[{i}].minMember", at_least=0)
        if isinstance(parent, str) and parent:
            parents[name] = parent
    known = {name.lower(): name for name in minima}
    for name, parent in parents.items():
        if parent.lower() not in known:
            raise ParseError(f"its parent {parent[:80]!r} does not exist", field=f"{_FIELD}[{name[:80]}]")
    for name in parents:
        if _is_its_own_ancestor(name, parents, known):
            raise ParseError("it is its own ancestor", field=f"{_FIELD}[{name[:80]}]")
    above = {known[parent.lower()] for parent in parents.values()}
    roles = {name: n for name, n in minima.items() if name not in above}
    if sum(roles.values()) > MAX_MEMBERS:
        raise ParseError(f"more than {MAX_MEMBERS} members together", field=_FIELD)
    children = Counter(parents.get(name, "").lower() for name in minima)
    return roles, children


def _is_its_own_ancestor(name: str, parents: Mapping[str, str], known: Mapping[str, str]) -> bool:
    at = name
    for _ in range(len(parents) + 1):
        if at not in parents:
            return False
        at = known[parents[at].lower()]
    return True


def _levels(asking: Mapping[str, Any], field: str) -> Topology:
    """Returns the topology of a group or subgroup, the required level first because it is wider."""
    constraint = asking.get(_CONSTRAINT)
    if constraint is None:
        return ()
    if not isinstance(constraint, Mapping):
        raise ParseError("is not an object", field=f"{field}.{_CONSTRAINT}")
    found: Topology = ()
    for name, required in (("requiredTopologyLevel", True), ("preferredTopologyLevel", False)):
        if constraint.get(name):
            level = topology_level(constraint[name], f"{field}.{_CONSTRAINT}.{name}", required=required)
            found = both(found, (level,))
    return found


DIALECT = Dialect(
    name="kai",
    annotations=(POD_GROUP_NAME,),
    role_labels=(SUBGROUP,),
    kinds=(ObjectKind("scheduling.run.ai", ("v2alpha2",)),),
    from_object=_from_object,
    fields=_FIELDS,
)
