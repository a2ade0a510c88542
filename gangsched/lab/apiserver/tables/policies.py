"""The rows of kinds that set rules: leases, priorities, RBAC, admission, flow control, definitions.

Called by printer.py. Source: kubernetes pkg/printers/internalversion/printers.go; for definitions
k8s.io/apiextensions-apiserver pkg/registry/customresourcedefinition/tableconvertor.
"""

from __future__ import annotations

from datetime import datetime

from gangsched.lab.apiserver.tables.cluster import name_and_age
from gangsched.lab.apiserver.tables.columns import AGE, Cells, Column, Kind, Object, columns

_NONE = "<none>"


def _lease(lease: Object, now: datetime) -> Cells:
    name, age = name_and_age(lease, now)
    return [name, (lease.get("spec") or {}).get("holderIdentity") or "", age]


def _priority_class(priority: Object, now: datetime) -> Cells:
    name, age = name_and_age(priority, now)
    is_default = priority.get("globalDefault", False)
    return [name, priority.get("value", 0), is_default, age, priority.get("preemptionPolicy", "")]


def _role_binding(binding: Object, now: datetime) -> Cells:
    name, age = name_and_age(binding, now)
    role, subjects = binding.get("roleRef") or {}, binding.get("subjects") or ()
    by_kind = [
        ", ".join(each["name"] for each in subjects if each.get("kind") == kind) for kind in ("User", "Group")
    ]
    accounts = (
        f"{each.get('namespace', '')}/{each['name']}"
        for each in subjects
        if each.get("kind") == "ServiceAccount"
    )
    return [name, f"{role.get('kind', '')}/{role.get('name', '')}", age, *by_kind, ", ".join(accounts)]


def _definition(definition: Object, now: datetime) -> Cells:
    meta, spec = definition["metadata"], definition.get("spec") or {}
    names = spec.get("names") or {}
    versions = sorted(
        each["name"] + ("(storage)" if each.get("storage") else "")
        for each in spec.get("versions") or ()
        if each.get("served")
    )
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return [
        meta.get("name", ""),
        spec.get("scope", ""),
        ",".join(versions),
        meta.get("creationTimestamp"),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        any(each["type"] == "Established" and each.get("status") == "True" for each in conditions),
    ]


def _created_at(obj: Object, now: datetime) -> Cells:
    return [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")]


def _storage_class(storage: Object, now: datetime) -> Cells:
    """Omits the mark of the default class in a list: nothing here uses it."""
    name, age = name_and_age(storage, now)
    return [
        name,
        storage.get("provisioner", ""),
        storage.get("reclaimPolicy", "Delete"),
        storage.get("volumeBindingMode", "Immediate"),
        storage.get("allowVolumeExpansion", False),
        age,
    ]


def _csi_node(node: Object, now: datetime) -> Cells:
    name, age = name_and_age(node, now)
    return [name, len((node.get("spec") or {}).get("drivers") or ()), age]


def _flow_schema(flow: Object, now: datetime) -> Cells:
    name, age = name_and_age(flow, now)
    spec = flow.get("spec") or {}
    conditions = (flow.get("status") or {}).get("conditions") or ()
    dangling = next((each.get("status", "") for each in conditions if each["type"] == "Dangling"), "?")
    return [
        name,
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence", 0),
        (spec.get("distinguisherMethod") or {}).get("type") or _NONE,
        age,
        dangling,
    ]


def _by_precedence(flow: Object) -> tuple[int, str]:
    return (flow.get("spec") or {}).get("matchingPrecedence", 0), flow["metadata"].get("name", "")


_RBAC = "rbac.authorization.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_CREATED_AT = Column("Created At", "date")
_SUBJECTS: tuple[str | Column, ...] = ("Users", "Groups", "ServiceAccounts")
_BINDING = Kind(columns("Role", AGE, wide=_SUBJECTS), _role_binding)
# For kinds without their own columns, in Kubernetes and here.
ANY = Kind(columns(_CREATED_AT), _created_at)

KINDS = {
    "coordination.k8s.io/leases": Kind(columns("Holder", AGE), _lease),
    "scheduling.k8s.io/priorityclasses": Kind(
        columns(Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, "PreemptionPolicy"),
        _priority_class,
    ),
    f"{_RBAC}/rolebindings": _BINDING,
    f"{_RBAC}/clusterrolebindings": _BINDING,
    "apiextensions.k8s.io/customresourcedefinitions": Kind(
        columns(
            "Scope",
            "Versions",
            _CREATED_AT,
            wide=("Group", "Kind", "ShortNames", Column("Established", "boolean")),
        ),
        _definition,
    ),
    "storage.k8s.io/storageclasses": Kind(
        columns("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", AGE),
        _storage_class,
    ),
    "storage.k8s.io/csinodes": Kind(columns(Column("Drivers", "integer"), AGE), _csi_node),
    f"{_FLOW}/flowschemas": Kind(
        columns("PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", AGE, "MissingPL"),
        _flow_schema,
        order=_by_precedence,
    ),
}
