"""The scheduler's rights, each asked about by name; a test keeps them equal to deploy/rbac.yaml.

Lives here: the table, and what a configuration adds to it. Not here: the requests (doctor.reading).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gangsched.config import LeaderElectionSettings, SchedulerConfig, Settings
from gangsched.model.resource_claims.objects import CLAIMS, SLICES, TAINT_RULES
from gangsched.plugins.neighbours.selecting_objects import WATCHES

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


def needed(namespace: str, lease: str = "gangsched") -> tuple[Right, ...]:
    """Returns what the scheduler cannot do without; `lease`: the name of its Lease, which is in
    `namespace`."""
    found = [Right(verb, "", kind) for kind in ("namespaces", "nodes") for verb in _READ]
    found += [Right(verb, "", "pods") for verb in ("get", *_READ)]
    for group in _GROUP_KINDS:
        found += [Right(verb, group, "podgroups") for verb in _READ]
        found.append(Right("patch", group, "podgroups/status"))
    found += [Right("patch", group, "podgroups") for group in _GROUP_KINDS[2:4]]
    for group, kind in (
        ("scheduling.k8s.io", "priorityclasses"),
        ("resource.k8s.io", "deviceclasses"),
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
    names = (lease, f"{lease}-fence", f"{lease}-queues", f"{lease}-alone")
    found += [Right(v, *leases, name) for name in names for v in ("get", "update")]
    return tuple(found)


def asked(
    namespace: str, config: SchedulerConfig, watches: Iterable[str] = (), *, asks_metrics_server: bool = False
) -> dict[Right, str]:
    """Every right without which this configuration does not work, and what grants it.

    `namespace`: that of the scheduler's account. watches: the kinds that its plugins follow, as
    `replicasets.apps`.
    """
    election = config.leader_election
    leases = _granted(namespace, election)
    rights = {
        right: leases if right.resource == "leases" else ROLE
        for right in needed(election.resource_namespace, election.resource_name)
    }
    if config.settings.devices.repair:
        rights[Right("patch", "", "pods")] = "kubectl apply -k deploy/device-plugin-hand-off/"
    if any("Job" in kinds for kinds in config.settings.infer_gangs.values()):
        rights |= {Right(verb, "batch", "jobs"): "kubectl apply -k deploy/infer-jobs/" for verb in _READ}
    if asks_metrics_server:
        rights[Right("list", "metrics.k8s.io", "nodes")] = "kubectl apply -k deploy/metrics-server/"
    for kind in watches:
        resource, _, group = kind.partition(".")
        cure = _OVERLAYS.get(kind) or f"{_ADD}, then: {ROLE}"
        if kind == CLAIMS:
            rights |= dict.fromkeys(_CLAIM_WRITES, cure)
        for verb in _READ:
            rights.setdefault(Right(verb, group, resource), cure)
    return rights


def optional(settings: Settings) -> dict[Right, str]:
    """The rights that this configuration may use, and the setting that is required without them."""
    kept = OPTIONAL.items()
    return {right: instead for right, instead in kept if settings.allow_eviction or instead != _NONE}


def _granted(namespace: str, election: LeaderElectionSettings) -> str:
    if (election.resource_namespace, election.resource_name) == (namespace, "gangsched"):
        return ROLE
    where = f"{election.resource_namespace}/{election.resource_name}"
    return f"In deploy/rbac.yaml have the Role gangsched-lease grant {where}, then: {ROLE}"


ROLE = "kubectl apply -f deploy/rbac.yaml"
_ADD = "In deploy/rbac.yaml have the ClusterRole gangsched grant it"
_OVERLAYS: Mapping[str, str] = {
    **dict.fromkeys(WATCHES, "kubectl apply -k deploy/default-spreading/"),
    **dict.fromkeys((CLAIMS, SLICES, TAINT_RULES), "kubectl apply -f deploy/resource-claims.yaml"),
}
"""What grants the right to follow a kind that plugins follow."""
_CLAIM_WRITES = (
    *(Right(verb, "resource.k8s.io", "resourceclaims") for verb in ("create", "delete", "get")),
    *(Right("patch", "resource.k8s.io", f"resourceclaims{part}") for part in ("", "/status", "/binding")),
)
_NONE = "allowEviction: false"
OPTIONAL: Mapping[Right, str] = {
    Right("create", "", "pods/eviction"): _NONE,
    Right("delete", "", "pods"): _NONE,
    Right("create", "authentication.k8s.io", "tokenreviews"): "--authorization-always-allow-paths",
    Right("create", "authorization.k8s.io", "subjectaccessreviews"): "--authorization-always-allow-paths",
}
"""Rights that may be left out, and the setting that is then required."""
