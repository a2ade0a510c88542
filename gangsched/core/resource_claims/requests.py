"""PreparedClaim: what a claim asks for, with its classes, once for all claims of equal spec and classes.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `structured/internal/incubating/allocator_incubating.go`,
validateDeviceRequest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from gangsched.model.resource_claims.objects import (
    ALL,
    EXACT_COUNT,
    MAX_RESULTS,
    Amount,
    ClaimConstraint,
    DeviceClass,
    DeviceTaint,
    ExactRequest,
    ResourceClaimSpec,
    SubRequest,
)

DOMAIN_DRIVER = "compute-domain.nvidia.com"
DOMAIN_LABEL = "resource.nvidia.com/computeDomain"
"""On a node that serves a ComputeDomain, or that its driver has not cleared of one: the domain's UID."""
_MAX_SUBREQUESTS = 8


class ClaimProblem(Exception):
    """What is wrong with a claim or its classes, so that it can be allocated nowhere as it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Request:
    """A request, or one subrequest of it. name: as results name it, "request" or "request/subrequest".

    number: its place among all of its claim. selectors: expressions, the class's first; `of_class` of them.
    """

    __slots__ = (
        *("admin_access", "capacity", "count", "device_class", "is_all", "name", "number", "of_class"),
        *("parent", "selectors", "tolerations"),
    )

    def __init__(
        self, name: str, parent: str, number: int, asked: ExactRequest | SubRequest, device_class: DeviceClass
    ) -> None:
        """Raises: ClaimProblem."""
        self.name = f"{parent}/{name}" if parent else name
        self.parent = parent or name
        self.number = number
        self.device_class = device_class
        self.is_all = asked.allocation_mode == ALL
        self.count = asked.count
        self.admin_access = isinstance(asked, ExactRequest) and asked.admin_access
        self.tolerations = tuple(asked.tolerations or ())
        self.capacity: Mapping[str, Amount] | None = asked.capacity.requests if asked.capacity else None
        selectors = [*(device_class.spec.selectors or ()), *(asked.selectors or ())]
        if any(one.cel is None for one in selectors):
            raise ClaimProblem(f"request {self.name}: a selector is of a kind that is not known here")
        if asked.derived_attributes:
            raise ClaimProblem(
                f"request {self.name}: derivedAttributes are alpha in Kubernetes 1.37 and not served;"
                " remove them"
            )
        if asked.allocation_mode not in (ALL, EXACT_COUNT):
            raise ClaimProblem(f"request {self.name}: unsupported count mode {asked.allocation_mode}")
        self.of_class = len(device_class.spec.selectors or ())
        self.selectors = tuple(one.cel.expression for one in selectors if one.cel is not None)

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether a device with this taint may be given to it."""
        return not taint.keeps_out or any(one.tolerates(taint) for one in self.tolerations)


class _Channel(msgspec.Struct):
    """What is read of a ComputeDomainChannelConfig."""

    domain: str = msgspec.field(default="", name="domainID")


_decode_channel = msgspec.json.Decoder(_Channel).decode


def domains_of(spec: ResourceClaimSpec) -> frozenset[str]:
    """Returns the UIDs of the ComputeDomains whose channels the claim is for.

    Source: NVIDIA's DRA driver, `api/nvidia.com/resource/v1beta1/computedomainconfig.go`.
    """
    found = set()
    for one in spec.devices.config or ():
        if one.opaque is not None and one.opaque.driver == DOMAIN_DRIVER:
            with contextlib.suppress(msgspec.MsgspecError):  # the driver's to refuse
                found.add(_decode_channel(one.opaque.parameters).domain)
    return frozenset(found - {""})


class Constraint:
    """Devices of these requests have equal values of an attribute, or each another one.

    spares_silent: those without the attribute are let through, which Kubernetes never does.
    """

    __slots__ = ("attribute", "is_distinct", "requests", "spares_silent")

    def __init__(self, asked: ClaimConstraint, *, spares_silent: bool = False) -> None:
        """Raises: ClaimProblem."""
        self.is_distinct = asked.match_attribute is None
        name = asked.distinct_attribute if self.is_distinct else asked.match_attribute
        if name is None:
            raise ClaimProblem("a constraint is of a kind that is not known here")
        self.attribute = name
        self.requests = frozenset(asked.requests or ())
        self.spares_silent = spares_silent

    def concerns(self, request: Request) -> bool:
        """Whether devices of the request count; a constraint on a request is one on all its subrequests."""
        return not self.requests or request.parent in self.requests or request.name in self.requests


class PreparedClaim:
    """choices: for each request, the subrequests of which the first that can be served is; one, if it has
    none."""

    __slots__ = ("choices", "constraints", "domains", "is_prioritized", "n_least", "spec")

    def __init__(self, spec: ResourceClaimSpec, classes: Mapping[str, DeviceClass]) -> None:
        """Raises: ClaimProblem."""
        self.spec = spec
        choices: list[tuple[Request, ...]] = []
        is_prioritized: list[bool] = []
        n = 0
        for asked in spec.devices.requests or ():
            found: list[Request] = []
            for one in asked.first_available or ():
                device_class = _class(classes, one, f"{asked.name}/{one.name}")
                found.append(Request(one.name, asked.name, n + len(found), one, device_class))
            if not asked.first_available:
                exactly = asked.exactly
                if exactly is None:
                    raise ClaimProblem(f"request {asked.name}: it is of a kind that is not known here")
                found.append(Request(asked.name, "", n, exactly, _class(classes, exactly, asked.name)))
            n += len(found)
            choices.append(tuple(found))
            is_prioritized.append(bool(asked.first_available))
        self.choices = tuple(choices)
        self.is_prioritized = tuple(is_prioritized)
        self.domains = domains_of(spec)
        self.constraints = tuple(Constraint(one) for one in spec.devices.constraints or ())
        self.n_least = sum(min(0 if one.is_all else one.count for one in each) for each in self.choices)
        """Devices that it takes at least, those of "All" not counted."""
        if self.n_least > MAX_RESULTS:
            raise ClaimProblem(f"it asks for {self.n_least} devices; at most {MAX_RESULTS} fit one claim")

    def points(self, served: Iterable[str]) -> int:
        """Returns how good the subrequests that are served are: 8 for the first one of a request, 1 less for
        each one after it. served: names of requests, as results name them."""
        names = set(served)
        return sum(
            _MAX_SUBREQUESTS - at
            for each, is_prioritized in zip(self.choices, self.is_prioritized, strict=True)
            if is_prioritized
            for at, one in enumerate(each)
            if one.name in names
        )

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests and subrequests, by number."""
        return tuple(one for each in self.choices for one in each)


def _class(classes: Mapping[str, DeviceClass], asked: ExactRequest | SubRequest, request: str) -> DeviceClass:
    found = classes.get(asked.device_class_name)
    if found is None:
        raise ClaimProblem(f"request {request}: device class {asked.device_class_name} does not exist")
    return found
