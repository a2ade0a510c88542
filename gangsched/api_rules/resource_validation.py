"""Validation of a container's requests and limits, and of a pod's claims of devices.

Lives here: validation of resource names, amounts and claims. Called by container_validation.py and
pod_validation.py, and for nodes by the embedded API server; the quantities are canonical by then. Source:
pkg/apis/core/validation/validation.go and pkg/apis/core/helper of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names
from gangsched.api_rules.canonical import quantity
from gangsched.api_rules.names import Problems, qualified_name_problems
from gangsched.api_rules.status import (
    NOT_FOUND,
    duplicate_value,
    field_problem,
    forbidden_field,
    invalid_value,
    required,
)

Object = dict[str, Any]

_STANDARD_OF_CONTAINERS = frozenset(("cpu", "memory", "ephemeral-storage"))
_INTEGER = frozenset(
    [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
    ]
)
_STANDARD = (
    _STANDARD_OF_CONTAINERS
    | _INTEGER
    | frozenset(
        [
            "storage",
            "requests.cpu",
            "requests.memory",
            "requests.storage",
            "requests.ephemeral-storage",
            "limits.cpu",
            "limits.memory",
            "limits.ephemeral-storage",
        ]
    )
)
_HUGE_PAGES = "hugepages-"


def is_native(name: str) -> bool:
    """Whether it is the core's own: without a domain, or in a domain of kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name_problems(f"requests.{name}")


def _may_be_overcommitted(name: str) -> bool:
    return is_native(name) and not name.startswith(_HUGE_PAGES)


def amount(field: str, name: str, text: str) -> Problems:
    value = quantity(text).value
    problems: Problems = []
    if value < 0:
        problems.append(invalid_value(field, text, "must be greater than or equal to 0"))
    if (name in _INTEGER or _is_extended(name)) and value != int(value):
        problems.append(invalid_value(field, text, "must be an integer"))
    return problems


def _name_of_a_container(field: str, name: str) -> Problems:
    problems = names.qualified(field, name)
    bare = "/" not in name
    huge = name.startswith(_HUGE_PAGES)
    if not problems and bare and name not in _STANDARD and not huge:
        problems.append(invalid_value(field, name, "must be a standard resource type or fully qualified"))
    if bare:
        if name not in _STANDARD_OF_CONTAINERS and not huge:
            problems.append(invalid_value(field, name, "must be a standard resource for containers"))
    elif not is_native(name) and not _is_extended(name):
        problems.append(invalid_value(field, name, "doesn't follow extended resource name standard"))
    return problems


def requirements(field: str, found: Object, claim_names: frozenset[str]) -> Problems:
    """Checks a container's `resources`."""
    problems: Problems = []
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    for name, text in limits.items():
        at = f"{field}.limits[{name}]"
        problems += _name_of_a_container(at, name) + amount(at, name, text)
    for name, text in requests.items():
        at = f"{field}.requests[{name}]"
        problems += _name_of_a_container(at, name) + amount(at, name, text)
        problems += _against_limit(field, name, text, limits.get(name))
    if any(name.startswith(_HUGE_PAGES) for name in (*limits, *requests)) and not (
        {"cpu", "memory"} & {*limits, *requests}
    ):
        problems.append(forbidden_field(field, "HugePages require cpu or memory"))
    return problems + _claims(f"{field}.claims", found.get("claims") or [], claim_names)


def _against_limit(field: str, name: str, text: str, limit: str | None) -> Problems:
    may_differ = _may_be_overcommitted(name)
    if limit is None:
        if may_differ:
            return []
        return [required(f"{field}.limits", "Limit must be set for non overcommitable resources")]
    request_value, limit_value = quantity(text).value, quantity(limit).value
    if request_value != limit_value and not may_differ:
        says = f"must be equal to {name} limit of {limit}"
    elif request_value > limit_value:
        says = f"must be less than or equal to {name} limit of {limit}"
    else:
        return []
    return [invalid_value(f"{field}.requests", text, says)]


def _claims(field: str, claims: list[Object], known: frozenset[str]) -> Problems:
    """Claims of devices that a container uses, whole or by request."""
    problems: Problems = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        at, name, request = f"{field}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            problems.append(required(at))
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            problems.append(duplicate_value(at, name))
        else:
            if request:
                problems += names.label(f"{at}.request", request)
            overlap = not request and any(each.startswith(f"{name}/") for each in seen)
            if key in seen or overlap:
                problems.append(duplicate_value(at, key))
            seen.add(key)
        if name not in known:
            says = "must be one of the names in pod.spec.resourceClaims"
            says += f": {', '.join(sorted(known))}" if known else " which is empty"
            problems.append(field_problem(NOT_FOUND, at, says, name))
    return problems


def pod_claims(field: str, claims: list[Object]) -> Problems:
    """A pod's claims of devices: each by name, or from a template."""
    problems: Problems = []
    seen: set[str] = set()
    keys = ("resourceClaimName", "resourceClaimTemplateName")
    for index, claim in enumerate(claims):
        at, name = f"{field}[{index}]", claim.get("name") or ""
        if not name:
            problems.append(required(f"{at}.name"))
        elif name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        else:
            problems += names.label(f"{at}.name", name)
        seen.add(name)
        shown = {key[0].upper() + key[1:]: claim.get(key) for key in keys}
        given = [key for key in keys if claim.get(key) is not None]
        if len(given) != 1:
            says = (
                "at most one of `{}` or `{}` may be specified" if given else "must specify one of: `{}`, `{}`"
            )
            problems.append(invalid_value(at, {"Name": name, **shown}, says.format(*keys)))
        for key in given:
            problems += names.subdomain(f"{at}.{key}", claim[key])
    return problems
