"""A second, plain parser of nodes, pods and groups: quantities, device IDs, membership of gangs.

Lives here: the checkers' own reading of the documents that gangsched.model parses, using none of its parsers:
a wrong parser must not check itself. Not here: why a document is rejected. Unreadable values are None.
Amounts are exact; the core's saturate at some size (`is_vast`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from gangsched.lab.sim.reading.read_once import asking, naming_a_gang, naming_devices, read_once, read_once_of
from gangsched.lab.sim.reading.roles import roles_of
from gangsched.lab.sim.reading.texts import json_of, whole_number
from gangsched.model.objects import Container, CustomObject, Node, Pod, PodSpec
from gangsched.model.walltime import WALLTIME_KEY

Ids = dict[str, frozenset[str]]
"""Resource -> device IDs."""
Given = dict[str, dict[str, tuple[str, ...]]]
"""Container -> resource -> device IDs."""
Amounts = Mapping[str, str | int | float]

MARK = "gangsched.io/gang"
"""The annotation that every bind of ours carries."""
_DEVICES, _ALLOCATED = "gangsched.io/devices", "gangsched.io/allocated-devices"
_LABELLED = {"devices": ".devices.gangsched.io/", "unhealthy": ".unhealthy-devices.gangsched.io/"}
_LABELLED_ALLOCATED = ".allocated-devices.gangsched.io/"
_SUFFIXES = {
    **{"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)},
    **{letter: Fraction(1000 ** (i + 1)) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (i + 1)) for i, letter in enumerate("KMGTPE")},
}
_NUMERALS = frozenset("0123456789.+-eE")
_VAST = 2**50
_MAX_IDS, _MAX_ID_CHARS = 4096, 63

# -- quantities ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def amount(text: str, *, milli: bool = False) -> int | None:
    """A quantity in whole units, or in thousandths, rounded up."""
    digits = text.lstrip("+-")[:1]
    if not text.isascii() or not (digits.isdigit() or digits == "."):
        return None
    for n in (2, 1, 0):
        number, suffix = text[: len(text) - n], text[len(text) - n :]
        if suffix in _SUFFIXES:
            factor = _SUFFIXES[suffix]
            break
    mantissa, letter, exponent = number.replace("E", "e").partition("e")
    if (letter and suffix) or len(exponent.lstrip("+-")) > 3 or not set(number) <= _NUMERALS:
        return None
    try:
        value = Fraction(mantissa) * Fraction(10) ** int(exponent or ("x" if letter else 0)) * factor
    except ValueError:
        return None
    return math.ceil(value * 1000 if milli else value)


def is_vast(n: int) -> bool:
    """Whether it exceeds any machine's capacity: there the core may count too much, never too little."""
    return n >= _VAST


def amounts(named: Amounts | None) -> dict[str, int] | None:
    """Named quantities, cpu in thousandths; None where one cannot be read."""
    found: dict[str, int] = {}
    for name, value in (named or {}).items():
        n = amount(str(value), milli=name == "cpu")
        if n is None:
            return None
        found[name] = n
    return found


@read_once
def allocatable(node: Node) -> dict[str, int] | None:
    return amounts(node.status.allocatable)


def container_asks(container: Container) -> dict[str, int] | None:
    """Its requests, and its limits where it has no request."""
    resources = container.resources
    if resources is None:
        return {}
    requests, limits = amounts(resources.requests), amounts(resources.limits)
    return None if requests is None or limits is None else {**limits, **requests}


@read_once_of(asking)
def pod_asks(spec: PodSpec) -> dict[str, int]:
    """The pod's requests: one of `pods`, and all others, unless they cannot be read."""
    asked = _pod_asks(spec)
    if asked is None or any(n < 0 for n in asked.values()):
        return {"pods": 1}
    return {**{name: n for name, n in asked.items() if n}, "pods": 1}


