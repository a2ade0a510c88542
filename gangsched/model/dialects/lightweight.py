"""scheduler-plugins' lightweight coscheduling: two labels on the pods. Source: its KEP-2."""

from __future__ import annotations

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, GroupKey, Metadata, Numbers
from gangsched.model.dialects.numbers import count

NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN = "pod-group.scheduling.sigs.k8s.io/min-available"


def _from_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    if MIN not in labels:
        raise ParseError(
            f"missing; the label {NAME} alone does not say how many pods start together", field=MIN
        )
    return {"min_count": count(labels[MIN], MIN)}


DIALECT = Dialect(name="lightweight", labels=(NAME,), stated_labels=(MIN,), from_pod=_from_pod)
