"""Gangs made by controllers, as dialects: no pod names them, and their size comes from the controller.

Our own annotations apply to them as to any gang: min-members below the controller's number makes the gang
elastic, so that it starts with min-members and grows.
"""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.model.dialects.dialect import Dialect, GroupKey, Metadata, Numbers
from gangsched.model.dialects.numbers import annotated_numbers, count
from gangsched.model.dialects.ours import DIALECT as OURS
from gangsched.model.dialects.ours import MIN_MEMBERS_KEY
from gangsched.model.owners import job_sets, jobs, kueue, leader_worker_sets, ray

WHOLE = 0
"""As min_count: stands for the controller's number."""


def _from_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    text = annotations.get(MIN_MEMBERS_KEY)
    min_count = WHOLE if text is None else count(text, MIN_MEMBERS_KEY)
    return {**annotated_numbers(annotations, key), "min_count": min_count}


def _dialect(name: str, *stated: str, role: str = "") -> Dialect:
    return Dialect(
        name=name,
        stated_annotations=(*OURS.stated_annotations, *stated),
        role_labels=(role,) if role else (),
        from_pod=_from_pod,
    )


INFERRED_DIALECTS = (
    _dialect(jobs.DIALECT),
    _dialect(job_sets.DIALECT, role=job_sets.ROLE_KEY),
    replace(
        _dialect(leader_worker_sets.DIALECT, leader_worker_sets.SIZE_KEY, role=leader_worker_sets.WORKER_KEY),
        name_role=leader_worker_sets.role_of_index,
    ),
    _dialect(ray.DIALECT, role=ray.GROUP_KEY),
    _dialect(kueue.GROUP_DIALECT, kueue.TOTAL_KEY),
    _dialect(kueue.WORKLOAD_DIALECT, role=kueue.POD_SET_KEY),
)
