"""The core API: `spec.schedulingGroup` and scheduling.k8s.io PodGroup. Sources: KEP-4671, KEP-5832.

The Job controller of 1.37 (gate WorkloadWithJob) gives every Job such a PodGroup, and if the Job states
nothing about scheduling its policy is `basic`, which requires no gang.
"""

from __future__ import annotations

from gangsched.model.dialects.dialect import ALL, SINGLE, Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import count
from gangsched.model.objects import CustomObject
from gangsched.model.topology import both, parse_constraints

WHERE = "spec.schedulingGroup.podGroupName"
"""The field in which a pod names its group; it is outside the metadata."""


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec = item.spec or {}
    policy = spec.get("schedulingPolicy")
    gang = policy.get("gang") if isinstance(policy, dict) else None
    topology = both(parse_constraints(spec), annotated["topology"])
    numbers: Numbers = {
        "min_count": 1,
        "is_basic": not isinstance(gang, dict) and not topology,
        "topology": topology,
    }
    if isinstance(gang, dict):
        numbers["min_count"] = count(gang.get("minCount", 1), "spec.schedulingPolicy.gang.minCount")
    priority = spec.get("priority")
    if isinstance(priority, int):
        numbers["priority"] = priority
    mode = spec.get("disruptionMode")
    # The API's own field overrides the annotation; a PodGroup without either is disrupted pod by pod.
    if isinstance(mode, dict) and (ALL in mode or SINGLE in mode):
        numbers["disruption_mode"] = ALL if ALL in mode else SINGLE
    elif not annotated["disruption_mode"]:
        numbers["disruption_mode"] = SINGLE
    numbers["preempts"] = spec.get("preemptionPolicy") != "Never"
    return numbers


DIALECT = Dialect(
    name="core",
    kinds=(ObjectKind("scheduling.k8s.io", ("v1beta1", "v1alpha2")),),
    from_object=_from_object,
)
