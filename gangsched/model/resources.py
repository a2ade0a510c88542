"""Resource names as the columns of int64 arrays, and the request of a pod.

Units: cpu in thousandths, everything else in whole units (bytes, devices, pods). The sum over containers
follows k8s.io/component-helpers `resource/helpers.go` (PodRequests): sidecars are init containers with
restartPolicy Always; the peak of the init phase is compared with the running phase per resource;
pod-level requests (of cpu, memory and huge pages) replace the sum; overhead is added. Every sum saturates as
a single quantity does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gangsched.errors import ParseError
from gangsched.model.objects import Container, PodSpec
from gangsched.model.text import quantity

Vector = npt.NDArray[np.int64]
Quantities = Mapping[str, str | int | float]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGE_PAGES = "hugepages-"
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
ALWAYS_COUNTED = len(_ALWAYS)
"""The columns of these names, the first ones, are never given to others."""
_NOTHING: Mapping[str, int] = {}
SCORING_DEFAULTS: Mapping[str, int] = {CPU: 100, MEMORY: 200 * 2**20}
"""For scores only: what a container without a request counts as requesting, so that pods without requests do
not all go to one node. Source: kube-scheduler `util/pod_resources.go`.
"""
# Volcano caps at 256 kinds, kube-scheduler has no cap; clusters we have seen have under 40. Each is 16 bytes
# on each node: 20 MiB on 5,000 nodes for all.
MAX_RESOURCES = 256


class ResourceTable:
    """Names by column. Columns are never removed or renumbered; one may get another name.

    edition: changes with the names.
    """

    __slots__ = ("_column", "edition", "names")

    def __init__(self) -> None:
        self.names: list[str] = list(_ALWAYS)
        self._column: dict[str, int] = {name: i for i, name in enumerate(_ALWAYS)}
        self.edition = 0

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._column

    def column(self, name: str) -> int:
        """Returns the column of `name`, adding it if new. Raises: ParseError beyond MAX_RESOURCES names."""
        found = self._column.get(name)
        if found is None:
            if len(self.names) >= MAX_RESOURCES:
                raise ParseError(f"more than {MAX_RESOURCES} resource names in the cluster", field=name)
            found = self._column[name] = len(self.names)
            self.names.append(name)
            self.edition += 1
        return found

    def rename(self, column: int, name: str) -> str:
        """Gives a column to another name; returns its former name."""
        before = self.names[column]
        del self._column[before]
        self.names[column] = name
        self._column[name] = column
        self.edition += 1
        return before


def is_extended(name: str) -> bool:
    """Whether a device plugin or an operator provides it: its domain is not Kubernetes' own.

    Source: kubernetes `pkg/apis/core/v1/helper/helpers.go`, IsExtendedResourceName.
    """
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def parse_quantities(quantities: Quantities | None) -> dict[str, int]:
    """Named quantities as integers in our units. Raises: ParseError naming the resource."""
    if not quantities:
        return {}
    parsed: dict[str, int] = {}
    for name, value in quantities.items():
        try:
            text = value if isinstance(value, str) else str(value)
            parsed[name] = quantity.to_milli(text) if name == CPU else quantity.to_int(text)
        except ParseError as error:
            raise ParseError(error.message, field=name) from None
    return parsed


def readable_quantities(quantities: Quantities | None) -> tuple[dict[str, int], str]:
    """Named quantities as integers in our units, without those that cannot be read; and what is wrong with
    the first of these ("": nothing)."""
    try:
        return parse_quantities(quantities), ""
    except ParseError as error:
        problem = str(error)
    parsed: dict[str, int] = {}
    for name, value in (quantities or {}).items():
        try:
            parsed |= parse_quantities({name: value})
        except ParseError:
            continue
    return parsed, problem


def container_requests(container: Container, unstated: Mapping[str, int] = _NOTHING) -> dict[str, int]:
    """One container's requests; a limit stands in for a missing request, as the API server defaults.

    unstated: used if there is neither; an explicit request of zero counts as stated. Raises: ParseError.
    """
    asked: dict[str, int] = {}
    if container.resources is not None:
        asked = parse_quantities(container.resources.requests)
        if container.resources.limits:
            for name, amount in parse_quantities(container.resources.limits).items():
                asked.setdefault(name, amount)
    for name, amount in unstated.items():
        asked.setdefault(name, amount)
    return asked


def pod_requests(
    spec: PodSpec, *, unstated: Mapping[str, int] = _NOTHING, pod_level: bool = True
) -> dict[str, int]:
    """Returns what the pod uses on its node, including `pods` = 1; zeros are left out.

    unstated: as for container_requests; pod_level: whether pod-level requests count. Raises: ParseError.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, container_requests(container, unstated))
    init_peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    # There may be thousands of both: only what this container requests can exceed the peak so far.
    for container in spec.init_containers or ():
        asked = container_requests(container, unstated)
        at_once = {name: quantity.saturated(sidecars.get(name, 0) + n) for name, n in asked.items()}
        if container.restart_policy == "Always":
            _add(running, asked)
            sidecars |= at_once
        _max(init_peak, at_once)
    _max(running, init_peak)
    if spec.resources is not None and pod_level:
        for name, amount in parse_quantities(spec.resources.requests).items():
            if _is_pod_level(name):
                running[name] = amount
    _add(running, parse_quantities(spec.overhead))
    for name, amount in running.items():
        if amount < 0:
            raise ParseError(f"a request cannot be negative, this one is {amount}", field=name)
    running[PODS] = 1
    return {name: amount for name, amount in running.items() if amount}


def unstated_room(spec: PodSpec, requests: Mapping[str, int]) -> tuple[int, int] | None:
    """Returns the (cpu, memory) that scores count for a pod beyond its `requests`; None: nothing.

    With pod-level requests, only resources that no container states are filled in. Source: kube-scheduler
    `framework/types.go`, getNonMissingContainerRequests. Raises: ParseError.
    """
    unstated = SCORING_DEFAULTS
    whole = (spec.resources.requests if spec.resources else None) or {}
    if any(map(_is_pod_level, whole)):
        stated = {*whole, *(spec.overhead or ())}
        for container in (*spec.containers, *(spec.init_containers or ())):
            stated.update(container_requests(container))
        unstated = {name: amount for name, amount in SCORING_DEFAULTS.items() if name not in stated}
    counted = pod_requests(spec, unstated=unstated)
    cpu, memory = (counted.get(name, 0) - requests.get(name, 0) for name in (CPU, MEMORY))
    return (cpu, memory) if cpu or memory else None


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = quantity.saturated(total.get(name, 0) + amount)


def _max(total: dict[str, int], other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount


def amount_text(resource: str, amount: int) -> str:
    """Formats a quantity for people: cores, a number, or bytes in the largest fitting unit of Gi, Mi, Ki.

    Bytes are truncated to hundredths, so that nearly enough is not shown as enough.
    """
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith(HUGE_PAGES):
        for unit, n_bytes in _BINARY:
            if abs(amount) >= n_bytes:
                hundredths = abs(amount) * 100 // n_bytes
                text = f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
                return f"{'-' if amount < 0 else ''}{text}{unit}"
    return str(amount)
