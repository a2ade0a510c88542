"""Validation of a pod's affinity, spreading and tolerations.

Called by pod_validation.py. Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, label_value_problems
from gangsched.api_rules.status import (
    duplicate_value,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)

Object = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def affinity(field: str, found: Object) -> Problems:
    problems: Problems = []
    if node := found.get("nodeAffinity"):
        if (wanted := node.get(_REQUIRED)) is not None:
            problems += node_selector(f"{field}.nodeAffinity.{_REQUIRED}", wanted)
        for index, term in enumerate(node.get(_PREFERRED) or ()):
            at = f"{field}.nodeAffinity.{_PREFERRED}[{index}]"
            problems += _weight(at, term)
            problems += _node_selector_term(f"{at}.preference", term.get("preference") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = found.get(kind) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            problems += _pod_term(f"{field}.{kind}.{_REQUIRED}[{index}]", term)
        for index, term in enumerate(pods.get(_PREFERRED) or ()):
            at = f"{field}.{kind}.{_PREFERRED}[{index}]"
            problems += _weight(at, term)
            problems += _pod_term(f"{at}.podAffinityTerm", term.get("podAffinityTerm") or {})
    return problems


def _weight(field: str, term: Object) -> Problems:
    weight = term.get("weight") or 0
    if 1 <= weight <= 100:
        return []
    return [invalid_value(f"{field}.weight", weight, "must be in the range 1-100")]


def node_selector(field: str, selector: Object) -> Problems:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")]
    problems: Problems = []
    for index, term in enumerate(terms):
        problems += _node_selector_term(f"{field}.nodeSelectorTerms[{index}]", term)
    return problems


def _node_selector_term(field: str, term: Object) -> Problems:
    problems: Problems = []
    for index, each in enumerate(term.get("matchExpressions") or ()):
        problems += _expression(f"{field}.matchExpressions[{index}]", each)
    for index, each in enumerate(term.get("matchFields") or ()):
        problems += _field_expression(f"{field}.matchFields[{index}]", each)
    return problems


def _expression(field: str, found: Object) -> Problems:
    problems: Problems = []
    operator, values = found.get("operator") or "", found.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            problems.append(
                required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            problems.append(
                forbidden_field(
                    f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            problems.append(
                required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
            )
    else:
        problems.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    problems += names.qualified(f"{field}.key", found.get("key") or "")
    for index, value in enumerate(values):
        problems += names.label_value(f"{field}.values[{index}]", value)
    return problems


def _field_expression(field: str, found: Object) -> Problems:
    problems: Problems = []
    operator, values = found.get("operator") or "", found.get("values") or []
    if operator not in ("In", "NotIn"):
        problems.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        problems.append(
            required(
                f"{field}.values",
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )
        )
    key = found.get("key") or ""
    if key != "metadata.name":
        problems.append(invalid_value(f"{field}.key", key, "not a valid field selector key"))
    else:
        for index, value in enumerate(values):
            problems += names.subdomain(f"{field}.values[{index}]", value)
    return problems


def _pod_term(field: str, term: Object) -> Problems:
    problems = names.label_selector(f"{field}.labelSelector", term.get("labelSelector"))
    problems += names.label_selector(f"{field}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces") or ():
        problems += names.label(f"{field}.namespace", name)
    key = term.get("topologyKey") or ""
    if not key:
        problems.append(required(f"{field}.topologyKey", "can not be empty"))
    return problems + names.qualified(f"{field}.topologyKey", key)


def topology_spread(field: str, constraints: list[Object]) -> Problems:
    problems: Problems = []
    kinds = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for index, each in enumerate(constraints):
        at = f"{field}[{index}]"
        key, action = kinds[index]
        skew = each.get("maxSkew") or 0
        if skew <= 0:
            problems.append(invalid_value(f"{at}.maxSkew", skew, "must be greater than zero"))
        if not key:
            problems.append(required(f"{at}.topologyKey", "can not be empty"))
        problems += names.one_of(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if kinds[index] in kinds[index + 1 :]:
            problems.append(
                duplicate_value(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
            )
        if (domains := each.get("minDomains")) is not None:
            if domains <= 0:
                problems.append(invalid_value(f"{at}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                says = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                problems.append(invalid_value(f"{at}.minDomains", domains, says))
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if policy in each:
                problems += names.one_of(f"{at}.{policy}", each[policy], ("Honor", "Ignore"))
        problems += names.label_selector(f"{at}.labelSelector", each.get("labelSelector"))
    return problems


def tolerations(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    for index, each in enumerate(found):
        problems += _toleration(f"{field}[{index}]", each)
    return problems


def _toleration(field: str, found: Object) -> Problems:
    problems: Problems = []
    key, operator = found.get("key") or "", found.get("operator") or ""
    value, effect = found.get("value") or "", found.get("effect") or ""
    if key:
        problems += names.qualified(f"{field}.key", key)
    elif operator != "Exists":
        problems.append(
            invalid_value(
                f"{field}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        )
    if "tolerationSeconds" in found and effect != "NoExecute":
        problems.append(
            invalid_value(
                f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
            )
        )
    if operator in ("", "Equal"):
        if wrong := label_value_problems(value):
            problems.append(invalid_value(f"{field}.operator", value, ";".join(wrong)))
    elif operator == "Exists":
        if value:
            problems.append(
                invalid_value(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'")
            )
    else:
        problems.append(not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
    if effect:
        problems += names.one_of(f"{field}.effect", effect, EFFECTS)
    return problems
