"""Nodes: creation may include a status; taints and resources are validated.

Lives here: the strategy. Not here: what keeps a node's status up to date (the simulated kubelets and the node
lifecycle). Source: pkg/registry/core/node/strategy.go, pkg/apis/core/validation (ValidateNode) of Kubernetes
1.37.
"""

from __future__ import annotations

import json

from gangsched.api_rules import names, resource_validation
from gangsched.api_rules.affinity_validation import EFFECTS
from gangsched.api_rules.canonical import canonical_list, tidy
from gangsched.api_rules.names import Problems, label_value_problems
from gangsched.api_rules.status import FieldProblem, invalid_value, required
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep

NOT_READY: Object = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class NodeStrategy(Strategy):
    """`not_ready_taint`: a new node is tainted until the node lifecycle finds it ready
    (TaintNodesByCondition)."""

    keeps_status = True

    def __init__(self, *, not_ready_taint: bool = False) -> None:
        self._not_ready_taint = not_ready_taint

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)
        if self._not_ready_taint:
            taints = obj["spec"].setdefault("taints", [])
            if not any(each.get("key") == NOT_READY["key"] for each in taints):
                taints.append(dict(NOT_READY))

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        keep("spec" if context.subresource == "status" else "status", new, old)
        _default(new)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems: Problems = []
        status = new["status"]
        if old is None or status != old["status"]:
            problems += _resources(status)
        if old is None or new["spec"] != old["spec"]:
            problems += _taints("metadata.taints", new["spec"].get("taints") or [])
        return problems

    def fields(self, obj: Object) -> dict[str, str]:
        return {"spec.unschedulable": "true" if obj["spec"].get("unschedulable") else "false"}

    def field_names(self) -> tuple[str, ...]:
        return ("spec.unschedulable",)


def _default(node: Object) -> None:
    spec = node.get("spec")
    if spec is None:
        spec = node["spec"] = {}
    tidy(spec)
    if not spec.get("unschedulable"):
        spec.pop("unschedulable", None)
    # The older field, which holds a single range, takes precedence.
    if (known := spec.get("podCIDR")) and (spec.get("podCIDRs") or [""])[0] != known:
        spec["podCIDRs"] = [known]
    status = node.get("status")
    if status is None:
        status = node["status"] = {}
    for key in ("capacity", "allocatable"):
        canonical_list(status.get(key), "Node")
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for condition in status.get("conditions") or ():
        condition.setdefault("lastHeartbeatTime", None)
        condition.setdefault("lastTransitionTime", None)
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    info = status.setdefault("nodeInfo", {})
    for key in _NODE_INFO:
        if key not in info:
            info[key] = ""


def _resources(status: Object) -> Problems:
    problems: Problems = []
    for key in ("capacity", "allocatable"):
        for name, text in (status.get(key) or {}).items():
            problems += resource_validation.amount(f"status.{key}.{name}", name, text)
    return problems


def _taints(field: str, taints: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"{field}[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        problems += names.qualified(f"{at}.key", key)
        if wrong := label_value_problems(value):
            problems.append(invalid_value(f"{at}.value", value, ";".join(wrong)))
        if not effect:
            problems.append(required(f"{at}.effect"))
        else:
            problems += names.one_of(f"{at}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            printed = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            problems.append(_duplicate(at, printed, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return problems


def _duplicate(field: str, value: Object, detail: str = "") -> FieldProblem:
    message = f"Duplicate value: {json.dumps(value, separators=(',', ':'))}"
    return FieldProblem(field, "FieldValueDuplicate", f"{message}: {detail}" if detail else message)
