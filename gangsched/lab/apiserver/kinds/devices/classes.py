"""Classes of devices, and the rules with which administrators taint devices.

Source: pkg/registry/resource/{deviceclass,devicetaintrule}, pkg/apis/resource/validation/validation.go,
ExtendedResourceName of k8s.io/apimachinery pkg/api/validate/strfmt.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, qualified_name_problems
from gangsched.api_rules.status import FieldProblem, invalid_value
from gangsched.lab.apiserver.kinds.devices import rules, specs
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

MAX_CONDITIONS = 8
_NATIVE, _QUOTA = "kubernetes.io/", "requests."


class ClassStrategy(Strategy):
    """DeviceClasses."""

    has_generation = True
    returns_deleted = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["spec"] = obj.get("spec") or {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        spec, problems = new["spec"], list[FieldProblem]()
        before = old["spec"] if old else {}
        # Expressions that were stored once stay valid.
        if not spec.get("selectors") or spec["selectors"] != before.get("selectors"):
            problems += specs.selectors("spec.selectors", spec.get("selectors"))
        problems += rules.each("spec.config", spec.get("config"), specs.MAX_CONFIG, rules.opaque)
        if (name := spec.get("extendedResourceName")) is not None:
            problems += _extended("spec.extendedResourceName", name)
        return rules.once(problems)


def _extended(field: str, name: str) -> Problems:
    says: list[str] = []
    if "/" not in name:
        says.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif _NATIVE in name:
        says.append(f'must not have "{_NATIVE}" domain')
    if name.startswith(_QUOTA):
        says.append(f'must not have "{_QUOTA}" prefix')
    # As the name of a quota it must be a label's key, too.
    says += qualified_name_problems(_QUOTA + name, "a valid label key")
    return [invalid_value(field, name, each) for each in says]


class TaintRuleStrategy(Strategy):
    """DeviceTaintRules: a taint's time is when its present effect began."""

    has_generation = True
    allows_unconditional_update = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj, context)
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            for key in ("labels", "annotations", "finalizers"):
                keep(key, new["metadata"], old["metadata"])
            new["status"] = new.get("status") or {}
            for condition in new["status"].get("conditions") or ():
                condition.setdefault("message", "")
            return
        _default(new, context)
        keep("status", new, old)
        taint, before = new["spec"]["taint"], old["spec"]["taint"]
        if taint.get("effect") != before.get("effect") and taint["timeAdded"] == before["timeAdded"]:
            taint["timeAdded"] = context.timestamp()

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status":
            conditions = new["status"].get("conditions") or ()
            problems = rules.conditions("status.conditions", conditions)
            if len(conditions) > MAX_CONDITIONS:
                problems += rules.too_many("status.conditions", len(conditions), MAX_CONDITIONS)
            return rules.once(problems)
        spec = new["spec"]
        chosen = spec.get("deviceSelector") or {}
        problems = []
        for key, check in (("driver", rules.driver), ("pool", rules.pool), ("device", names.label)):
            if (value := chosen.get(key)) is not None:
                problems += check(f"spec.deviceSelector.{key}", value)
        return rules.once(problems + rules.taint("spec.taint", spec["taint"]))


def _default(rule: Object, context: Context) -> None:
    spec = rule["spec"] = rule.get("spec") or {}
    taint = spec["taint"] = spec.get("taint") or {}
    rules.without_empty(taint, ("value",))
    taint.setdefault("timeAdded", context.timestamp())
