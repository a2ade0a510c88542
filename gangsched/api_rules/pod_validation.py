"""Validation of a pod's spec, at creation and in an update.

Lives here: the spec as a whole; its parts are beside it (container_, volume_, affinity_, resource_
validation.py). Not here: defaults, admission, its status. Nowhere: host names, DNS, readiness gates,
operating systems, which no scheduler reads. Called by whatif, by jobs, and by the embedded API server.
Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import (
    affinity_validation,
    container_validation,
    names,
    resource_validation,
    volume_validation,
)
from gangsched.api_rules.names import INT32_MAX, Problems
from gangsched.api_rules.status import FieldProblem, duplicate_value, forbidden_field, invalid_value

Object = dict[str, Any]

RESTART_POLICIES = ("Always", "OnFailure", "Never")


def spec_problems(field: str, spec: Object) -> Problems:
    """Checks the rules common to pods and templates (ValidatePodSpec)."""
    known, problems = volume_validation.volumes(f"{field}.volumes", spec.get("volumes") or [])
    asked = spec.get("resourceClaims") or []
    claims = frozenset(each["name"] for each in asked if each.get("name"))
    problems += resource_validation.pod_claims(f"{field}.resourceClaims", asked)
    regular = spec.get("containers") or []
    problems += container_validation.containers(f"{field}.containers", regular, known, claims)
    if initial := spec.get("initContainers"):
        problems += container_validation.init_containers(
            f"{field}.initContainers", initial, regular, known, claims
        )
    if spec.get("hostNetwork"):
        problems += _host_network(f"{field}.containers", regular)
    problems += names.one_of(f"{field}.restartPolicy", spec["restartPolicy"], RESTART_POLICIES)
    problems += names.labels(f"{field}.nodeSelector", spec.get("nodeSelector"))
    if found := spec.get("affinity"):
        problems += affinity_validation.affinity(f"{field}.affinity", found)
    problems += _gates(f"{field}.schedulingGates", spec.get("schedulingGates") or [])
    if found := spec.get("topologySpreadConstraints"):
        problems += affinity_validation.topology_spread(f"{field}.topologySpreadConstraints", found)
    return problems + _small_fields(field, spec)


def _small_fields(field: str, spec: Object) -> Problems:
    problems: Problems = []
    for key in ("serviceAccountName", "nodeName"):
        if value := spec.get(key):
            problems += names.subdomain(f"{field}.{key}", value)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        problems += names.in_range(f"{field}.activeDeadlineSeconds", deadline, 1, INT32_MAX)
    if found := spec.get("tolerations"):
        problems += affinity_validation.tolerations(f"{field}.tolerations", found)
    if value := spec.get("priorityClassName"):
        problems += names.subdomain(f"{field}.priorityClassName", value)
    if (policy := spec.get("preemptionPolicy")) is not None:
        problems += names.one_of(f"{field}.preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))
    if (group := spec.get("schedulingGroup")) is not None:
        at = f"{field}.schedulingGroup.podGroupName"
        if (name := group.get("podGroupName")) is None:
            problems.append(
                FieldProblem(
                    at, "FieldValueInvalid", "Invalid value: null: must specify one of: `podGroupName`"
                )
            )
        else:
            problems += names.subdomain(at, name)
    return problems


def _host_network(field: str, containers: list[Object]) -> Problems:
    return [
        invalid_value(
            f"{field}[{index}].ports[{position}].hostPort",
            port.get("hostPort") or 0,
            "must match `containerPort` when `hostNetwork` is true",
        )
        for index, container in enumerate(containers)
        for position, port in enumerate(container.get("ports") or ())
        if port.get("hostPort") != port.get("containerPort")
    ]


def _gates(field: str, gates: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        problems += names.qualified(f"{field}[{index}]", name)
        if name in seen:
            problems.append(duplicate_value(f"{field}[{index}]", name))
        seen.add(name)
    return problems


def creation_problems(pod: Object) -> Problems:
    problems = spec_problems("spec", pod["spec"])
    if pod["spec"].get("schedulingGates") and pod["spec"].get("nodeName"):
        problems.append(
            forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    return problems
