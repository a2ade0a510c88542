"""The fence's list: pods whose binds may be in flight, and pods that may be bound next.

Lives here: its values, and the list as text in an annotation. Not here: which pods are listed when
(kube.election.fence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gangsched.model.objects import Pod


class ListedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with a bind that may be in flight."""

    uid: str
    namespace: str
    name: str
    gang: str

    @property
    def n_bytes(self) -> int:
        """Upper bound of its size in the list."""
        return len(self.uid) + len(self.name.encode()) + len(self.gang.encode()) + 20


Listed = Mapping[str, ListedPod]
"""By UID."""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A pod in the queue. version: the resourceVersion last seen, which its bind will carry."""

    pod: ListedPod
    version: str


Line = Callable[[], Iterable[Sequence[Expected]]]
"""Returns the pods in the scheduling queue: a sequence for each gang, in the order in which gangs are tried.
The sequence is empty for a gang that must not be listed before it is placed.
"""


def expected_of(pod: Pod, gang: str) -> Expected:
    """Names the pod for the list, with the version known now."""
    meta = pod.metadata
    return Expected(ListedPod(meta.uid, meta.namespace, meta.name, gang), meta.resource_version)


_decode_list = msgspec.json.Decoder(dict[str, dict[str, str]]).decode


def list_text(pods: Iterable[ListedPod]) -> str:
    """`{"default/train":{"6f1c…":"default/train-0"}}`: gang, UID, pod."""
    gangs: dict[str, dict[str, str]] = {}
    for pod in pods:
        gangs.setdefault(pod.gang, {})[pod.uid] = f"{pod.namespace}/{pod.name}"
    return msgspec.json.encode(gangs).decode()


def read_list(text: str) -> Listed | None:
    """None: it cannot be read."""
    try:
        gangs = _decode_list(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    listed = {}
    for gang, pods in gangs.items():
        for uid, place in pods.items():
            namespace, slash, name = place.partition("/")
            if not (uid and namespace and slash and name):
                return None
            listed[uid] = ListedPod(uid, namespace, name, gang)
    return listed
