"""Volcano: an annotation, and its PodGroup. Sources: volcano `apis/scheduling/v1beta1` and
`pkg/scheduler/api/job_info.go` (CheckTaskValid, CheckTaskReady).

Its queue and the phase Inqueue are ignored: a gang gets its turn by gangsched's own order.
"""

from __future__ import annotations

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import GROUPS_KEY, count, min_resources, priority_class
from gangsched.model.fields import Fields
from gangsched.model.objects import CustomObject
from gangsched.model.stated.topology import TOPOLOGY_KEY

GROUP_NAME = "scheduling.k8s.io/group-name"
OWN_GROUP_NAME = "scheduling.volcano.sh/group-name"
TASK_SPEC = "volcano.sh/task-spec"
_MAX_TASKS = 1000


_FIELDS = Fields(
    read=(
        "spec.minMember",
        "spec.minTaskMember.**",
        "spec.minResources.**",
        "spec.priorityClassName",
        "spec.networkTopology.mode",
        "spec.networkTopology.highestTierAllowed",
        "spec.networkTopology.highestTierName",
    ),
    without_effect={"spec.queue": "queues are in gangsched's own configuration"},
    refused={
        "spec.subGroupPolicy": "subgroups are not made from pods' labels; write spec.minTaskMember, or a "
        f"PodGroup for each subgroup, with {GROUPS_KEY} on all of them so that they start together"
    },
)


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec = item.spec or {}
    min_count = count(spec.get("minMember") or 0, "spec.minMember", at_least=0)
    numbers: Numbers = {"min_count": max(min_count, 1), **min_resources(spec), **priority_class(spec)}
    tasks = spec.get("minTaskMember") or {}
    if not isinstance(tasks, dict) or len(tasks) > _MAX_TASKS:
        raise ParseError(
            f"not an object of at most {_MAX_TASKS} tasks and their numbers", field="spec.minTaskMember"
        )
    roles = {t: count(n, f"spec.minTaskMember.{t[:80]}", at_least=0) for t, n in tasks.items()}
    # As in Volcano: if minMember is less than the sum of the tasks' minimums, minMember alone decides.
    if sum(roles.values()) <= min_count:
        numbers["roles"] = {task: n for task, n in roles.items() if n}
    topology = spec.get("networkTopology")
    if isinstance(topology, dict) and topology:
        is_hard = (topology.get("mode") or "hard") != "soft"
        word = "required" if is_hard else "preferred"
        is_said = any(level.required or not is_hard for level in annotated["topology"])
        if not is_said:
            numbers["unsupported" if is_hard else "wishes"] = (
                "spec.networkTopology: HyperNodes are not read; name a node label in the PodGroup's "
                f"annotation {TOPOLOGY_KEY}, as in '{word}: topology.example.com/rack'"
                ": that takes precedence",
            )
    return numbers


DIALECT = Dialect(
    name="volcano",
    annotations=(GROUP_NAME, OWN_GROUP_NAME),
    role_annotations=(TASK_SPEC,),
    role_labels=(TASK_SPEC,),
    kinds=(ObjectKind("scheduling.volcano.sh", ("v1beta1",)),),
    from_object=_from_object,
    fields=_FIELDS,
)
