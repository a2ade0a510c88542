"""Validation of names and small values inside objects; each problem names its field.

Lives here: one function a rule, each answering with FieldProblems. Not here: metadata's own names
(apiserver/metadata.py), which use the same rules. Called by the kinds' validation.
Source: k8s.io/apimachinery pkg/util/validation/validation.go.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any

from gangsched.lab.apiserver.metadata import label_value_problems, name_problems, qualified_name_problems
from gangsched.lab.apiserver.status import FieldProblem, invalid_value, not_supported, required

Problems = list[FieldProblem]

INT32_MAX = 2**31 - 1
_PORT_NAME = re.compile(r"[-a-z0-9]+\Z")


def label(field: str, value: str) -> Problems:
    return [invalid_value(field, value, each) for each in name_problems(value, "label")]


def subdomain(field: str, value: str) -> Problems:
    return [invalid_value(field, value, each) for each in name_problems(value, "subdomain")]


def label1035(field: str, value: str) -> Problems:
    return [invalid_value(field, value, each) for each in name_problems(value, "label1035")]


def qualified(field: str, value: str) -> Problems:
    return [invalid_value(field, value, each) for each in qualified_name_problems(value)]


def label_value(field: str, value: str) -> Problems:
    return [invalid_value(field, value, each) for each in label_value_problems(value)]


def labels(field: str, found: dict[str, str] | None) -> Problems:
    problems: Problems = []
    for key, value in (found or {}).items():
        problems += qualified(field, key)
        problems += label_value(field, value)
    return problems


def one_of(field: str, value: str, supported: tuple[str, ...]) -> Problems:
    return [] if value in supported else [not_supported(field, value, supported)]


def in_range(field: str, value: int, low: int, high: int) -> Problems:
    if low <= value <= high:
        return []
    return [invalid_value(field, value, f"must be between {low} and {high}, inclusive")]


def nonnegative(field: str, value: int) -> Problems:
    return [] if value >= 0 else [invalid_value(field, value, "must be greater than or equal to 0")]


def port_number(field: str, value: int) -> Problems:
    return in_range(field, value, 1, 65535)


def port_name(field: str, value: str) -> Problems:
    says: list[str] = []
    if len(value) > 15:
        says.append("must be no more than 15 characters")
    if not _PORT_NAME.match(value):
        says.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        says.append("must contain at least one letter (a-z)")
    if "--" in value:
        says.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        says.append("must not begin or end with a hyphen")
    return [invalid_value(field, value, each) for each in says]


def port(field: str, value: Any) -> Problems:
    """A number or a name."""
    return port_name(field, value) if isinstance(value, str) else port_number(field, value or 0)


def ip(field: str, value: str) -> Problems:
    try:
        ip_address(value)
    except ValueError:
        return [invalid_value(field, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    return []


def label_selector(field: str, selector: dict[str, Any] | None) -> Problems:
    """Source: k8s.io/apimachinery pkg/apis/meta/v1/validation/validation.go."""
    if selector is None:
        return []
    problems = labels(f"{field}.matchLabels", selector.get("matchLabels"))
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        at = f"{field}.matchExpressions[{index}]"
        operator, values = each.get("operator") or "", each.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                problems.append(
                    required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                )
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                problems.append(
                    FieldProblem(
                        f"{at}.values",
                        "FieldValueForbidden",
                        "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    )
                )
        else:
            problems.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        problems += qualified(f"{at}.key", each.get("key") or "")
        for position, value in enumerate(values):
            problems += label_value(f"{at}.values[{position}]", value)
    return problems
