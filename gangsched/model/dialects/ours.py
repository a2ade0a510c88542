"""Our own dialect: a label and annotations on the pods, no CRD."""

from __future__ import annotations

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, GroupKey, Metadata, Numbers
from gangsched.model.dialects.numbers import (
    OF_THE_GANG,
    TOTAL_MEMBERS_KEY,
    annotated_numbers,
    count,
)

LABEL = "gangsched.io/pod-group"
MIN_MEMBERS_KEY = "gangsched.io/min-members"


def _from_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    numbers = annotated_numbers(annotations, key)
    if MIN_MEMBERS_KEY not in annotations:
        raise ParseError(
            f"missing; the label {LABEL} alone does not say how many pods start together: write how many, "
            "as a string",
            field=MIN_MEMBERS_KEY,
        )
    min_count = count(annotations[MIN_MEMBERS_KEY], MIN_MEMBERS_KEY)
    if 0 < numbers["total_count"] < min_count:
        raise ParseError(
            f"{numbers['total_count']} is less than {MIN_MEMBERS_KEY}, {min_count}", field=TOTAL_MEMBERS_KEY
        )
    return {**numbers, "min_count": min_count}


DIALECT = Dialect(
    name="gangsched",
    labels=(LABEL,),
    stated_annotations=(MIN_MEMBERS_KEY, *OF_THE_GANG),
    from_pod=_from_pod,
)
