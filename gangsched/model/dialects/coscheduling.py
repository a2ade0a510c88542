"""scheduler-plugins' coscheduling: a label, and the PodGroup of its CRD. Source: its KEP-42.

Koordinator has the older label and the older API group, scheduling.sigs.k8s.io, with annotations of its own
on the PodGroup. Source: koordinator `pkg/scheduler/plugins/coscheduling/core/gang.go`, tryInitByPodGroup.
"""

from __future__ import annotations

from gangsched.model.dialects import koordinator
from gangsched.model.dialects.dialect import Dialect, GroupKey, Numbers, ObjectKind
from gangsched.model.dialects.numbers import count, min_resources
from gangsched.model.fields import Fields
from gangsched.model.objects import CustomObject

NAME = "coscheduling"
LABEL = "scheduling.x-k8s.io/pod-group"
OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"


_FIELDS = Fields(read=("spec.minMember", "spec.minResources.**", "spec.scheduleTimeoutSeconds"))


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec, meta = item.spec or {}, item.metadata
    numbers: Numbers = {"min_count": count(spec.get("minMember", 1), "spec.minMember")}
    # Clients that set no number write 0: the CRD has neither a default nor a minimum.
    timeout_s = count(spec.get("scheduleTimeoutSeconds") or 0, "spec.scheduleTimeoutSeconds", at_least=0)
    if timeout_s:
        numbers["schedule_timeout_s"] = float(timeout_s)
    key = GroupKey(NAME, meta.namespace, meta.name)
    return numbers | min_resources(spec) | koordinator.habits(key, meta.annotations or {})


DIALECT = Dialect(
    name=NAME,
    labels=(LABEL, OLD_LABEL),
    kinds=(
        ObjectKind("scheduling.x-k8s.io", ("v1alpha1",)),
        ObjectKind("scheduling.sigs.k8s.io", ("v1alpha1",)),
    ),
    from_object=_from_object,
    fields=_FIELDS,
)