def _pod_asks(spec: PodSpec) -> dict[str, int] | None:
    """The largest sums over its life: each init container in turn, then all containers that keep running."""
    runs: list[dict[str, int]] = []
    moments: list[dict[str, int]] = []
    for container in spec.init_containers or ():
        asked = container_asks(container)
        if asked is None:
            return None
        if container.restart_policy == "Always":
            runs.append(asked)
            moments.append(_sum(runs))
        else:
            moments.append(_sum([*runs, asked]))
    for container in spec.containers:
        asked = container_asks(container)
        if asked is None:
            return None
        runs.append(asked)
    moments.append(_sum(runs))
    names = dict.fromkeys(name for moment in moments for name in moment)
    needed = {name: max(moment.get(name, 0) for moment in moments) for name in names}
    if spec.resources is not None:
        whole = amounts(spec.resources.requests)
        if whole is None:
            return None
        needed |= {n: a for n, a in whole.items() if n in ("cpu", "memory") or n.startswith("hugepages-")}
    overhead = amounts(spec.overhead)
    return None if overhead is None else _sum([needed, overhead])


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, n in part.items():
            total[name] = total.get(name, 0) + n
    return total


# -- devices ---------------------------------------------------------------------------------------------


@read_once
def lists_devices(node: Node) -> bool:
    """Whether the node states its devices, readable or not."""
    labels = node.metadata.labels or {}
    return _DEVICES in (node.metadata.annotations or {}) or any(_LABELLED["devices"] in key for key in labels)


def healthy_ids(node: Node) -> Ids | None:
    """Resource -> IDs that may be given out; {} where the node lists none."""
    found = _ids(node)
    return None if found is None else dict(found[1])


def listed_ids(node: Node) -> Ids | None:
    """Resource -> IDs, also of unhealthy devices; {} where the node lists none."""
    found = _ids(node)
    return None if found is None else dict(found[0])


def _ids(node: Node) -> tuple[Ids, Ids] | None:
    """By resource, the IDs that are listed, and those that are healthy."""
    annotations, labels = node.metadata.annotations or {}, node.metadata.labels or {}
    if _DEVICES in annotations:
        return _inventory(annotations[_DEVICES])
    by_kind: dict[str, dict[str, list[str]]] = {"devices": {}, "unhealthy": {}}
    for key, value in labels.items():
        for kind, infix in _LABELLED.items():
            domain, found_infix, name = key.partition(infix)
            if found_infix:
                by_kind[kind][f"{domain}/{name}"] = value.split(".") if value else []
    listed, unhealthy = by_kind["devices"], by_kind["unhealthy"]
    for resource in {**listed, **unhealthy}:
        if not _are_ids(listed.get(resource, [])):
            return None
    ids = {r: frozenset(own) for r, own in listed.items()}
    return ids, {r: own - {*unhealthy.get(r, ())} for r, own in ids.items()}


@lru_cache(maxsize=1024)
def _inventory(text: str) -> tuple[Ids, Ids] | None:
    read = json_of(text)
    if not isinstance(read, dict):
        return None
    listed: Ids = {}
    healthy: Ids = {}
    for resource, devices in read.items():
        is_extended = "/" in resource and "kubernetes.io/" not in resource
        if not is_extended or resource.startswith("requests.") or not isinstance(devices, list):
            return None
        if not all(_is_device(device) for device in devices):
            return None
        if not _are_ids([device["id"] for device in devices]):
            return None
        listed[resource] = frozenset(d["id"] for d in devices)
        healthy[resource] = frozenset(d["id"] for d in devices if d.get("health", "Healthy") == "Healthy")
    return listed, healthy


def _is_device(device: Any) -> bool:
    """Whether it has the form of a device: an `id`, and other fields of the right type."""
    if not isinstance(device, dict) or not isinstance(device.get("id"), str):
        return False
    links = device.get("links")
    texts = [device.get("health", ""), device.get("model", "")]
    if links is not None:
        if not isinstance(links, dict):
            return False
        texts += links.values()
    counts = [device.get("numa", 0), device.get("memoryMiB", 0)]
    return all(isinstance(t, str) for t in texts) and all(type(n) is int for n in counts)


def _are_ids(ids: list[str]) -> bool:
    fit = all(0 < len(each) <= _MAX_ID_CHARS for each in ids)
    return fit and len(ids) <= _MAX_IDS and len(set(ids)) == len(ids)


def given(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None = None) -> Given | None:
    """The devices in a pod's annotation, or in its Binding's; {} if there are none."""
    if annotations and _ALLOCATED in annotations:
        return _given(annotations[_ALLOCATED])
    found: Given = {}
    for key, value in (labels or {}).items():
        before, infix, name = key.partition(_LABELLED_ALLOCATED)
        if infix:
            container, _, domain = before.partition(".")
            found.setdefault(container, {})[f"{domain}/{name}"] = tuple(value.split(".")) if value else ()
    return found


