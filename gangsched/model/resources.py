"""Resource names as the columns of int64 arrays, and the request of a pod.

Units: cpu in thousandths, everything else in whole units (bytes, devices, pods). The sum over containers
follows k8s.io/component-helpers `resource/helpers.go` (PodRequests): sidecars are init containers with
restartPolicy Always; the peak of the init phase is compared with the running phase per resource;
pod-level requests (of cpu, memory and huge pages) replace the sum; overhead is added.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gangsched.errors import ParseError
from gangsched.model import quantity
from gangsched.model.objects import Container, PodSpec

Vector = npt.NDArray[np.int64]
Quantities = Mapping[str, str | int | float]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGE_PAGES = "hugepages-"
_ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
# Volcano caps at 256 kinds, kube-scheduler has no cap; a cluster we have seen has under 40.
MAX_RESOURCES = 1024


class ResourceTable:
    """Grows a column the first time a resource name is seen; columns are never removed or renumbered."""

    __slots__ = ("_column", "names")

    def __init__(self) -> None:
        self.names: list[str] = list(_ALWAYS)
        self._column: dict[str, int] = {name: i for i, name in enumerate(_ALWAYS)}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._column

    def column(self, name: str) -> int:
        """The column of `name`, new if need be. Raises: ParseError beyond MAX_RESOURCES names."""
        found = self._column.get(name)
        if found is None:
            if len(self.names) >= MAX_RESOURCES:
                raise ParseError(f"more than {MAX_RESOURCES} resource names in the cluster", field=name)
            found = self._column[name] = len(self.names)
            self.names.append(name)
        return found

    def vector(self, amounts: Mapping[str, int]) -> Vector:
        """Amounts as one row. Shape: int64[len(self)], zeros for what is not named."""
        columns = [(self.column(name), amount) for name, amount in amounts.items()]
        row = np.zeros(len(self.names), dtype=np.int64)
        for column, amount in columns:
            row[column] = amount
        return row


def is_extended(name: str) -> bool:
    """A resource of a device plugin or an operator: it has a domain, and not Kubernetes' own.

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


def container_requests(container: Container) -> dict[str, int]:
    """What one container asks for; a limit stands in where no request is given, as the API server defaults.

    Raises: ParseError.
    """
    if container.resources is None:
        return {}
    asked = parse_quantities(container.resources.requests)
    if container.resources.limits:
        for name, amount in parse_quantities(container.resources.limits).items():
            asked.setdefault(name, amount)
    return asked


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What the pod takes from its node, `pods` = 1 included, zeros left out. Raises: ParseError."""
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, container_requests(container))
    init_peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers or ():
        asked = container_requests(container)
        if container.restart_policy == "Always":
            _add(running, asked)
            _add(sidecars, asked)
            _max(init_peak, sidecars)
        else:
            at_once = dict(sidecars)
            _add(at_once, asked)
            _max(init_peak, at_once)
    _max(running, init_peak)
    if spec.resources is not None:
        for name, amount in parse_quantities(spec.resources.requests).items():
            if name in (CPU, MEMORY) or name.startswith(HUGE_PAGES):
                running[name] = amount
    _add(running, parse_quantities(spec.overhead))
    for name, amount in running.items():
        if amount < 0:
            raise ParseError(f"a request cannot be negative, this one is {amount}", field=name)
    running[PODS] = 1
    return {name: amount for name, amount in running.items() if amount}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _max(total: dict[str, int], other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount
