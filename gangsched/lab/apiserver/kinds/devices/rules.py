"""Rules for the names and small values that several kinds of devices share.

Called by the other files of this room alone. Each function answers with the problems of one field. Two forms
of a rule are two wordings: `declared_...` is the declarative one, which the server uses for some fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, name_problems, qualified_name_problems
from gangsched.api_rules.status import (
    INVALID,
    TOO_LONG,
    TOO_MANY,
    FieldProblem,
    duplicate_value,
    field_problem,
    invalid_value,
    required,
)
from gangsched.lab.apiserver.strategy import Object

MAX_DRIVER = 63
MAX_POOL = 253
MAX_IDENTIFIER = 32
MAX_PARAMETERS_BYTES = 10 * 1024
MAX_CONDITIONS = 4
EFFECTS = ("NoExecute", "NoSchedule", "None")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_IDENTIFIER_SAYS = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)
_ANY_CASE_SAYS = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'Example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_REASON_SAYS = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  "
    "or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TAKES_NO_VALUE = "must be empty for operator `Exists`"


def too_many(field: str, count: int, limit: int) -> Problems:
    return [field_problem(TOO_MANY, field, f"must have at most {limit} items", count)]


def too_long(field: str, limit: int, unit: str = "bytes") -> FieldProblem:
    return field_problem(TOO_LONG, field, f"may not be more than {limit} {unit}")


def each(
    field: str, found: Sequence[Any] | None, limit: int, check: Callable[[str, Any], Problems]
) -> Problems:
    """Checks a list's entries, unless there are too many of them."""
    found = found or ()
    if len(found) > limit:
        return too_many(field, len(found), limit)
    return [problem for index, one in enumerate(found) for problem in check(f"{field}[{index}]", one)]


def unique(
    field: str,
    found: Sequence[Any] | None,
    key: Callable[[Any], object],
    printed: Callable[[Any], Any] = lambda one: one,
) -> Problems:
    """Names the entries whose key an earlier one has."""
    seen: set[object] = set()
    problems: Problems = []
    for index, one in enumerate(found or ()):
        if (known := key(one)) in seen:
            problems.append(duplicate_value(f"{field}[{index}]", printed(one)))
        seen.add(known)
    return problems


def once(problems: Problems) -> Problems:
    """Without those that are equal to an earlier one, which these kinds do not report again."""
    return list(dict.fromkeys(problems))


def in_order(obj: Mapping[str, Any], keys: Iterable[str]) -> Object:
    """The object with its fields in the order of the Go type, in which messages print them."""
    return {key: obj[key] for key in keys if key in obj}


def immutable(field: str, value: Any = None) -> FieldProblem:
    """Without a value, as the declarative rule prints it."""
    says = "field is immutable"
    if value is None:
        return FieldProblem(field, "FieldValueInvalid", f"{INVALID}: null: {says}")
    return invalid_value(field, value, says)


def subdomain(field: str, value: str, before: str = "") -> Problems:
    return [invalid_value(field, value, before + says) for says in name_problems(value, "subdomain", "bytes")]


def driver(field: str, value: str) -> Problems:
    if not value:
        return [required(field)]
    problems = [too_long(field, MAX_DRIVER)] if len(value) > MAX_DRIVER else []
    return problems + [
        invalid_value(field, value, says) for says in name_problems(value.lower(), "subdomain", "bytes")
    ]


def declared_driver(field: str, value: str) -> Problems:
    if not value:
        return [required(field)]
    problems = [too_long(field, MAX_DRIVER, "characters")] if len(value) > MAX_DRIVER else []
    if name_problems(value.lower(), "subdomain"):
        problems.append(invalid_value(field, value, _ANY_CASE_SAYS))
    return problems


def pool(field: str, value: str) -> Problems:
    if not value:
        return [required(field)]
    problems = [too_long(field, MAX_POOL)] if len(value) > MAX_POOL else []
    return problems + [problem for part in value.split("/") for problem in subdomain(field, part)]


def declared_pool(field: str, value: str) -> Problems:
    if not value:
        return [required(field)]
    problems = [too_long(field, MAX_POOL)] if len(value) > MAX_POOL else []
    for index, part in enumerate(value.split("/")):
        if not part:
            problems.append(invalid_value(field, value, f"segment {index}: must not be empty"))
        else:
            problems += subdomain(field, part, f"segment {index}: ")
    return problems


def identifier(field: str, value: str) -> Problems:
    problems = [too_long(field, MAX_IDENTIFIER)] if len(value) > MAX_IDENTIFIER else []
    if not _IDENTIFIER.match(value):
        problems.append(invalid_value(field, value, _IDENTIFIER_SAYS))
    return problems


def attribute_name(field: str, value: str) -> Problems:
    """An attribute's or a capacity's name, with or without a domain."""
    domain, slash, name = value.partition("/")
    if not slash:
        return identifier(field, value)
    if "/" in name:
        return []  # the server accepts any name with two slashes
    problems = driver(field, domain) if domain else [invalid_value(field, "", "the domain must not be empty")]
    return problems + (
        identifier(field, name) if name else [invalid_value(field, "", "the name must not be empty")]
    )


