"""Claims of devices, and the templates from which a controller makes them.

Not here: what a spec may say (specs.py), a status (claim_status.py). An allocation or a reservation may be
changed by everybody who may change the status: where rights are enforced, `resourceclaims/binding` is needed.
Source: pkg/registry/resource/{resourceclaim,resourceclaimtemplate} of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, forbidden_field
from gangsched.lab.apiserver.kinds.devices import claim_status, rules, specs
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

_OF_METADATA = ("labels", "annotations", "finalizers")


class ClaimStrategy(Strategy):
    """ResourceClaims. The status cannot set a finalizer: an allocation that is to outlive a deletion needs a
    write before it."""

    returns_deleted = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["spec"] = specs.default_claim(obj.get("spec"))
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource != "status":
            new["spec"] = specs.default_claim(new.get("spec"))
            keep("status", new, old)
            return
        keep_all_but_status(new, old)
        for key in _OF_METADATA:
            keep(key, new["metadata"], old["metadata"])
        new["status"] = claim_status.prepare(new.get("status"), old.get("status") or {})

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if old is None:
            problems = specs.admin_problems(new["spec"], context)
            return rules.once(problems + specs.claim_problems("spec", new["spec"]))
        if context.subresource == "status":
            return rules.once(claim_status.problems_of(new, old, context))
        return [] if new["spec"] == old["spec"] else [rules.immutable("spec")]


class TemplateStrategy(Strategy):
    """ResourceClaimTemplates."""

    returns_deleted = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        spec = obj["spec"] = obj.get("spec") or {}
        spec["metadata"] = spec.get("metadata") or {}
        spec["spec"] = specs.default_claim(spec.get("spec"))

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        spec = new["spec"]
        problems = _template_metadata(spec["metadata"]) + specs.claim_problems("spec.spec", spec["spec"])
        if old is None:
            problems = specs.admin_problems(spec["spec"], context) + problems
        elif spec != old["spec"]:
            problems.append(rules.immutable("spec", spec))
        return rules.once(problems)


def _template_metadata(metadata: Object) -> Problems:
    """Labels and annotations, which the claims get. Source: core's ValidateTemplateObjectMeta."""
    problems = [
        problem
        for key in metadata.get("annotations") or {}
        for problem in names.qualified("spec.metadata.annotations", key.lower())
    ]
    for key, value in (metadata.get("labels") or {}).items():
        problems += names.qualified("spec.metadata.labels", key)
        problems += names.label_value("spec.metadata.labels", value)
    return problems + [
        forbidden_field(f"spec.metadata.{key}", "cannot be set")
        for key in metadata
        if key not in ("labels", "annotations")
    ]
