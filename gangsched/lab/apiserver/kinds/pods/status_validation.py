"""Validation of a pod's status in an update. Called by the pods' strategy.

Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, qualified_name_problems
from gangsched.api_rules.status import duplicate_value, forbidden_field, invalid_value, required
from gangsched.lab.apiserver.strategy import Object


def status_problems(new: Object, old: Object) -> Problems:
    """Returns the problems of a status update. Both are whole pods (ValidatePodStatusUpdate)."""
    status, before = new.get("status") or {}, old.get("status") or {}
    problems: Problems = []
    for index, condition in enumerate(status.get("conditions") or ()):
        type_ = condition.get("type") or ""
        if type_ not in ("PodScheduled", "Ready", "Initialized"):
            problems += [
                invalid_value(f"status.conditions[{index}].Type", type_, each)
                for each in qualified_name_problems(type_)
            ]
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != before.get("nominatedNodeName"):
        problems += names.subdomain("status.nominatedNodeName", nominated)
        if old["spec"].get("nodeName"):
            problems.append(
                forbidden_field(
                    "status.nominatedNodeName", "may not be set on pods that are already bound to a node"
                )
            )
    quality = status.get("qosClass")
    if quality != before.get("qosClass"):
        problems.append(invalid_value("status.qosClass", quality, "field is immutable"))
    problems += _terminated_stay_so(
        status.get("containerStatuses") or [], before.get("containerStatuses") or [], old["spec"]
    )
    problems += _claims(status.get("resourceClaimStatuses") or [], old["spec"])
    if (extended := status.get("extendedResourceClaimStatus")) is not None:
        problems += _extended("status.extendedResourceClaimStatus", extended, old["spec"])
    return problems + _ip_problems(status, before)


def _claims(found: list[Object], spec: Object) -> Problems:
    """The names of the claims that were made from templates."""
    known = {each.get("name") or "" for each in spec.get("resourceClaims") or ()}
    problems: Problems = []
    seen: set[str] = set()
    for index, each in enumerate(found):
        at, name = f"status.resourceClaimStatuses[{index}]", each.get("name") or ""
        if name not in known:
            says = "must match the name of an entry in `spec.resourceClaims`"
            problems.append(invalid_value(f"{at}.name", name, says))
        if name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        seen.add(name)
        if (claim := each.get("resourceClaimName")) is not None:
            problems += names.subdomain(f"{at}.resourceClaimName", claim)
    return problems


def _extended(field: str, found: Object, spec: Object) -> Problems:
    """Which request of a scheduler's own claim serves which extended resource of which container."""
    containers = {
        each.get("name"): (each.get("resources") or {}).get("requests") or {}
        for each in (*(spec.get("initContainers") or ()), *spec["containers"])
    }
    mappings = found.get("requestMappings") or []
    problems: Problems = []
    if not mappings:
        problems.append(required(f"{field}.requestMappings", "at least one request mapping is required"))
    keys = ("containerName", "resourceName", "requestName")
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        at = f"{field}.requestMappings[{index}]"
        container, resource, request = mapped = tuple(mapping.get(key) or "" for key in keys)
        if container not in containers:
            says = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            problems.append(invalid_value(f"{at}.containerName", container, says))
        elif resource not in containers[container]:
            says = (
                "must match the extended resource name of an entry in "
                "spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            problems.append(invalid_value(f"{at}.resourceName", resource, says))
        problems += names.label(f"{field}.requestName", request)
        if mapped in seen:
            problems += [
                duplicate_value(f"{at}.{key}", value) for key, value in zip(keys, mapped, strict=True)
            ]
        seen.add(mapped)
    name = found.get("resourceClaimName") or ""
    at = f"{field}.resourceClaimName"
    return problems + (names.subdomain(at, name) if name else [required(at)])


def _terminated_stay_so(now: list[Object], before: list[Object], spec: Object) -> Problems:
    policy = spec.get("restartPolicy")
    if policy == "Always":
        return []
    problems: Problems = []
    running = {each.get("name") for each in now if "terminated" not in (each.get("state") or {})}
    for index, each in enumerate(before):
        ended = (each.get("state") or {}).get("terminated")
        if ended is None or each.get("name") not in running:
            continue
        if policy == "OnFailure" and ended.get("exitCode"):
            continue
        problems.append(
            forbidden_field(
                f"status.containerStatuses[{index}].state", "may not be transitioned to non-terminated state"
            )
        )
    return problems


def _ip_problems(status: Object, before: Object) -> Problems:
    problems: Problems = []
    for key in ("podIPs", "hostIPs"):
        known = {each.get("ip") for each in before.get(key) or ()}
        for index, each in enumerate(status.get(key) or ()):
            if each.get("ip") not in known:
                problems += names.ip(f"status.{key}[{index}]", each.get("ip") or "")
    return problems
