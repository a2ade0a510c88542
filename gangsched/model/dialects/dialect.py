"""Dialect: the common form of all dialects; GroupKey and PodGroup: what reading one gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gangsched.model.devices.required_ids import NONE_REQUIRED
from gangsched.model.fields import Fields
from gangsched.model.objects import CustomObject
from gangsched.model.stated.topology import Topology

POD = "pod"
"""Used as the dialect of a pod that names no group."""

SINGLE = "single"
ALL = "all"
STAY, MOVE, GIVE_BACK = "stay", "move", "give-back"
"""What becomes of a gang that has not got back in time what it lost: it runs on; all of it is evicted once it
would start again at once; all of it is evicted."""


class GroupKey(NamedTuple):
    """Identity of a group; `uid` only for a lone pod, so that a later pod of that name is a new group."""

    dialect: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupClaim(NamedTuple):
    """A resource claim that members of a PodGroup share (KEP-5729): those whose entry has its name, and names
    the same claim or the same template."""

    name: str
    claim: str | None = None
    template: str | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A group's requirements, independent of the dialect that states them.

    min_count members must start together; Permit waits for total_count (>= min_count), if given.
    min_resources: what all nodes together must have before the group is tried. start_together:
    "namespace/name" of the groups that start only with this one, including itself. disruption_mode: whether
    preemption evicts its pods one by one (SINGLE) or together (ALL); "": together once fewer than min_count
    would stay. recover_within_s: how long it may lack members that it needs, None: the configuration's;
    if_not_recovered: what is done then (STAY, MOVE or GIVE_BACK); "": the last. roles: the least number of
    members of each role that start together. known_roles: if not empty, the only roles that members may have
    ("": none). unsupported: requested features that gangsched lacks, so that it may not start; wishes: those
    that it may start without. preempts: whether it may preempt at all. is_basic: its object states that its
    pods start one by one, so another group name that a pod's user wrote wins. topology: the node labels
    whose value its members must, or should, share. required_ids: the resources whose device IDs must be
    known on its members' nodes (model.devices.required_ids). packing_weight: packing's weight among the
    scores; None: the profile's (model.stated.packing_weight). priority, priority_class: what its object asks
    for; no quota of pods applies to that, so how far it counts is the rule of core.groups.priorities.
    walltime: the annotations of its object that state how long it runs (model.walltime). claims: those that
    members share, and that are reserved for the group.
    """

    key: GroupKey
    min_count: int = 1
    total_count: int = 0
    schedule_timeout_s: float | None = None
    min_resources: Mapping[str, int] = {}
    start_together: tuple[str, ...] = ()
    on_partial_bind: str = ""
    disruption_mode: str = ""
    recover_within_s: float | None = None
    if_not_recovered: str = ""
    preempts: bool = True
    is_basic: bool = False
    topology: Topology = ()
    roles: Mapping[str, int] = {}
    known_roles: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()
    on_device_failure: str = ""
    required_ids: frozenset[str] = NONE_REQUIRED
    packing_weight: int | None = None
    walltime: Mapping[str, str] = {}
    claims: tuple[GroupClaim, ...] = ()
    priority: int | None = None
    priority_class: str = ""
    uid: str = ""
    api_version: str = ""
    generation: int = 0
    status: Mapping[str, Any] = {}


Metadata = Mapping[str, str]
"""Labels or annotations."""
Numbers = dict[str, Any]
"""Fields of a PodGroup."""


class ObjectKind(NamedTuple):
    """A kind whose objects are groups: `podgroups` of an API group, with its versions in the order to try."""

    api_group: str
    versions: tuple[str, ...]


def _no_pod(key: GroupKey, labels: Metadata, annotations: Metadata) -> Numbers:
    raise NotImplementedError(f"{key.dialect}: the numbers are on an object")


def _no_object(item: CustomObject, annotated: Numbers) -> Numbers:
    raise NotImplementedError("the numbers are on the pods")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one system writes groups.

    name: as in GroupKey and messages. labels, annotations: keys by which a pod names its group, in all
    spellings. compose: builds the name (or "") if it is not simply one of these values. role_annotations,
    role_labels: keys by which it names its role; the first one found counts, and name_role, if given, makes
    the role's name of it. stated_labels, stated_annotations: keys by which a pod states the group's numbers.
    All members must agree; with one_speaks, all members that state any. from_pod: reads the numbers from a
    member's labels and annotations. kinds: the objects that state them; the first that exists counts. If
    there are kinds, from_object reads the object (annotated: the values of our own annotations on it) and
    from_pod is never called. Both raise ParseError, naming the key or the field. fields: those that its
    objects may have.
    """

    name: str
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    compose: Callable[[Metadata, Metadata], str] | None = None
    role_annotations: tuple[str, ...] = ()
    role_labels: tuple[str, ...] = ()
    name_role: Callable[[str], str] | None = None
    stated_labels: tuple[str, ...] = ()
    stated_annotations: tuple[str, ...] = ()
    one_speaks: bool = False
    from_pod: Callable[[GroupKey, Metadata, Metadata], Numbers] = _no_pod
    kinds: tuple[ObjectKind, ...] = ()
    from_object: Callable[[CustomObject, Numbers], Numbers] = _no_object
    fields: Fields = Fields()

    def role_of(self, labels: Metadata, annotations: Metadata) -> str:
        """Returns the role that a pod with these names; "" if none."""
        values = (*map(annotations.get, self.role_annotations), *map(labels.get, self.role_labels))
        found = next((role for role in values if role), "")
        return self.name_role(found) if found and self.name_role is not None else found
