"""Jobs: the strategy, and the fields that an update may not change.

Not here: defaults and validation (api_rules.jobs), running them (simulated/jobs).
Source: pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import jobs as job_rules
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, invalid_value
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
# While a job is suspended and has not started, the fields that affect its pods' placement may change.
_WHERE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


class JobStrategy(Strategy):
    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        job_rules.complete(obj)
        if not obj["metadata"].get("labels") and (own := obj["spec"]["template"]["metadata"].get("labels")):
            obj["metadata"]["labels"] = dict(own)
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            new["status"] = new.get("status") or {}
            return
        job_rules.fill_in(new)
        keep("status", new, old)

    def finalizers(self, obj: Object, propagation: str | None) -> list[str]:
        """Without a propagation policy the pods are orphaned, as batch/v1 has always done."""
        return super().finalizers(obj, propagation or "Orphan")

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status" or (old is not None and new["spec"] == old["spec"]):
            return []
        problems = job_rules.spec_problems(new, created=old is None)
        return problems if old is None else problems + _update_problems(new, old)

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}

    def field_names(self) -> tuple[str, ...]:
        return ("status.successful",)


def _update_problems(new: Object, old: Object) -> Problems:
    spec, before = new["spec"], old["spec"]
    problems: Problems = []
    if spec.get("completions") != before.get("completions") and not (
        spec["completionMode"] == "Indexed" and spec.get("completions") == spec["parallelism"]
    ):
        problems.append(invalid_value("spec.completions", spec.get("completions"), "field is immutable"))
    problems += [
        invalid_value(f"spec.{key}", spec.get(key), "field is immutable")
        for key in _FIXED
        if spec.get(key) != before.get(key)
    ]
    template, was = spec["template"], before["template"]
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        changed = dict(template["spec"])
        for key in _WHERE:
            keep(key, changed, was["spec"])
        template = {"metadata": was.get("metadata", {}), "spec": changed}
    if template != was:
        problems.append(invalid_value("spec.template", spec["template"], "field is immutable"))
    return problems
