"""Which fields of a pod's spec an update may change, and the errors for other changes.

Lives here: the comparison of an old and a new spec. Called by the pods' strategy.
Source: pkg/apis/core/validation/validation.go (ValidatePodUpdate) of Kubernetes 1.37.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from gangsched.api_rules import affinity_validation
from gangsched.api_rules.names import INT32_MAX, Problems, in_range
from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value

Object = dict[str, Any]

_FIELD = "spec"
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_problems(new: Object, old: Object) -> Problems:
    """Returns the problems of an update. Both are specs with defaults."""
    if new == old:
        return []
    problems: Problems = []
    for key in ("containers", "initContainers"):
        if len(new.get(key) or ()) != len(old.get(key) or ()):
            says = "pod updates may not add or remove containers"
            return [*problems, forbidden_field(f"{_FIELD}.{key}", says)]
    wrong, stop = _deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    problems += wrong
    if stop:
        return problems
    problems += _tolerations(new.get("tolerations") or [], old.get("tolerations") or [])
    problems += _gates(new.get("schedulingGates") or [], old.get("schedulingGates") or [])
    if new != old:
        munged = _with_the_changeable_of(old, new)
        if old.get("schedulingGates"):
            problems += _narrowing(munged, new, old)
        if munged != old:
            problems.append(forbidden_field(_FIELD, f"{_MAY_CHANGE}\n{_difference(old, munged)}"))
    return problems


def _with_the_changeable_of(old: Object, new: Object) -> Object:
    """Returns the new spec with its changeable fields reset to the old values."""
    munged = dict(new)
    for key in ("containers", "initContainers"):
        if key in new:
            munged[key] = [
                {**container, "image": before.get("image")}
                if "image" in before
                else {name: value for name, value in container.items() if name != "image"}
                for container, before in zip(new[key], old[key], strict=True)
            ]
    for key in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged.pop(key, None)
        if key in old:
            munged[key] = old[key]
    return munged


def _deadline(new: int | None, old: int | None) -> tuple[Problems, bool]:
    field = f"{_FIELD}.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return [], False
        says = "Invalid value: null: must not update from a positive integer to nil value"
        return [FieldProblem(field, "FieldValueInvalid", says)], False
    if wrong := in_range(field, new, 0, INT32_MAX):
        return wrong, True
    if old is not None and old < new:
        return [invalid_value(field, new, "must be less than or equal to previous value")], True
    return [], False


def _tolerations(new: list[Object], old: list[Object]) -> Problems:
    def identity(toleration: Object) -> frozenset[tuple[str, str]]:
        return frozenset((key, value) for key, value in toleration.items() if key != "tolerationSeconds")

    field = f"{_FIELD}.tolerations"
    kept = {identity(each) for each in new}
    if any(identity(each) not in kept for each in old):
        return [
            forbidden_field(field, "existing toleration can not be modified except its tolerationSeconds")
        ]
    # The spec's own validation finds the same problems: once in the message, twice in the causes.
    return affinity_validation.tolerations(field, new)


def _gates(new: list[Object], old: list[Object]) -> Problems:
    known = {each.get("name") for each in old}
    return [
        forbidden_field(
            f"{_FIELD}.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{each.get('name')}'",
        )
        for index, each in enumerate(new)
        if each.get("name") not in known
    ]


def _narrowing(munged: Object, new: Object, old: Object) -> Problems:
    """Checks that a gated pod's node selector and affinity only grow; resets them in `munged` if so."""
    problems: Problems = []
    selector, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if selector != before:
        if any(selector.get(key) != value for key, value in before.items()):
            says = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            problems.append(invalid_value(f"{_FIELD}.nodeSelector", selector, says))
        _take(munged, old, "nodeSelector")
    affinity, was = (new.get("affinity") or {}), (old.get("affinity") or {})
    if affinity.get("nodeAffinity") != was.get("nodeAffinity"):
        merged = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
        if "nodeAffinity" in was:
            merged["nodeAffinity"] = was["nodeAffinity"]
        if merged or "affinity" in old:
            munged["affinity"] = merged
        else:
            munged.pop("affinity", None)
    return problems


def _take(munged: Object, old: Object, key: str) -> None:
    munged.pop(key, None)
    if key in old:
        munged[key] = old[key]


def _difference(old: Object, new: Object) -> str:
    """Returns a unified diff; the real server prints its internal type, whose fields have other names."""
    before, after = (
        json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False).splitlines() for each in (old, new)
    )
    lines = list(difflib.unified_diff(before, after, n=3, lineterm=""))[2:]
    return "".join(line + "\n" for line in lines)
