"""Validation of a pod's spec, at creation and in an update, and of its status.

Lives here: the spec as a whole; its parts are beside it (container_, volume_, affinity_, resource_
validation.py). Not here: defaults, admission. Nowhere: host names, DNS, readiness gates, operating systems,
which no scheduler reads. Called by the pods' strategy and, for templates, by jobs. Source:
pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.kinds import (
    affinity_validation,
    container_validation,
    names,
    volume_validation,
)
from gangsched.lab.apiserver.kinds.names import INT32_MAX, Problems
from gangsched.lab.apiserver.metadata import qualified_name_problems
from gangsched.lab.apiserver.status import (
    FieldProblem,
    duplicate_value,
    forbidden_field,
    invalid_value,
)

Object = dict[str, Any]

RESTART_POLICIES = ("Always", "OnFailure", "Never")


def spec_problems(field: str, spec: Object) -> Problems:
    """Checks the rules common to pods and templates (ValidatePodSpec)."""
    known, problems = volume_validation.volumes(f"{field}.volumes", spec.get("volumes") or [])
    claims = frozenset(each.get("name") or "" for each in spec.get("resourceClaims") or ())
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
    return problems + _ip_problems(status, before)


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
