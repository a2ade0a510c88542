"""What a namespace's LimitRanges set in a pod, and what these and its ResourceQuotas refuse. Pure.

Sources: kubernetes `plugin/pkg/admission/limitranger/admission.go`, `pkg/apis/core/v1/defaults.go`
(SetDefaults_LimitRangeItem), `pkg/quota/v1/evaluator/core/pods.go`. Not looked at: maxLimitRequestRatio, and
quotas of objects other than pods. What a pod of a manifest asks counts on top of what its quota has in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gangsched.errors import ConfigError, ParseError
from gangsched.model.text.printable import one_line
from gangsched.model.text.quantity import to_milli
from gangsched.whatif.makers.templates import Json, object_in, optional_in, optional_list_in

RANGE, QUOTA = "LimitRange", "ResourceQuota"
_SIDES = ("requests", "limits")
# Of these a quota demands that each container states them.
_STATED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_GI = 2**30 * 1000
_MAX_KINDS = 1000


class Limits(NamedTuple):
    """LimitRanges and ResourceQuotas by namespace and name, as the API server shows them."""

    ranges: Mapping[tuple[str, str], Json]
    quotas: Mapping[tuple[str, str], Json]


NO_LIMITS = Limits({}, {})


class Refused(NamedTuple):
    """A pod that the API server would not create. of: namespace and name of what makes it."""

    pod: str
    of: str
    scheduler: str
    reason: str


class Admission:
    """Counts pods against quotas, one after the other."""

    def __init__(self, known: Limits, added: Sequence[tuple[str, str, Json]]) -> None:
        """added: (place, namespace, object) of those in the files, which replace those of the same name.
        Raises: ConfigError, for an object that does not parse."""
        ranges = {key: _items(one, "") for key, one in known.ranges.items()}
        quotas = {key: _Quota(one, None, "") for key, one in known.quotas.items()}
        for place, namespace, one in added:
            key = (namespace, str(one.get("metadata", {}).get("name")))
            if one["kind"] == RANGE:
                ranges[key] = _items(one, place)
            else:
                quotas[key] = _Quota(one, quotas.get(key), place)
        self._ranges: dict[str, list[_Item]] = {}
        for (namespace, _), items in ranges.items():
            self._ranges.setdefault(namespace, []).extend(items)
        self._quotas: dict[str, list[tuple[str, _Quota]]] = {}
        for (namespace, name), quota in quotas.items():
            self._quotas.setdefault(namespace, []).append((name, quota))

    def set_defaults(self, namespace: str, spec: Json) -> None:
        """Sets what the LimitRanges set in containers that do not state it."""
        for item in self._ranges.get(namespace, ()):
            if item.kind != "Container":
                continue
            for container in (*_listed(spec, "containers"), *_listed(spec, "initContainers")):
                resources = container.setdefault("resources", {})
                if isinstance(resources, dict):
                    for side, defaults in (("limits", item.limits), ("requests", item.requests)):
                        stated = resources.get(side)
                        if defaults and (stated is None or isinstance(stated, dict)):
                            resources[side] = {**defaults, **(stated or {})}

    def refusal(self, namespace: str, spec: Json) -> str:
        """Returns why the API server would refuse the pod; "" if it would not, and counts it then. Raises:
        ParseError, for a quantity."""
        for item in self._ranges.get(namespace, ()):
            if why := item.refusal(spec):
                return why
        asked = _asked(spec)
        quotas = [(name, one) for name, one in self._quotas.get(namespace, ()) if one.matches(spec)]
        for name, quota in quotas:
            if why := quota.refusal(spec, asked):
                return f"{QUOTA} {one_line(name[:80])}: {why}"
        for _, quota in quotas:
            quota.take(asked)
        return ""


class _Item(NamedTuple):
    """One limit of a LimitRange."""

    kind: str
    limits: Mapping[str, str]
    requests: Mapping[str, str]
    least: Mapping[str, str]
    most: Mapping[str, str]

    def refusal(self, spec: Json) -> str:
        if self.kind == "Pod":
            of_all = [{side: _totals(spec, side) for side in _SIDES}]
        elif self.kind == "Container":
            of_all = [{side: _side(one, side) for side in _SIDES} for one in _listed(spec, "containers")]
        else:
            return ""
        for one in of_all:
            for name, most in self.most.items():
                if (found := one["limits"].get(name)) is None or found > to_milli(most):
                    stated = "no limit is stated" if found is None else f"its limit is {_text(found)}"
                    return f"{RANGE}: at most {most} {name} a {self.kind}, {stated}"
            for name, least in self.least.items():
                if (found := one["requests"].get(name)) is None or found < to_milli(least):
                    stated = "no request is stated" if found is None else f"its request is {_text(found)}"
                    return f"{RANGE}: at least {least} {name} a {self.kind}, {stated}"
        return ""


class _Quota:
    def __init__(self, body: Json, before: _Quota | None, place: str) -> None:
        with_place = place or f"{QUOTA} of the cluster"
        try:
            spec = optional_in(body, "spec")
            self._hard = _quantities(spec, "hard", "spec.")
            self._scopes = [{"scopeName": str(one)} for one in spec.get("scopes") or ()]
            selector = optional_in(spec, "scopeSelector", "spec.")
            self._scopes += optional_list_in(selector, "matchExpressions", "spec.scopeSelector.")
            used = {} if before is not None else _quantities(optional_in(body, "status"), "used", "status.")
        except (ConfigError, TypeError) as error:
            path = error.path if isinstance(error, ConfigError) else "spec.scopes"
            why = error.message if isinstance(error, ConfigError) else "is not a list"
            raise ConfigError(why, source=with_place, path=path) from None
        self.used: dict[str, int] = (
            {k: to_milli(v) for k, v in used.items()} if before is None else before.used
        )

    def matches(self, spec: Json) -> bool:
        return all(_in_scope(spec, one) for one in self._scopes)

    def refusal(self, spec: Json, asked: Mapping[str, int]) -> str:
        for name in self._hard:
            if name in _STATED:
                side, _, resource = name.rpartition(".")
                for one in (*_listed(spec, "containers"), *_listed(spec, "initContainers")):
                    if resource not in _side(one, side or "requests"):
                        return f"must specify {name} for {one_line(str(one.get('name'))[:80])}"
        for name, hard in self._hard.items():
            amount, used = asked.get(name, 0), self.used.get(name, 0)
            if amount and used + amount > to_milli(hard):
                return f"{name}: {hard} at most, {_text(used)} used, {_text(amount)} more asked"
        return ""

    def take(self, asked: Mapping[str, int]) -> None:
        for name in self._hard:
            self.used[name] = self.used.get(name, 0) + asked.get(name, 0)


def limits_in(documents: Sequence[tuple[str, Json]], namespace: str) -> Iterator[tuple[str, str, Json]]:
    """Yields (place, namespace, object) of each LimitRange and ResourceQuota in the files."""
    for place, body in documents:
        meta = body.get("metadata")
        if body.get("kind") in (RANGE, QUOTA) and body.get("apiVersion") == "v1" and isinstance(meta, dict):
            yield place, str(meta.get("namespace") or namespace), body


def _items(body: Json, place: str) -> list[_Item]:
    found = []
    try:
        for i, one in enumerate(optional_list_in(object_in(body, "spec"), "limits", "spec.")):
            field = f"spec.limits[{i}]."
            least, most = _quantities(one, "min", field), _quantities(one, "max", field)
            limits = {**most, **_quantities(one, "default", field)}
            requests = {**least, **limits, **_quantities(one, "defaultRequest", field)}
            found.append(_Item(str(one.get("type")), limits, requests, least, most))
    except ConfigError as error:
        raise ConfigError(error.message, source=place or f"{RANGE} of the cluster", path=error.path) from None
    return found


def _quantities(where: Json, name: str, field: str) -> Mapping[str, str]:
    found = optional_in(where, name, field)
    if len(found) > _MAX_KINDS:
        raise ConfigError(
            f"names {len(found)} resources, at most {_MAX_KINDS} are read", path=f"{field}{name}"
        )
    for key, value in found.items():
        try:
            to_milli(str(value))
        except ParseError as error:
            raise ConfigError(error.message, path=f"{field}{name}.{str(key)[:80]}") from None
    return {str(key): str(value) for key, value in found.items()}


def _listed(spec: Json, name: str) -> list[Json]:
    listed = spec.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _side(container: Json, side: str) -> dict[str, int]:
    resources = container.get("resources")
    stated = resources.get(side) if isinstance(resources, dict) else None
    return {str(k): to_milli(str(v)) for k, v in stated.items()} if isinstance(stated, dict) else {}


def _totals(spec: Json, side: str) -> dict[str, int]:
    """Of a pod: its containers and sidecars, or an init container and sidecars before it; and overhead."""
    total, peak, sidecars = dict[str, int](), dict[str, int](), dict[str, int]()
    for one in _listed(spec, "initContainers"):
        asked = _side(one, side)
        if one.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
            asked = {}
        for name, amount in _sum(sidecars, asked).items():
            peak[name] = max(peak.get(name, 0), amount)
    for one in _listed(spec, "containers"):
        total = _sum(total, _side(one, side))
    total = _sum(total, sidecars)
    both = {name: max(total.get(name, 0), peak.get(name, 0)) for name in (*total, *peak)}
    return _sum(both, _side({"resources": {side: spec.get("overhead")}}, side))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def _asked(spec: Json) -> Mapping[str, int]:
    """Returns what the pod counts, by the name in a quota."""
    requests, limits = _totals(spec, "requests"), _totals(spec, "limits")
    return {
        **{
            name: amount
            for name, amount in requests.items()
            if name in ("cpu", "memory", "ephemeral-storage")
        },
        **{name: amount for name, amount in requests.items() if name.startswith("hugepages-")},
        **{f"requests.{name}": amount for name, amount in requests.items()},
        **{f"limits.{name}": amount for name, amount in limits.items()},
        "pods": 1000,
        "count/pods": 1000,
    }


def _in_scope(spec: Json, scope: Json) -> bool:
    name, operator = str(scope.get("scopeName")), str(scope.get("operator", "Exists"))
    if name in ("BestEffort", "NotBestEffort"):
        all_of = (*_listed(spec, "containers"), *_listed(spec, "initContainers"))
        states = any(_side(one, side) for one in all_of for side in _SIDES)
        return bool(states) == (name == "NotBestEffort")
    if name in ("Terminating", "NotTerminating"):
        return ("activeDeadlineSeconds" in spec) == (name == "Terminating")
    if name == "PriorityClass":
        found, values = str(spec.get("priorityClassName") or ""), scope.get("values")
        is_in = isinstance(values, list) and found in values
        answers = {"Exists": bool(found), "DoesNotExist": not found, "In": is_in, "NotIn": not is_in}
        return answers.get(operator, False)
    return False  # a scope of other objects, or of affinity across namespaces


def _text(milli: int) -> str:
    if milli and milli % _GI == 0:
        return f"{milli // _GI}Gi"
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
