"""The fence's list: objects with writes that may be in flight, and those that may be written next.

They are pods, for their binds, and ResourceClaims, for patches. Lives here: the list's values, and the list
as text in an annotation. Not here: what is listed when (kube.election.fence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import ResourceClaim

PODS, CLAIMS = "pods", "resourceclaims"
"""Kinds of listed objects, by the names of their resources."""


class ListedObject(msgspec.Struct, frozen=True, gc=False):
    """A pod or a claim with a write that may be in flight."""

    uid: str
    namespace: str
    name: str
    gang: str
    kind: str = PODS

    @property
    def n_bytes(self) -> int:
        """Upper bound of its size in the list."""
        kind = 0 if self.kind == PODS else len(self.kind) + 1
        names = len(self.namespace) + len(self.name.encode()) + len(self.gang.encode())
        return kind + len(self.uid) + names + 14


Listed = Mapping[str, ListedObject]
"""By UID."""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A pod in the queue, or a claim of one. version: the resourceVersion last seen, which its bind or patch
    will carry."""

    object: ListedObject
    version: str


Line = Callable[[], Iterable[Sequence[Expected]]]
"""Returns the pods in the scheduling queue, and their claims: a sequence for each gang, in the order in which
gangs are tried. The sequence is empty for a gang that must not be listed before it is placed.
"""


def expected_of(pod: Pod, gang: str) -> Expected:
    """Names the pod for the list, with the version known now."""
    meta = pod.metadata
    return Expected(ListedObject(meta.uid, meta.namespace, meta.name, gang), meta.resource_version)


def expected_claim(claim: ResourceClaim, gang: str) -> Expected:
    """Names the claim for the list, with the version known now."""
    meta = claim.metadata
    return Expected(ListedObject(meta.uid, meta.namespace, meta.name, gang, CLAIMS), meta.resource_version)


_decode_list = msgspec.json.Decoder(dict[str, dict[str, str]]).decode


def list_text(objects: Iterable[ListedObject]) -> str:
    """`{"default/train":{"6f1c…":"default/train-0","resourceclaims/a2e0…":"default/gpu-0"}}`: gang, UID, pod;
    before a claim's UID its kind.

    A version that lists pods only takes a claim for a pod of an impossible UID: it asks, and finds it gone.
    """
    gangs: dict[str, dict[str, str]] = {}
    for one in objects:
        uid = one.uid if one.kind == PODS else f"{one.kind}/{one.uid}"
        gangs.setdefault(one.gang, {})[uid] = f"{one.namespace}/{one.name}"
    return msgspec.json.encode(gangs).decode()


def read_list(text: str) -> Listed | None:
    """None: it cannot be read."""
    try:
        gangs = _decode_list(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    listed = {}
    for gang, objects in gangs.items():
        for key, place in objects.items():
            namespace, slash, name = place.partition("/")
            kind, has_kind, uid = key.rpartition("/")
            if not (uid and namespace and slash and name):
                return None
            if not has_kind:
                listed[uid] = ListedObject(uid, namespace, name, gang)
            elif kind == CLAIMS:
                listed[uid] = ListedObject(uid, namespace, name, gang, CLAIMS)
            else:  # of a newer version: kept in the list, and bumped in vain
                listed[key] = ListedObject(key, namespace, name, gang)
    return listed
