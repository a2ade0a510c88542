"""YuniKorn: an application ID, and task groups with a minimum each, in annotations.

Sources: yunikorn-k8shim `pkg/common/constants/constants.go`, `pkg/cache/metadata.go`,
`pkg/cache/amprotocol.go`.

No placeholder pods are made: the real pods wait until all task groups can start. An application without task
groups is no gang, there or here. The first pod may state the task groups for all pods.
"""

from __future__ import annotations

import re

import msgspec

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import Dialect, GroupKey, Metadata, Numbers
from gangsched.model.dialects.numbers import MAX_MEMBERS, count
from gangsched.model.text import bounded

_PREFIX = "yunikorn.apache.org/"
APP_ID = _PREFIX + "app-id"
TASK_GROUPS = _PREFIX + "task-groups"
TASK_GROUP_NAME = _PREFIX + "task-group-name"
PARAMETERS = _PREFIX + "schedulingPolicyParameters"
_ID_LABELS = (APP_ID, "applicationId", "spark-app-selector")
_SPARK_ROLE = "spark-role"
_TIMEOUT = re.compile(r"placeholderTimeoutInSeconds=([0-9]{1,9})")
_MAX_TASK_GROUPS = 1000


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: int


_decode = bounded.decoder(list[_TaskGroup])


def application(labels: Metadata, annotations: Metadata) -> str:
    """Returns the application's ID if the pod is in a task group, else "". The key order is YuniKorn's."""
    if not annotations.get(TASK_GROUPS) and not annotations.get(TASK_GROUP_NAME):
        return ""
    ids = (labels.get(APP_ID), annotations.get(APP_ID), *map(labels.get, _ID_LABELS[1:]))
    return next((found for found in ids if found), "")


def _from_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    if not annotations.get(TASK_GROUPS):
        raise ParseError(
            f"missing; no member of application {key.name} lists its task groups", field=TASK_GROUPS
        )
    try:
        groups = _decode(annotations[TASK_GROUPS])
    except (bounded.TooLong, bounded.TooDeep) as error:
        raise ParseError(str(error), field=TASK_GROUPS) from None
    except msgspec.MsgspecError:
        raise ParseError(
            f"{annotations[TASK_GROUPS][:80]!r} is not a JSON list of task groups, as "
            '[{"name": "worker", "minMember": 2}]',
            field=TASK_GROUPS,
        ) from None
    roles = {one.name: count(one.min_member, f"{TASK_GROUPS}[{one.name[:80]}].minMember") for one in groups}
    if not roles or len(roles) < len(groups) or "" in roles or len(roles) > _MAX_TASK_GROUPS:
        raise ParseError(
            f"task groups need unique names, and at most {_MAX_TASK_GROUPS} are allowed", field=TASK_GROUPS
        )
    total = sum(roles.values())
    if total > MAX_MEMBERS:
        raise ParseError(f"more than {MAX_MEMBERS} members together", field=TASK_GROUPS)
    own = annotations.get(TASK_GROUP_NAME, "")
    if labels.get(_SPARK_ROLE) == "driver" and total > roles.get(own, 0):
        raise ParseError(
            "the Spark driver makes its executors when it runs, and no placeholder pods are made for them "
            "here: this gang could never gather; leave the annotation out",
            field=TASK_GROUPS,
        )
    numbers: Numbers = {"min_count": total, "roles": roles, "known_roles": ("", *roles)}
    timeout = _TIMEOUT.search(annotations.get(PARAMETERS, ""))
    if timeout is not None and int(timeout[1]):
        numbers["schedule_timeout_s"] = float(timeout[1])
    return numbers


DIALECT = Dialect(
    name="yunikorn",
    labels=_ID_LABELS,
    annotations=(APP_ID, TASK_GROUP_NAME),
    compose=application,
    role_annotations=(TASK_GROUP_NAME,),
    stated_annotations=(TASK_GROUPS, PARAMETERS),
    one_speaks=True,
    from_pod=_from_pod,
)
