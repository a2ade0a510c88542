"""Validation of a pod's containers.

Lives here: names, images, ports. Not here: requests and limits (resource_validation.py), volumes
(volume_validation.py). Nowhere: hooks, probes, variables, security contexts, which matter only if containers
run. Called by pod_validation.py.
Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names, resource_validation, volume_validation
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import duplicate_value, not_supported, required

Object = dict[str, Any]


def containers(field: str, found: list[Object], volumes: set[str], claims: frozenset[str]) -> Problems:
    """A pod's regular containers."""
    if not found:
        return [required(field)]
    problems: Problems = []
    seen: set[str] = set()
    for index, container in enumerate(found):
        at = f"{field}[{index}]"
        problems += _common(at, container, volumes, claims)
        name = container.get("name") or ""
        if name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        seen.add(name)
    return problems + _host_port_conflicts(field, found)


def init_containers(
    field: str, found: list[Object], regular: list[Object], volumes: set[str], claims: frozenset[str]
) -> Problems:
    problems: Problems = []
    seen = {each.get("name") or "" for each in regular}
    for index, container in enumerate(found):
        at = f"{field}[{index}]"
        problems += _common(at, container, volumes, claims)
        policy = container.get("restartPolicy")
        if policy is not None and policy != "Always":
            problems.append(not_supported(f"{at}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
        name = container.get("name") or ""
        if name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        elif name:
            seen.add(name)
        problems += _host_port_conflicts(field, [container])
    return problems


def _common(field: str, container: Object, volumes: set[str], claims: frozenset[str]) -> Problems:
    problems: Problems = []
    name, image = container.get("name") or "", container.get("image") or ""
    problems += names.label(f"{field}.name", name) if name else [required(f"{field}.name")]
    if not image:
        problems.append(required(f"{field}.image"))
    if "ports" in container:
        problems += _ports(f"{field}.ports", container["ports"])
    if "volumeMounts" in container:
        problems += volume_validation.mounts(f"{field}.volumeMounts", container["volumeMounts"], volumes)
    problems += names.one_of(
        f"{field}.imagePullPolicy", container["imagePullPolicy"], ("Always", "IfNotPresent", "Never")
    )
    if container["resources"]:
        problems += resource_validation.requirements(f"{field}.resources", container["resources"], claims)
    return problems


def _ports(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for index, port in enumerate(found):
        at = f"{field}[{index}]"
        if name := port.get("name"):
            wrong = names.port_name(f"{at}.name", name)
            if not wrong and name in seen:
                wrong = [duplicate_value(f"{at}.name", name)]
            seen.add(name)
            problems += wrong
        number = port.get("containerPort") or 0
        problems += (
            names.port_number(f"{at}.containerPort", number) if number else [required(f"{at}.containerPort")]
        )
        if host := port.get("hostPort"):
            problems += names.port_number(f"{at}.hostPort", host)
        problems += names.one_of(f"{at}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
    return problems


def _host_port_conflicts(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for index, container in enumerate(found):
        for position, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            text = f"{port['protocol']}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if text in seen:
                problems.append(duplicate_value(f"{field}[{index}].ports[{position}].hostPort", text))
            seen.add(text)
    return problems
