"""The scheduler's rights, each asked about by name; a test keeps them equal to deploy/rbac.yaml.

Lives here: the table, and the account that needs them. Not here: the requests (doctor.reading).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_GROUP_KINDS = (
    "scheduling.k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.run.ai",
)
_READ = ("list", "watch")
_STORAGE = ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments")


class Right(NamedTuple):
    """One verb on one kind (`resource` with its subresource). `name` where only one object is meant."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" {self.name}" * bool(self.name) + f" in {self.namespace}" * bool(self.namespace)
        return f"{self.verb} {kind}{where}"


def needed(namespace: str) -> tuple[Right, ...]:
    """What the scheduler cannot do without; `namespace`: its own."""
    found = [Right(verb, "", kind) for kind in ("namespaces", "nodes") for verb in _READ]
    found += [Right(verb, "", "pods") for verb in ("get", *_READ)]
    for group in _GROUP_KINDS:
        found += [Right(verb, group, "podgroups") for verb in _READ]
        found.append(Right("patch", group, "podgroups/status"))
    found += [Right("patch", group, "podgroups") for group in _GROUP_KINDS[2:4]]
    for group, kind in (
        ("scheduling.k8s.io", "priorityclasses"),
        ("jobset.x-k8s.io", "jobsets"),
        ("leaderworkerset.x-k8s.io", "leaderworkersets"),
        ("ray.io", "rayclusters"),
        ("kueue.x-k8s.io", "workloads"),
        ("kubeflow.org", "mpijobs"),
        *(("storage.k8s.io", kind) for kind in _STORAGE),
        ("policy", "poddisruptionbudgets"),
    ):
        found += [Right(verb, group, kind) for verb in _READ]
    for kind in ("persistentvolumeclaims", "persistentvolumes"):
        found += [Right(verb, "", kind) for verb in ("get", *_READ, "patch")]
    found.append(Right("create", "", "pods/binding"))
    found.append(Right("patch", "", "pods/status"))
    found += [Right(verb, "events.k8s.io", "events") for verb in ("create", "list")]
    leases = ("coordination.k8s.io", "leases", namespace)
    found.append(Right("create", *leases))
    names = ("gangsched", "gangsched-fence", "gangsched-queues")
    found += [Right(v, *leases, name) for name in names for v in ("get", "update")]
    return tuple(found)


OPTIONAL: Mapping[Right, str] = {
    Right("create", "", "pods/eviction"): "allowEviction: false",
    Right("delete", "", "pods"): "allowEviction: false",
    Right("create", "authentication.k8s.io", "tokenreviews"): "--authorization-always-allow-paths",
    Right("create", "authorization.k8s.io", "subjectaccessreviews"): "--authorization-always-allow-paths",
}
"""Rights that may be left out, and the setting that is then required."""
