"""The rows of nodes, namespaces, events and of the kinds that pods refer to: services, volumes, settings.

Called by printer.py. Source: kubernetes pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime

from gangsched.lab.apiserver.tables.ages import UNKNOWN, since
from gangsched.lab.apiserver.tables.columns import AGE, NAME, Cells, Column, Kind, Object, columns

_NONE = "<none>"
_UNSET = "<unset>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def name_and_age(obj: Object, now: datetime) -> tuple[str, str]:
    """The first cell of nearly every row, and its last."""
    meta = obj["metadata"]
    return meta.get("name", ""), since(meta.get("creationTimestamp"), now)


def _plain(obj: Object, now: datetime) -> Cells:
    return [*name_and_age(obj, now)]


def _namespace(namespace: Object, now: datetime) -> Cells:
    name, age = name_and_age(namespace, now)
    return [name, (namespace.get("status") or {}).get("phase", ""), age]


def _node(node: Object, now: datetime) -> Cells:
    name, age = name_and_age(node, now)
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name,
        _node_status(node.get("spec") or {}, status),
        _roles(node["metadata"].get("labels") or {}),
        age,
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(spec: Object, status: Object) -> str:
    ready = [each for each in status.get("conditions") or () if each["type"] == "Ready"]
    if not ready:
        text = "Unknown"
    else:
        text = "Ready" if ready[-1].get("status") == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if spec.get("unschedulable") else text


def _roles(labels: Object) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or _NONE


def _address(status: Object, type_: str) -> str:
    for each in status.get("addresses") or ():
        if each["type"] == type_:
            return str(each["address"])
    return _NONE


def _event(event: Object, now: datetime) -> Cells:
    series = event.get("series") or {}
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = since(event.get("lastTimestamp"), now) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if series:
        last = since(series.get("lastObservedTime"), now)
        count = series.get("count", 0)
    about = event.get("involvedObject") or {}
    target = about.get("kind", "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        event.get("message", "").strip(),
        first,
        count,
        event["metadata"].get("name", ""),
    ]


def _service(service: Object, now: datetime) -> Cells:
    name, age = name_and_age(service, now)
    spec = service.get("spec") or {}
    ports = [
        f"{port['port']}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    selector = spec.get("selector") or {}
    return [
        name,
        spec.get("type", ""),
        (spec.get("clusterIPs") or [_NONE])[0],
        _external_ip(service),
        ",".join(ports) or _NONE,
        age,
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or _NONE,
    ]


def _external_ip(service: Object) -> str:
    spec = service.get("spec") or {}
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or _NONE
        case "LoadBalancer":
            ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            found = sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""})
            return ",".join([*found, *external]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _config_map(config: Object, now: datetime) -> Cells:
    name, age = name_and_age(config, now)
    return [name, len(config.get("data") or ()) + len(config.get("binaryData") or ()), age]


def _secret(secret: Object, now: datetime) -> Cells:
    name, age = name_and_age(secret, now)
    return [name, secret.get("type", ""), len(secret.get("data") or ()), age]


def _access_modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _storage_class_of(volume: Object) -> str:
    annotations = volume["metadata"].get("annotations") or {}
    return str(annotations.get(_BETA_CLASS) or (volume.get("spec") or {}).get("storageClassName") or "")


def _phase(volume: Object) -> str:
    if volume["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((volume.get("status") or {}).get("phase", ""))


def _volume(volume: Object, now: datetime) -> Cells:
    name, age = name_and_age(volume, now)
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        name,
        (spec.get("capacity") or {}).get("storage", "0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(volume),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_of(volume),
        spec.get("volumeAttributesClassName") or _UNSET,
        (volume.get("status") or {}).get("reason", ""),
        age,
        spec.get("volumeMode") or _UNSET,
    ]


def _claim(claim: Object, now: datetime) -> Cells:
    name, age = name_and_age(claim, now)
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    volume = spec.get("volumeName", "")
    return [
        name,
        _phase(claim),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _access_modes(status.get("accessModes")) if volume else "",
        _storage_class_of(claim),
        spec.get("volumeAttributesClassName") or _UNSET,
        age,
        spec.get("volumeMode") or _UNSET,
    ]


_VOLUME_CLASSES = ("StorageClass", "VolumeAttributesClass")

# Its columns are not in the order of their priorities.
_EVENT_COLUMNS = (
    Column("Last Seen"),
    Column("Type"),
    Column("Reason"),
    Column("Object"),
    Column("Subobject", priority=1),
    Column("Source", priority=1),
    Column("Message"),
    Column("First Seen", priority=1),
    Column("Count", priority=1),
    NAME._replace(priority=1),
)

KINDS = {
    "/namespaces": Kind(columns("Status", AGE), _namespace),
    "/nodes": Kind(
        columns(
            "Status",
            "Roles",
            AGE,
            "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    "/events": Kind(_EVENT_COLUMNS, _event),
    "/services": Kind(
        columns("Type", "Cluster-IP", "External-IP", "Port(s)", AGE, wide=("Selector",)), _service
    ),
    "/serviceaccounts": Kind(columns(AGE), _plain),
    "/configmaps": Kind(columns("Data", AGE), _config_map),
    "/secrets": Kind(columns("Type", "Data", AGE), _secret),
    "/persistentvolumes": Kind(
        columns(
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            *_VOLUME_CLASSES,
            "Reason",
            AGE,
            wide=("VolumeMode",),
        ),
        _volume,
    ),
    "/persistentvolumeclaims": Kind(
        columns("Status", "Volume", "Capacity", "Access Modes", *_VOLUME_CLASSES, AGE, wide=("VolumeMode",)),
        _claim,
    ),
}
