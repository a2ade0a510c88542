"""Which kinds are served: their names, scopes, verbs and subresources; CRDs add theirs at run time.

Lives here: the table and its lookups. Not here: a kind's behaviour (strategy.py, kinds/), printing it
(lab.apiserver.documents.discovery, tables). Read by the registry, the HTTP face, discovery, OpenAPI and
tables. Source of names and verbs: a real kube-apiserver's discovery documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
READ_ONLY = ("get", "list", "watch")
STATUS_VERBS = ("get", "patch", "update")


class Subresource(msgspec.Struct, frozen=True):
    """One path below an object; `kind` is its body's, of the parent's group unless stated.

    If it `connects`, it leads into a container: the body is a stream, and GET and POST are one verb.
    """

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str | None = None
    version: str | None = None
    connects: bool = False


class Resource(msgspec.Struct, frozen=True):
    """One resource in one group; the first of `versions` is preferred and stored.

    `storage` names the collection with its objects: `group/plural`, unless two groups show the same objects
    (Events). Resources that are not `stored` have no objects: reviews, bindings, and metrics, which are
    computed for each request.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    list_kind: str = ""
    storage: str = ""
    stored: bool = True
    # Defined by a CustomResourceDefinition: its schema, columns and rules come from there.
    custom: bool = False

    @property
    def key(self) -> str:
        """`group/plural`, unique among what is served: `/pods`, `batch/jobs`."""
        return f"{self.group}/{self.plural}"

    @property
    def storage_key(self) -> str:
        return self.storage or self.key

    @property
    def version(self) -> str:
        """The preferred version, in which objects are stored."""
        return self.versions[0]

    @property
    def has_status(self) -> bool:
        return self.subresource("status") is not None

    def api_version(self, version: str = "") -> str:
        """Returns an object's apiVersion: `v1`, `batch/v1`."""
        version = version or self.version
        return f"{self.group}/{version}" if self.group else version

    def subresource(self, name: str) -> Subresource | None:
        return next((each for each in self.subresources if each.name == name), None)


class Resources:
    """The resources served now; `revision` rises with every change: derived documents are cached by it."""

    def __init__(self, resources: tuple[Resource, ...] = ()) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[str, Resource] = {}
        self.revision = 0
        for resource in resources:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_key.values()))

    def add(self, resource: Resource) -> None:
        """Serve it; one with the same group and plural is replaced."""
        self._drop(resource.key)
        self._by_key[resource.key] = resource
        for version in resource.versions:
            self._by_path[resource.group, version, resource.plural] = resource
        self.revision += 1

    def remove(self, key: str) -> None:
        """Stop serving it; no error if it is not served."""
        if key in self._by_key:
            self._drop(key)
            self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """By the parts of a request's path."""
        return self._by_path.get((group, version, plural))

    def by_key(self, group: str, plural: str) -> Resource | None:
        return self._by_key.get(f"{group}/{plural}")

    def by_kind(self, group: str, kind: str) -> Resource | None:
        """The resource whose objects are of this kind (as ownerReferences and involvedObjects name them)."""
        for resource in self._by_key.values():
            if resource.kind == kind and resource.group == group and resource.stored:
                return resource
        return None

    def get(self, name: str) -> Resource:
        """By plural with its group, as `pods` or `jobs.batch`. Raises: KeyError."""
        plural, _, group = name.partition(".")
        return self._by_key[f"{group}/{plural}"]

    def groups(self) -> dict[str, list[str]]:
        """Each group served with its versions, the preferred one first; the core group is ""."""
        groups: dict[str, list[str]] = {}
        for resource in self._by_key.values():
            known = groups.setdefault(resource.group, [])
            known.extend(version for version in resource.versions if version not in known)
        return groups

    def of_version(self, group: str, version: str) -> list[Resource]:
        """The resources of one group and version, by name."""
        found = (each for each in self._by_key.values() if each.group == group and version in each.versions)
        return sorted(found, key=lambda resource: resource.plural)

    def _drop(self, key: str) -> None:
        old = self._by_key.pop(key, None)
        if old is not None:
            for version in old.versions:
                self._by_path.pop((old.group, version, old.plural), None)


