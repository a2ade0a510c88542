"""PodDisruptionBudgets. Not here: what they allow (lab.apiserver.kinds.pods.eviction) nor their status (a
controller's).

Source: pkg/registry/policy/poddisruptionbudget, pkg/apis/policy/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

import json
import re

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, invalid_value
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep_all_but_status

_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
_NOT_A_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')"
)


class BudgetStrategy(Strategy):
    has_generation = True
    allows_unconditional_update = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["spec"] = obj.get("spec") or {}
        obj["status"] = _status({})

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            new["status"] = _status(new.get("status") or {})
        else:
            new["spec"] = new.get("spec") or {}
            new["status"] = old["status"]

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        return [] if context.subresource else _spec("spec", new["spec"])


def _status(given: Object) -> Object:
    return {**given, **{key: given.get(key) or 0 for key in _COUNTS}}


def _spec(field: str, spec: Object) -> Problems:
    problems: Problems = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if least is not None and most is not None:
        printed = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": policy,
        }
        text = json.dumps(printed, separators=(",", ":"))
        says = f"Invalid value: {text}: minAvailable and maxUnavailable cannot be both set"
        problems.append(FieldProblem(field, "FieldValueInvalid", says))
    for key, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            problems += _count_or_percentage(f"{field}.{key}", value)
    problems += names.label_selector(f"{field}.selector", spec.get("selector"))
    if policy is not None:
        problems += names.one_of(
            f"{field}.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")
        )
    return problems


def _count_or_percentage(field: str, value: int | str) -> Problems:
    if isinstance(value, int):
        return names.nonnegative(field, value)
    if not re.fullmatch("[0-9]+%", value):
        return [invalid_value(field, value, _NOT_A_PERCENTAGE)]
    return [] if int(value[:-1]) <= 100 else [invalid_value(field, value, "must not be greater than 100%")]