@lru_cache(maxsize=4096)
def _given(text: str) -> Given | None:
    read = json_of(text)
    if not isinstance(read, dict):
        return None
    found: Given = {}
    for container, sets in read.items():
        if not isinstance(sets, dict):
            return None
        for resource, ids in sets.items():
            if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
                return None
            found.setdefault(container, {})[resource] = tuple(ids)
    return found


def says_devices(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> bool:
    """Whether it states any devices, readable or not."""
    return _ALLOCATED in (annotations or ()) or any(_LABELLED_ALLOCATED in key for key in labels or ())


def ids_in(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None = None) -> Ids:
    """Resource -> device IDs of all containers; {} if there are none or they cannot be read."""
    found: Ids = {}
    for sets in (given(annotations, labels) or {}).values():
        for resource, ids in sets.items():
            found[resource] = found.get(resource, frozenset()) | frozenset(ids)
    return found


@read_once_of(naming_devices)
def ids_of(pod: Pod) -> Ids:
    """Resource -> the device IDs that a pod's annotation or labels state."""
    return ids_in(pod.metadata.annotations, pod.metadata.labels)


def healths_in(pod: Pod) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields ((resource, ID), health) of each device of which its kubelet says something."""
    for container in pod.status.container_statuses or ():
        for resource in container.allocated_resources_status or ():
            for one in resource.resources or ():
                yield (resource.name, one.resource_id), one.health


# -- gangs -----------------------------------------------------------------------------------------------


class Gang(NamedTuple):
    """The pod's gang; a pod that names none is a gang of its own, by its UID."""

    dialect: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


_NAMING_LABELS = {
    "gangsched.io/pod-group": "gangsched",
    "scheduling.x-k8s.io/pod-group": "coscheduling",
    "pod-group.scheduling.sigs.k8s.io": "coscheduling",
    "pod-group.scheduling.sigs.k8s.io/name": "lightweight",
}
_NAMING_ANNOTATIONS = {
    "scheduling.k8s.io/group-name": "volcano",
    "scheduling.volcano.sh/group-name": "volcano",
    "pod-group-name": "kai",
    "gang.scheduling.koordinator.sh/name": "koordinator",
}
_APPLICATION_LABELS = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
_TASKS = ("yunikorn.apache.org/task-groups", "yunikorn.apache.org/task-group-name")
_LIGHTWEIGHT_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
_MIN, TOTAL_KEY = "gangsched.io/min-members", "gangsched.io/total-members"
_KOORDINATOR_MIN = "gang.scheduling.koordinator.sh/min-available"
_KOORDINATOR_TOTAL = "gang.scheduling.koordinator.sh/total-number"
_PRECEDENCE = (
    *("core", "coscheduling", "volcano", "kai"),
    *("gangsched", "koordinator", "yunikorn", "lightweight"),
)
_TOPOLOGY = "gangsched.io/topology"


@read_once_of(naming_a_gang)
def gang_of(pod: Pod) -> Gang | None:
    """Returns the gang that the pod names; None if it names two."""
    meta = pod.metadata
    names: dict[str, str] = {}
    labels, annotations = meta.labels or {}, meta.annotations or {}
    for label, dialect in () if _NAMING_LABELS.keys().isdisjoint(labels) else _NAMING_LABELS.items():
        if (name := labels.get(label)) and name != names.setdefault(dialect, name):
            return None
    for key, dialect in (
        () if _NAMING_ANNOTATIONS.keys().isdisjoint(annotations) else _NAMING_ANNOTATIONS.items()
    ):
        if (name := annotations.get(key)) and name != names.setdefault(dialect, name):
            return None
    if application := _application(labels, annotations):
        names["yunikorn"] = application
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        names["core"] = pod.spec.scheduling_group.pod_group_name
    if not names:
        return Gang("pod", meta.namespace, meta.name, meta.uid)
    if len(set(names.values())) > 1:
        return None
    dialect = min(names, key=_PRECEDENCE.index)
    return Gang(dialect, meta.namespace, names[dialect])


def _application(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Returns YuniKorn's application; "" unless the pod is of a task group, which makes it a gang."""
    if not any(annotations.get(key) for key in _TASKS):
        return ""
    first, *others = _APPLICATION_LABELS
    stated = [labels.get(first), annotations.get(first), *(labels.get(key) for key in others)]
    return next((one for one in stated if one), "")


def least(gang: Gang, pod: Pod, item: CustomObject | None) -> int | None:
    """How many must start together, by the gang's object or by this member; None if nothing states it."""
    annotations, spec = pod.metadata.annotations or {}, (item.spec or {}) if item is not None else {}
    if gang.dialect == "pod":
        return 1
    if gang.dialect == "lightweight":
        return whole_number((pod.metadata.labels or {}).get(_LIGHTWEIGHT_MIN))
    if gang.dialect == "gangsched":
        n = whole_number(annotations.get(_MIN))
        total = whole_number(annotations.get(TOTAL_KEY, "0"), at_least=0)
        return None if n is None or total is None or 0 < total < n else n
    if gang.dialect == "koordinator":
        n = whole_number(annotations.get(_KOORDINATOR_MIN))
        total = whole_number(annotations.get(_KOORDINATOR_TOTAL) or "0", at_least=0)
        return None if n is None or total is None or 0 < total < n else n
    roles = roles_of(gang.dialect, pod, spec)
    if gang.dialect == "yunikorn":
        return sum(roles.values()) if roles else None
    if item is None or roles is None:
        return None
    if gang.dialect == "kai" and roles:
        return max(sum(roles.values()), 1)
    if gang.dialect in ("volcano", "kai"):
        return max(whole_number(spec.get("minMember") or 0, at_least=0) or 0, 1)
    if gang.dialect == "coscheduling":
        resources = spec.get("minResources")
        is_read = not isinstance(resources, dict) or amounts(resources) is not None
        return whole_number(spec.get("minMember", 1)) if is_read else None
    policy = spec.get("schedulingPolicy")
    policy = policy.get("gang") if isinstance(policy, dict) else None
    return whole_number(policy.get("minCount", 1)) if isinstance(policy, dict) else 1


OF_OBJECTS = frozenset(("core", "coscheduling", "volcano", "kai"))
"""The dialects whose gangs are described by an object of their own."""


def total(gang: Gang, pod: Pod, item: CustomObject | None) -> int:
    """How many must be placed before any starts, if that is stated beside the minimum; else 0."""
    stated = pod if gang.dialect == "gangsched" else item
    own = (stated.metadata.annotations or {}) if stated is not None else {}
    return whole_number(own.get(TOTAL_KEY, "0"), at_least=0) or 0


def needed_by(gang: Gang, pods: Sequence[Pod], item: CustomObject | None) -> int | None:
    """How many members must have places before any starts; None if not stated, or members disagree."""
    stated = {least(gang, pod, item) for pod in pods}
    n = stated.pop()
    return None if stated or n is None else max(n, total(gang, pods[0], item))


def required_labels(pod: Pod, item: CustomObject | None) -> tuple[str, ...]:
    """The node labels that a member and its gang's object require all members to share."""
    texts = [pod.metadata.annotations] + ([item.metadata.annotations] if item is not None else [])
    levels = [level for own in texts for level in (own or {}).get(_TOPOLOGY, "").split(",")]
    pairs = [level.partition(":") for level in levels]
    found = [key.strip() for mode, _, key in pairs if mode.strip() == "required"]
    constraints = (item.spec or {}).get("schedulingConstraints") if item is not None else None
    listed = constraints.get("topology") if isinstance(constraints, dict) else None
    found += [one["key"] for one in listed or () if isinstance(one, dict) and isinstance(one.get("key"), str)]
    return tuple(found)


def is_refused(pod: Pod) -> bool:
    """Whether a kubelet ended the pod before any of its containers ran."""
    return pod.status.phase == "Failed" and bool(pod.status.reason) and not pod.status.container_statuses


def start_of(pod: Pod) -> dict[str, int]:
    """Returns what the pod's Binding states about the start of its gang."""
    text = (pod.metadata.annotations or {}).get("gangsched.io/start")
    found = json_of(text) if text and pod.spec.node_name else {}
    return {k: n for k, n in found.items() if isinstance(n, int)} if isinstance(found, dict) else {}


def stated_s(pod: Pod) -> float:
    """Returns the walltime that a pod of our workloads states; inf if none."""
    text = (pod.metadata.annotations or {}).get(WALLTIME_KEY, "")
    return float(text.removesuffix("s")) if text.endswith("s") and text[:-1].isdecimal() else math.inf