def _resource(
    plural: str, kind: str, *, namespaced: bool = True, status: bool = False, **rest: Any
) -> Resource:
    group = rest.pop("group", "")
    subresources = tuple(rest.pop("subresources", ()))
    if status:
        subresources = (*subresources, Subresource("status", kind, STATUS_VERBS))
    if isinstance(short := rest.get("short_names"), str):
        rest["short_names"] = tuple(short.split())
    return Resource(
        group=group,
        versions=rest.pop("versions", ("v1",)),
        plural=plural,
        singular=rest.pop("singular", kind.lower()),
        kind=kind,
        namespaced=namespaced,
        list_kind=rest.pop("list_kind", f"{kind}List"),
        subresources=tuple(sorted(subresources, key=lambda each: each.name)),
        **rest,
    )


def _review(plural: str, kind: str, *, group: str, namespaced: bool = False) -> Resource:
    return _resource(plural, kind, group=group, namespaced=namespaced, verbs=CREATE_ONLY, stored=False)


def _empty(plural: str, kind: str, **rest: Any) -> Resource:
    return _resource(plural, kind, verbs=READ_ONLY, **rest)


_BINDING = Subresource("binding", "Binding", CREATE_ONLY)
_EVICTION = Subresource("eviction", "Eviction", CREATE_ONLY, group="policy", version="v1")
_LOG = Subresource("log", "Pod", ("get",))
_CONNECTIONS = tuple(
    Subresource(name, kind, ("create", "get"), connects=True)
    for name, kind in (
        ("attach", "PodAttachOptions"),
        ("exec", "PodExecOptions"),
        ("portforward", "PodPortForwardOptions"),
    )
)
_FINALIZE = Subresource("finalize", "Namespace", ("update",))
_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")

_CORE = (
    _resource("bindings", "Binding", verbs=CREATE_ONLY, stored=False),
    _resource("configmaps", "ConfigMap", short_names="cm"),
    _resource("events", "Event", short_names="ev"),
    _resource(
        "namespaces",
        "Namespace",
        namespaced=False,
        status=True,
        short_names="ns",
        subresources=[_FINALIZE],
        verbs=_NO_COLLECTION_DELETE,
    ),
    _resource("nodes", "Node", namespaced=False, status=True, short_names="no"),
    _resource("persistentvolumeclaims", "PersistentVolumeClaim", status=True, short_names="pvc"),
    _resource("persistentvolumes", "PersistentVolume", namespaced=False, status=True, short_names="pv"),
    _resource(
        "pods",
        "Pod",
        status=True,
        short_names="po",
        categories=("all",),
        subresources=[_BINDING, _EVICTION, _LOG, *_CONNECTIONS],
    ),
    _resource("secrets", "Secret"),
    _resource("serviceaccounts", "ServiceAccount", short_names="sa"),
    _resource("services", "Service", status=True, short_names="svc", categories=("all",)),
)

_ADMISSION = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_DEVICES = "resource.k8s.io"

