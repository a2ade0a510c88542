"""What a claim asks for: its defaults and its validation, the same in claims and templates.

Called by claims.py and classes.py. Not here: a claim's status (claim_status.py).
Source: pkg/apis/resource/v1/defaults.go, validateDeviceClaim of pkg/apis/resource/validation/validation.go,
pkg/api/resourceclaimspec, pkg/registry/resource/utils.go (AuthorizedForAdmin) of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value, required
from gangsched.lab.apiserver.kinds.devices import rules
from gangsched.lab.apiserver.strategy import Context, Object
from gangsched.model.cel import selector as cel
from gangsched.model.cel.values import SelectorError

MAX_REQUESTS = MAX_CONSTRAINTS = MAX_CONFIG = MAX_SELECTORS = 32
MAX_SUBREQUESTS = 8
MAX_EXPRESSION_BYTES = 10 * 1024
ADMIN_LABEL = "resource.kubernetes.io/admin-access"

_MODES = ("All", "ExactCount")
_REQUEST = ("name", "exactly", "firstAvailable")
_EXACT = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
_SUBREQUEST = ("name", "deviceClassName", "selectors", "allocationMode", "count", "tolerations", "capacity")
_NO_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
# Attributes that only this request has are alpha (DRADerivedAttributes).
_GATED = "derivedAttributes"

RequestNames = Mapping[str, frozenset[str]]


def default_claim(spec: Object | None) -> Object:
    """Returns a claim's spec with its defaults; changes what is in it."""
    spec = spec or {}
    devices = spec["devices"] = spec.get("devices") or {}
    devices["requests"] = devices.get("requests") or None
    for request in devices["requests"] or ():
        request.setdefault("name", "")
        if (exactly := request.get("exactly")) is not None:
            _default_request(exactly)
        for subrequest in request.get("firstAvailable") or ():
            subrequest.setdefault("name", "")
            _default_request(subrequest)
    return spec


def _default_request(request: Object) -> None:
    request.pop(_GATED, None)
    request.setdefault("deviceClassName", "")
    request["allocationMode"] = request.get("allocationMode") or "ExactCount"
    if request["allocationMode"] == "ExactCount":
        request["count"] = request.get("count") or 1
    rules.without_empty(request, ("count",))
    default_tolerations(request)


def default_tolerations(holder: Object) -> None:
    for toleration in holder.get("tolerations") or ():
        toleration["operator"] = toleration.get("operator") or "Equal"
        rules.without_empty(toleration, ("key", "value", "effect"))


def request_names(spec: Object) -> RequestNames:
    """The names that results, constraints and configuration may use: requests, each with its subrequests."""
    return {
        request.get("name") or "": frozenset(
            subrequest.get("name") or "" for subrequest in request.get("firstAvailable") or ()
        )
        for request in spec["devices"].get("requests") or ()
    }


