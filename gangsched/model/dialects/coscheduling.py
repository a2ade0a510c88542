"""scheduler-plugins' coscheduling: a label, and the PodGroup of its CRD. Source: its KEP-42."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, Numbers, ObjectKind
from gangsched.model.dialects.numbers import count
from gangsched.model.resources import parse_quantities

LABEL = "scheduling.x-k8s.io/pod-group"
OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"


def _from_object(spec: Mapping[str, Any], annotated: Numbers) -> Numbers:
    numbers: Numbers = {"min_count": count(spec.get("minMember", 1), "spec.minMember")}
    if spec.get("scheduleTimeoutSeconds") is not None:
        numbers["schedule_timeout_s"] = float(
            count(spec["scheduleTimeoutSeconds"], "spec.scheduleTimeoutSeconds")
        )
    resources = spec.get("minResources")
    if isinstance(resources, dict):
        try:
            numbers["min_resources"] = parse_quantities(resources)
        except ParseError as error:
            raise ParseError(error.message, field=f"spec.minResources.{error.field}") from None
    return numbers


DIALECT = Dialect(
    name="coscheduling",
    labels=(LABEL, OLD_LABEL),
    kinds=(ObjectKind("scheduling.x-k8s.io", ("v1alpha1",)),),
    from_object=_from_object,
)