def full_attribute_name(field: str, value: str) -> Problems:
    """The name that a constraint looks at, which must have a domain."""
    domain, slash, name = value.partition("/")
    if not slash:
        says = "a fully qualified name must be a domain and a name separated by a slash"
        return [*identifier(field, value), invalid_value(field, value, says)]
    if "/" in name:
        return []
    problems: Problems = []
    if not domain:
        problems.append(invalid_value(field, "", "prefix must not be empty"))
    else:
        if len(domain) > MAX_DRIVER:
            problems.append(too_long(field, MAX_DRIVER))
        problems += subdomain(field, domain, "prefix: ")
    return problems + (
        identifier(field, name) if name else [invalid_value(field, "", "name must not be empty")]
    )


def share_id(field: str, value: str | None) -> Problems:
    if value is None or _UUID.match(value):
        return []
    return [invalid_value(field, value, "must be a lowercase UUID in 8-4-4-4-12 format")]


def opaque(field: str, config: Object) -> Problems:
    """A driver's own configuration, of which the server knows the driver alone."""
    found = config.get("opaque")
    if found is None:
        return [required(f"{field}.opaque")]
    problems = declared_driver(f"{field}.opaque.driver", found.get("driver") or "")
    return problems + raw(f"{field}.opaque.parameters", found.get("parameters"), MAX_PARAMETERS_BYTES)


def raw(field: str, value: Any, limit: int) -> Problems:
    """An object whose content is another program's."""
    if value is None:
        return [required(field)]
    if len(msgspec.json.encode(value)) > limit:
        return [too_long(field, limit)]
    if not isinstance(value, dict):
        return [invalid_value(field, "<value omitted>", "must be a valid JSON object")]
    return []


def label_key(field: str, value: str) -> Problems:
    return [invalid_value(field, value, says) for says in qualified_name_problems(value, "a valid label key")]


def taint(field: str, found: Object) -> Problems:
    problems = label_key(f"{field}.key", found.get("key") or "")
    problems += names.label_value(f"{field}.value", found.get("value") or "")
    effect = found.get("effect") or ""
    return problems + (
        names.one_of(f"{field}.effect", effect, EFFECTS) if effect else [required(f"{field}.effect")]
    )


def toleration(field: str, found: Object) -> Problems:
    problems: Problems = []
    if key := found.get("key"):
        problems += label_key(f"{field}.key", key)
    value = found.get("value") or ""
    match found.get("operator"):
        case "Exists":
            if value:
                problems.append(invalid_value(f"{field}.value", value, _TAKES_NO_VALUE))
        case "Equal":
            problems += names.label_value(f"{field}.value", value)
        case other:
            problems += names.one_of(f"{field}.operator", other or "", ("Equal", "Exists"))
    if effect := found.get("effect"):
        problems += names.one_of(f"{field}.effect", effect, EFFECTS)
    return problems


def tolerations(field: str, found: Sequence[Object] | None) -> Problems:
    return [
        problem for index, one in enumerate(found or ()) for problem in toleration(f"{field}[{index}]", one)
    ]


def binding_conditions(field: str, found: Object) -> Problems:
    """The conditions that a device's binding waits for, and those that end it: both or none."""
    keys = ("bindingConditions", "bindingFailureConditions")
    wanted, failures = (found.get(key) or [] for key in keys)
    problems: Problems = []
    for key, types in zip(keys, (wanted, failures), strict=True):
        problems += each(f"{field}.{key}", types, MAX_CONDITIONS, label_key)
        problems += unique(f"{field}.{key}", types, lambda type_: type_)
    problems += [
        invalid_value(f"{field}.{keys[1]}[{index}]", type_, f"{keys[1]} must not overlap with {keys[0]}")
        for index, type_ in enumerate(failures)
        if type_ in wanted and type_ not in failures[:index]
    ]
    for missing, given, says in (
        (wanted, failures, (keys[0], keys[1])),
        (failures, wanted, (keys[1], keys[0])),
    ):
        if given and not missing:
            text = f"{INVALID}: null: {says[0]} are required to use {says[1]}"
            problems.append(FieldProblem(f"{field}.{says[0]}", "FieldValueInvalid", text))
    return problems


def conditions(field: str, found: Sequence[Object] | None) -> Problems:
    """metav1.Condition. Source: apimachinery pkg/apis/meta/v1/validation (ValidateConditions)."""
    problems = unique(field, found, lambda one: one.get("type") or "", lambda one: one.get("type") or "")
    for index, condition in enumerate(found or ()):
        at = f"{field}[{index}]"
        type_, status, reason = (condition.get(key) or "" for key in ("type", "status", "reason"))
        problems += label_key(f"{at}.type", type_) if type_ else [required(f"{at}.type", "is required")]
        where = f"{at}.status"
        problems += names.one_of(where, status, ("False", "True", "Unknown")) if status else [required(where)]
        if (generation := condition.get("observedGeneration") or 0) < 0:
            says = "must be greater than or equal to zero"
            problems.append(invalid_value(f"{at}.observedGeneration", generation, says))
        if not condition.get("lastTransitionTime"):
            problems.append(required(f"{at}.lastTransitionTime"))
        if not reason:
            problems.append(required(f"{at}.reason"))
        elif not _REASON.match(reason):
            problems.append(invalid_value(f"{at}.reason", reason, _REASON_SAYS))
    return problems


def without_empty(obj: Object, keys: Iterable[str]) -> None:
    """Removes empty texts and zeros, in place, which these fields omit."""
    for key in keys:
        if not obj.get(key):
            obj.pop(key, None)