_GROUPS = (
    _resource(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        group="apiextensions.k8s.io",
        namespaced=False,
        status=True,
        short_names="crd crds",
        categories=("api-extensions",),
    ),
    _resource(
        "deployments", "Deployment", group="apps", status=True, short_names="deploy", categories=("all",)
    ),
    _resource("events", "Event", group="events.k8s.io", short_names="ev", storage="/events"),
    _review("selfsubjectreviews", "SelfSubjectReview", group="authentication.k8s.io"),
    _review("tokenreviews", "TokenReview", group="authentication.k8s.io"),
    _review("localsubjectaccessreviews", "LocalSubjectAccessReview", group=_AUTHORIZATION, namespaced=True),
    _review("selfsubjectaccessreviews", "SelfSubjectAccessReview", group=_AUTHORIZATION),
    _review("selfsubjectrulesreviews", "SelfSubjectRulesReview", group=_AUTHORIZATION),
    _review("subjectaccessreviews", "SubjectAccessReview", group=_AUTHORIZATION),
    _resource("jobs", "Job", group="batch", status=True, categories=("all",)),
    _resource("poddisruptionbudgets", "PodDisruptionBudget", group="policy", status=True, short_names="pdb"),
    _resource("networkpolicies", "NetworkPolicy", group="networking.k8s.io", short_names="netpol"),
    _resource("clusterrolebindings", "ClusterRoleBinding", group=_RBAC, namespaced=False),
    _resource("clusterroles", "ClusterRole", group=_RBAC, namespaced=False),
    _resource("rolebindings", "RoleBinding", group=_RBAC),
    _resource("roles", "Role", group=_RBAC),
    _resource("csinodes", "CSINode", group="storage.k8s.io", namespaced=False),
    _resource("storageclasses", "StorageClass", group="storage.k8s.io", namespaced=False, short_names="sc"),
    _resource(
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        group=_ADMISSION,
        namespaced=False,
        categories=("api-extensions",),
    ),
    _resource(
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        group=_ADMISSION,
        namespaced=False,
        categories=("api-extensions",),
    ),
    _resource(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        group=_ADMISSION,
        namespaced=False,
        status=True,
        categories=("api-extensions",),
    ),
    _resource(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        group=_ADMISSION,
        namespaced=False,
        categories=("api-extensions",),
    ),
    _resource("priorityclasses", "PriorityClass", group=_SCHEDULING, namespaced=False, short_names="pc"),
    _resource("podgroups", "PodGroup", group=_SCHEDULING, versions=("v1beta1",), status=True),
    _resource("leases", "Lease", group="coordination.k8s.io"),
    _resource("deviceclasses", "DeviceClass", group=_DEVICES, namespaced=False),
    _resource("devicetaintrules", "DeviceTaintRule", group=_DEVICES, namespaced=False, status=True),
    _resource("resourceclaims", "ResourceClaim", group=_DEVICES, status=True),
    _resource("resourceclaimtemplates", "ResourceClaimTemplate", group=_DEVICES),
    _resource("resourceslices", "ResourceSlice", group=_DEVICES, namespaced=False),
    _resource("flowschemas", "FlowSchema", group=_FLOW, namespaced=False, status=True),
    _resource(
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        group=_FLOW,
        namespaced=False,
        status=True,
    ),
)

# Other schedulers wait until they have listed these. Nothing here uses them, so the lists are empty.
_EMPTY = (
    _empty("replicationcontrollers", "ReplicationController", short_names="rc", categories=("all",)),
    _empty("replicasets", "ReplicaSet", group="apps", short_names="rs", categories=("all",)),
    _empty("statefulsets", "StatefulSet", group="apps", short_names="sts", categories=("all",)),
    _empty("csidrivers", "CSIDriver", group="storage.k8s.io", namespaced=False),
    _empty(
        "csistoragecapacities",
        "CSIStorageCapacity",
        group="storage.k8s.io",
    ),
    _empty("volumeattachments", "VolumeAttachment", group="storage.k8s.io", namespaced=False),
)

_METRICS = "metrics.k8s.io"
METRICS = (
    _resource(
        "nodes",
        "NodeMetrics",
        group=_METRICS,
        versions=("v1beta1",),
        singular="",
        namespaced=False,
        verbs=("get", "list"),
        stored=False,
    ),
    _resource(
        "pods",
        "PodMetrics",
        group=_METRICS,
        versions=("v1beta1",),
        singular="",
        verbs=("get", "list"),
        stored=False,
    ),
)
"""What a metrics-server adds to a cluster; there is one if there are simulated kubelets."""


def builtin_resources() -> Resources:
    """Returns the resources served before any CRD is created."""
    return Resources(_CORE + _GROUPS + _EMPTY)
