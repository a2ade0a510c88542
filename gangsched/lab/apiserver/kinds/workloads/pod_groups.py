"""PodGroups of the core API: how many pods of a group start together.

Lives here: the strategy, for the fields enabled by the feature gate GenericWorkload, and on demand by
DRAWorkloadResourceClaims. Not here: removing
the protection finalizer of a group that is being deleted (a controller does). Source:
pkg/registry/scheduling/podgroup, the validation tags of k8s.io/api scheduling/v1beta1,
plugin/pkg/admission/priority of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, StatusError, invalid_value, required
from gangsched.lab.apiserver.kinds.pods.admission import default_priority_class
from gangsched.lab.apiserver.kinds.workloads.priority_classes import HIGHEST_OF_USERS
from gangsched.lab.apiserver.status import forbidden
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep

PROTECTION = "scheduling.k8s.io/podgroup-protection"
# Their own feature gates are off: their values are dropped.
_GATED = ("schedulingConstraints", "preemptionPolicy", "parentCompositePodGroupName")
_FIXED = ("workloadRef", "resourceClaims", "disruptionMode", "priorityClassName", "priority")
_POLICIES = ("basic", "gang")


class PodGroupStrategy(Strategy):
    """`protection`: a group gets the finalizer that keeps it while it has pods. `claims`: the feature gate
    DRAWorkloadResourceClaims is on, so that claims which its members share are kept."""

    allows_unconditional_update = False

    def __init__(self, *, protection: bool = True, claims: bool = False) -> None:
        self._protection = protection
        self._gated = _GATED if claims else (*_GATED, "resourceClaims")

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj, self._gated)
        _admit_priority(obj, context)
        if self._protection:
            finalizers = obj["metadata"].get("finalizers") or []
            if PROTECTION not in finalizers:
                obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep("spec", new, old)
            for key in ("labels", "annotations", "finalizers", "ownerReferences"):
                keep(key, new["metadata"], old["metadata"])
            new["status"] = new.get("status") or {}
            return
        _default(new, self._gated)
        keep("status", new, old)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status":
            return _conditions(new["status"].get("conditions") or [])
        spec = new["spec"]
        if old is None:
            return _policy("spec.schedulingPolicy", spec.get("schedulingPolicy") or {}) + _priority(spec)
        before = old["spec"]
        if spec == before:
            return []
        problems = _policy_change(spec.get("schedulingPolicy") or {}, before.get("schedulingPolicy") or {})
        return problems + [
            _null(f"spec.{key}", "field is immutable") for key in _FIXED if spec.get(key) != before.get(key)
        ]


def _default(group: Object, gated: Sequence[str]) -> None:
    given = group.get("spec") or {}
    spec = {key: value for key, value in given.items() if key not in gated and value is not None}
    if "disruptionMode" not in spec:
        spec["disruptionMode"] = {"single": {}}
    group["spec"] = spec


def _admit_priority(group: Object, context: Context) -> None:
    spec = group["spec"]
    name = spec.get("priorityClassName") or ""
    value = 0
    if name:
        item = context.cluster.find(context.cluster.resource("priorityclasses.scheduling.k8s.io"), "", name)
        if item is None:
            raise _refused(group, f"no PriorityClass with name {name} was found")
        value = item.decode().get("value", 0)
    elif (default := default_priority_class(context)) is not None:
        spec["priorityClassName"] = default["metadata"]["name"]
        value = default.get("value", 0)
    given = spec.get("priority")
    if given is not None and given != value:
        raise _refused(
            group,
            f"priority set in the pod group ({given}) must match the priority computed ({value}) based on "
            "the priority class set in the spec",
        )
    spec["priority"] = value


def _refused(group: Object, why: str) -> StatusError:
    name = group["metadata"].get("name") or ""
    return forbidden("podgroups", name, why, group="scheduling.k8s.io")


def _null(field: str, detail: str) -> FieldProblem:
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: null: {detail}")


def _policy(field: str, policy: Object) -> Problems:
    given = [each for each in _POLICIES if policy.get(each) is not None]
    listed = ", ".join(f"`{each}`" for each in _POLICIES)
    if not given:
        return [invalid_value(field, "", f"must specify one of: {listed}")]
    if len(given) > 1:
        return [invalid_value(field, f"{{{', '.join(given)}}}", f"must specify exactly one of: {listed}")]
    return _min_count(policy["gang"]) if given == ["gang"] else []


def _min_count(gang: Object) -> Problems:
    field, count = "spec.schedulingPolicy.gang.minCount", gang.get("minCount") or 0
    if not count:
        return [required(field)]
    if count < 1:
        return [invalid_value(field, count, "must be greater than or equal to 1")]
    return []


def _policy_change(policy: Object, before: Object) -> Problems:
    problems: Problems = []
    if ("basic" in policy) != ("basic" in before):
        problems.append(_null("spec.schedulingPolicy.basic", "field is immutable"))
    if "gang" in before and "gang" not in policy:
        problems.append(_null("spec.schedulingPolicy.gang", "field cannot be cleared once set"))
    elif "gang" in policy and "gang" not in before:
        problems.append(_null("spec.schedulingPolicy.gang", "field cannot be set once created"))
    elif "gang" in policy and policy["gang"] != before["gang"]:
        problems += _min_count(policy["gang"])
    return problems


def _priority(spec: Object) -> Problems:
    problems: Problems = []
    if name := spec.get("priorityClassName"):
        problems += names.subdomain("spec.priorityClassName", name)
    if spec["priority"] > HIGHEST_OF_USERS:
        says = f"must be less than or equal to {HIGHEST_OF_USERS}"
        problems.append(invalid_value("spec.priority", spec["priority"], says))
    return problems


def _conditions(conditions: list[Object]) -> Problems:
    """metav1.Condition, whose every field is required."""
    problems: Problems = []
    for index, condition in enumerate(conditions):
        at = f"status.conditions[{index}]"
        type_, status = condition.get("type") or "", condition.get("status") or ""
        problems += names.qualified(f"{at}.type", type_) if type_ else [required(f"{at}.type")]
        problems += names.one_of(f"{at}.status", status, ("False", "True", "Unknown"))
        if not condition.get("lastTransitionTime"):
            problems.append(required(f"{at}.lastTransitionTime"))
        if not condition.get("reason"):
            problems.append(required(f"{at}.reason"))
    return problems
