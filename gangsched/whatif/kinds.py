"""The kinds of objects in a file besides those that make pods, and why each is left out of an answer.

`kubectl apply` takes a job's file with all that belongs to it. Called by manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangsched.errors import ConfigError
from gangsched.model.text.printable import one_line
from gangsched.reading.strict import nearest
from gangsched.whatif.admission import QUOTA, RANGE
from gangsched.whatif.makers import trainer

Key = tuple[str, str]
"""API group, and kind."""
_MAX_NAMED = 10

# All kinds of these groups that a manifest may hold, so that another one is a mistake.
_OF_GROUP: Mapping[str, Sequence[str]] = {
    "": (
        *(
            "ConfigMap",
            "Endpoints",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "Service",
            "Secret",
        ),
        *("PersistentVolumeClaim", "PodTemplate", "ResourceQuota", "ServiceAccount", "Event", "Binding"),
    ),
    "apps": ("ControllerRevision", "DaemonSet"),
    "batch": (),
}
# Groups of Kubernetes in which no kind makes pods.
_WITHOUT_PODS = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("admissionregistration", "apiextensions", "apiregistration", "certificates", "coordination"),
        *("discovery", "events", "flowcontrol.apiserver", "networking", "node", "rbac.authorization"),
        *("scheduling", "storage", "storagemigration", "gateway.networking"),
    )
) | {"policy", "autoscaling", "monitoring.coreos.com", "cert-manager.io"}
_NO_PODS = "they make no pods"
_QUEUE = "queues of another system; gangsched's own are in its configuration (docs/queues.md)"
_CLAIMS = "claims of devices are looked at where a profile allocates them and the cluster has a DeviceClass"
_REASONS: Mapping[Key, str] = {
    ("apps", "DaemonSet"): "they make a pod for each node, and are not looked at",
    ("resource.k8s.io", "ResourceClaim"): _CLAIMS,
    ("resource.k8s.io", "DeviceClass"): _CLAIMS,
    ("resource.k8s.io", "ResourceSlice"): _CLAIMS,
    ("scheduling.k8s.io", "Workload"): (
        "of these objects only the PodGroups that a controller makes by them are read: give them too"
    ),
    ("scheduling.volcano.sh", "Queue"): _QUEUE,
    ("scheduling.run.ai", "Queue"): _QUEUE,
    ("kueue.x-k8s.io", "ClusterQueue"): _QUEUE,
    ("kueue.x-k8s.io", "LocalQueue"): _QUEUE,
    ("kueue.x-k8s.io", "Cohort"): _QUEUE,
    ("kueue.x-k8s.io", "ResourceFlavor"): _QUEUE,
    ("kueue.x-k8s.io", "Topology"): "gangsched reads topologies from labels of nodes (docs/gangs.md)",
    ("kai.scheduler", "Topology"): "gangsched reads topologies from labels of nodes (docs/gangs.md)",
}
_UNKNOWN = "whether they make pods is not known here: if they do, give the pods"
_USED = frozenset(
    (
        *((trainer.GROUP, trainer.IN_CLUSTER), (trainer.GROUP, trainer.IN_NAMESPACE)),
        *(("", RANGE), ("", QUOTA)),
        ("resource.k8s.io", "ResourceClaimTemplate"),
    )
)
_CLUSTER_WIDE = frozenset(
    (
        *(("", kind) for kind in ("Namespace", "Node", "PersistentVolume")),
        *(("storage.k8s.io", kind) for kind in ("StorageClass", "CSIDriver", "CSINode", "VolumeAttachment")),
        ("scheduling.k8s.io", "PriorityClass"),
        (trainer.GROUP, trainer.IN_CLUSTER),
    )
)


def key_of(api_version: str, kind: str) -> Key:
    """Returns the group and kind of an object."""
    return api_version.rpartition("/")[0], kind


def is_cluster_wide(key: Key) -> bool:
    """Whether objects of this kind, if they are read at all, are in no namespace."""
    return key in _CLUSTER_WIDE


def check_version(key: Key, api_version: str) -> None:
    """Raises: ConfigError, for a version that no API server serves any more."""
    if key[0] in _OF_GROUP and not api_version.endswith("v1"):
        raise ConfigError(
            f"{api_version[:80]!r} is not served; {key[1][:80]} is of {key[0]}/v1".replace(" /v1", " v1"),
            path="apiVersion",
        )


class LeftOut:
    """What is left out of an answer, by reason."""

    def __init__(self, readable: Iterable[Key]) -> None:
        """`readable`: the kinds that are read, for the error about a kind that is nearly one of them."""
        self._readable = frozenset(readable)
        self._by_reason: dict[str, list[str]] = {}

    def add(self, key: Key, name: str) -> None:
        """Leaves out an object. Raises: ConfigError, if one that is read may be meant."""
        group, kind = key
        if key in _USED:
            return
        reason = _REASONS.get(key, "")
        if not reason:
            if group in _WITHOUT_PODS or kind in _OF_GROUP.get(group, ()):
                reason = _NO_PODS
            else:
                self._check(key)
                reason = _UNKNOWN
        self.note(reason, kind, name)

    def note(self, reason: str, kind: str, name: str) -> None:
        """Adds an object to those that are left out for this reason."""
        self._by_reason.setdefault(reason, []).append(f"{one_line(kind[:80])} {one_line(name[:80])}")

    def lines(self) -> list[str]:
        """Returns a line for each reason."""
        found = []
        for reason, names in self._by_reason.items():
            more = f", and {n - _MAX_NAMED} more" if (n := len(names)) > _MAX_NAMED else ""
            found.append(f"{', '.join(names[:_MAX_NAMED])}{more}: {reason}")
        return found

    def _check(self, key: Key) -> None:
        group, kind = key
        of_kind = sorted(one for one, known in self._readable if known == kind)
        is_of_ours = group in _OF_GROUP or group in ("extensions",)
        if of_kind and (is_of_ours or nearest(group, of_kind)):
            groups = " or ".join(one or "v1, without a group" for one in of_kind)
            raise ConfigError(f"there is no {kind} in {group[:80]!r}; it is in {groups}", path="apiVersion")
        known = sorted({known for one, known in self._readable if one == group or is_of_ours})
        if (hint := nearest(kind, known)) or is_of_ours:
            some = sorted({known for _, known in self._readable})
            raise ConfigError(
                f"{kind[:80]!r} cannot be made into pods here{hint}: {', '.join(some)} can; of another kind,"
                " give the pods that it creates",
                path="kind",
            )
