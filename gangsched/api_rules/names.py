"""Validation of names and small values inside objects; each problem names its field.

Lives here: the rules, whose functions answer with texts (`..._problems`), and one function a rule that
answers with FieldProblems. Called by the validation of pods and Jobs, and by the embedded API server, for
metadata too. Source: k8s.io/apimachinery pkg/util/validation/validation.go.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any

from gangsched.api_rules.status import FieldProblem, invalid_value, not_supported, required

Problems = list[FieldProblem]

INT32_MAX = 2**31 - 1
_PORT_NAME = re.compile(r"[-a-z0-9]+\Z")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IS_LABEL = re.compile(f"{_LABEL}\\Z")
_IS_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_IS_SUBDOMAIN = re.compile(f"{_LABEL}(\\.{_LABEL})*\\Z")
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IS_QUALIFIED = re.compile(f"{_QUALIFIED}\\Z")
_LIMIT_BYTES = 63

_SUBDOMAIN_SAYS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_SAYS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_SAYS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_SAYS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation "
    "is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def name_problems(name: str, rule: str, unit: str = "characters") -> list[str]:
    """Returns what is wrong with a name by one of the rules: subdomain, label, label1035, path, any.

    Lengths are in bytes; for object names the server's message calls them characters.
    """
    if rule == "any":
        return []
    if rule == "path":
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{each}'" for each in "/%" if each in name]
    limit, pattern, says = {
        "subdomain": (253, _IS_SUBDOMAIN, _SUBDOMAIN_SAYS),
        "label": (63, _IS_LABEL, _LABEL_SAYS),
        "label1035": (63, _IS_LABEL_1035, _LABEL_1035_SAYS),
    }[rule]
    problems = [] if len(name.encode()) <= limit else [f"must be no more than {limit} {unit}"]
    if not pattern.match(name):
        dots_alone = rule == "label" and _IS_SUBDOMAIN.match(name)
        problems.append("must not contain dots" if dots_alone else says)
    return problems


def qualified_name_problems(key: str, called: str = "a qualified name") -> list[str]:
    """Returns what is wrong with a label's or annotation's key, or a finalizer's name."""
    prefix, slash, name = key.rpartition("/")
    problems: list[str] = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        elif "/" in prefix:
            return [
                f"{called} "
                + _QUALIFIED_SAYS.removeprefix("name part ")
                + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        else:
            problems += [f"prefix part {each}" for each in name_problems(prefix, "subdomain", "bytes")]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _IS_QUALIFIED.match(name):
        problems.append(_QUALIFIED_SAYS)
    return problems


def label_value_problem(value: str) -> str:
    """Returns what is wrong with a label's value, in the server's words; empty if nothing."""
    if len(value.encode()) > _LIMIT_BYTES:
        return f"must be no more than {_LIMIT_BYTES} bytes"
    return "" if not value or _IS_QUALIFIED.match(value) else _VALUE_RULE


def label_value_problems(value: str) -> list[str]:
    wrong = label_value_problem(value)
    return [wrong] if wrong else []


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