def admin_problems(spec: Object, context: Context) -> Problems:
    """Checks that the namespace allows a claim that asks for admin access.

    The field's path is a claim's for templates too, as the server prints it.
    """
    for index, request in enumerate(spec["devices"]["requests"] or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return without_label(f"spec.devices.requests[{index}].adminAccess", context)
    return []


def without_label(field: str, context: Context) -> Problems:
    """The problem of admin access in a namespace that is not labelled for it."""
    item = context.cluster.find(context.cluster.resource("namespaces"), "", context.namespace)
    labels = (item.decode()["metadata"].get("labels") or {}) if item else {}
    if labels.get(ADMIN_LABEL) == "true":
        return []
    says = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    return [forbidden_field(field, says)]


def claim_problems(field: str, spec: Object) -> Problems:
    at, devices, known = f"{field}.devices", spec["devices"], request_names(spec)
    requests = devices.get("requests") or ()
    problems = rules.each(f"{at}.requests", requests, MAX_REQUESTS, _request)
    if len(requests) <= MAX_REQUESTS:
        problems += rules.unique(f"{at}.requests", requests, _name, _printed)

    def constraint(field: str, found: Object) -> Problems:
        return references(f"{field}.requests", found.get("requests"), known) + _constrained(field, found)

    def config(field: str, found: Object) -> Problems:
        return references(f"{field}.requests", found.get("requests"), known) + rules.opaque(field, found)

    problems += rules.each(f"{at}.constraints", devices.get("constraints"), MAX_CONSTRAINTS, constraint)
    return problems + rules.each(f"{at}.config", devices.get("config"), MAX_CONFIG, config)


def _name(found: Object) -> str:
    return found.get("name") or ""


def _printed(request: Object) -> Object:
    shown = dict(request)
    if (exactly := shown.get("exactly")) is not None:
        shown["exactly"] = rules.in_order(exactly, _EXACT)
    if subrequests := shown.get("firstAvailable"):
        shown["firstAvailable"] = [rules.in_order(each, _SUBREQUEST) for each in subrequests]
    return rules.in_order(shown, _REQUEST)


def _request(field: str, request: Object) -> Problems:
    problems = names.label(f"{field}.name", _name(request))
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is None and not choices:
        problems.append(required(field, _ONE_KIND))
    elif exactly is not None and choices:
        says = f"Invalid value: null: {_ONE_KIND}, but multiple fields are set"
        problems.append(FieldProblem(field, "FieldValueInvalid", says))
    elif exactly is not None:
        problems += _asked(f"{field}.exactly", exactly)
    else:
        at = f"{field}.firstAvailable"
        problems += rules.each(at, choices, MAX_SUBREQUESTS, _subrequest)
        if len(choices) <= MAX_SUBREQUESTS:
            problems += rules.unique(at, choices, _name, lambda one: rules.in_order(one, _SUBREQUEST))
    return problems


def _subrequest(field: str, request: Object) -> Problems:
    return names.label(f"{field}.name", _name(request)) + _asked(field, request)


def _asked(field: str, request: Object) -> Problems:
    at = f"{field}.deviceClassName"
    name = request.get("deviceClassName") or ""
    problems = rules.subdomain(at, name) if name else [required(at)]
    problems += selectors(f"{field}.selectors", request.get("selectors"))
    mode, count = request["allocationMode"], request.get("count") or 0
    if mode not in _MODES:
        problems += names.one_of(f"{field}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        says = "must not be specified when allocationMode is 'All'"
        problems.append(invalid_value(f"{field}.count", count, says))
    elif mode == "ExactCount" and count <= 0:
        problems.append(invalid_value(f"{field}.count", count, "must be greater than zero"))
    return problems + rules.tolerations(f"{field}.tolerations", request.get("tolerations"))


def selectors(field: str, found: list[Object] | None) -> Problems:
    return rules.each(field, found, MAX_SELECTORS, _selector)


def _selector(field: str, found: Object) -> Problems:
    """Compiled as gangsched evaluates it: types are not checked and the cost is not estimated."""
    if (body := found.get("cel")) is None:
        return [required(f"{field}.cel")]
    at, expression = f"{field}.cel.expression", body.get("expression") or ""
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        return [rules.too_long(at, MAX_EXPRESSION_BYTES)]
    try:
        cel.compile(expression)
    except SelectorError as error:
        return [invalid_value(at, expression, f"compilation failed: {error}")]
    return []


def _constrained(field: str, found: Object) -> Problems:
    for key in ("matchAttribute", "distinctAttribute"):
        if (name := found.get(key)) is not None:
            return rules.full_attribute_name(f"{field}.{key}", name)
    says = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    return [required(field, says)]


def references(field: str, found: list[str] | None, known: RequestNames) -> Problems:
    """Names of requests, or of requests and subrequests."""
    problems = rules.each(field, found, MAX_REQUESTS, lambda field, name: reference(field, name, known))
    if len(found or ()) <= MAX_REQUESTS:
        problems += rules.unique(field, found, lambda name: name)
    return problems


def reference(field: str, name: str, known: RequestNames) -> Problems:
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_value(field, name, _NO_REQUEST)]
    problems = [problem for part in parts for problem in names.label(field, part)]
    subrequests = known.get(parts[0])
    if subrequests is None or (len(parts) == 2 and parts[1] not in subrequests):
        problems.append(invalid_value(field, name, _NO_REQUEST))
    return problems
