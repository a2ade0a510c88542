"""PriorityClasses, and the two that every cluster has.

Source: pkg/apis/scheduling/validation/validation.go, plugin/pkg/admission/priority,
pkg/apis/scheduling/v1/helpers.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import names
from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value
from gangsched.lab.apiserver.kinds.pods.admission import PREEMPT, default_priority_class
from gangsched.lab.apiserver.status import forbidden
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

HIGHEST_OF_USERS = 10**9
SYSTEM = {"system-node-critical": 2 * 10**9 + 1000, "system-cluster-critical": 2 * 10**9}
# As kubectl shows them on a real cluster.
SYSTEM_DESCRIPTIONS = {
    "system-node-critical": ("Used for system critical pods that must not be moved from their current node."),
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if "
        "necessary."
    ),
}
_PREFIX = "system-"


class PriorityClassStrategy(Strategy):
    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)
        _only_one_default(obj, context)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        _default(new)
        _only_one_default(new, context)

    def changes_generation(self, new: Object, old: Object) -> bool:
        return False

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems = []
        if old is None:
            problems += _creation_problems(new)
            problems += names.one_of("preemptionPolicy", new["preemptionPolicy"], (PREEMPT, "Never"))
        else:
            if new["value"] != old.get("value", 0):
                problems.append(forbidden_field("value", "may not be changed in an update."))
            if new["preemptionPolicy"] != old.get("preemptionPolicy"):
                problems.append(
                    invalid_value("preemptionPolicy", new["preemptionPolicy"], "field is immutable")
                )
        return problems


def _default(obj: Object) -> None:
    obj["value"] = obj.get("value") or 0
    obj["preemptionPolicy"] = obj.get("preemptionPolicy") or PREEMPT
    for key in ("globalDefault", "description"):
        if not obj.get(key):
            obj.pop(key, None)


def _only_one_default(obj: Object, context: Context) -> None:
    if not obj.get("globalDefault"):
        return
    default = default_priority_class(context)
    name = obj["metadata"].get("name") or ""
    if default is not None and default["metadata"]["name"] != name:
        raise forbidden(
            "priorityclasses",
            name,
            f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can "
            "exist",
            group="scheduling.k8s.io",
        )


def _creation_problems(obj: Object) -> list[FieldProblem]:
    name, value = obj["metadata"].get("name") or "", obj["value"]
    if name.startswith(_PREFIX):
        if name not in SYSTEM:
            error = f"{name} is not a known system priority class"
        elif value != SYSTEM[name]:
            error = f"value of {name} PriorityClass must be {SYSTEM[name]}"
        elif obj.get("globalDefault"):
            error = f"globalDefault of {name} PriorityClass must be false"
        else:
            return []
        says = (
            f"priority class names with '{_PREFIX}' prefix are reserved for system use only. error: {error}"
        )
        return [forbidden_field("metadata.name", says)]
    if value > HIGHEST_OF_USERS:
        says = f"maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"
        return [forbidden_field("value", says)]
    return []
