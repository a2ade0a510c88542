"""scheduler-plugins' coscheduling: a label, and the PodGroup of its CRD. Source: its KEP-42."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.model.dialects.dialect import Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import count, min_resources

LABEL = "scheduling.x-k8s.io/pod-group"
OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"


def _from_object(spec: Mapping[str, Any], annotated: Numbers) -> Numbers:
    numbers: Numbers = {"min_count": count(spec.get("minMember", 1), "spec.minMember")}
    # 0 is what clients write that were told no number: the CRD has neither a default nor a minimum.
    timeout_s = count(spec.get("scheduleTimeoutSeconds") or 0, "spec.scheduleTimeoutSeconds", at_least=0)
    if timeout_s:
        numbers["schedule_timeout_s"] = float(timeout_s)
    return numbers | min_resources(spec)


DIALECT = Dialect(
    name="coscheduling",
    labels=(LABEL, OLD_LABEL),
    kinds=(ObjectKind("scheduling.x-k8s.io", ("v1alpha1",)),),
    from_object=_from_object,
)
