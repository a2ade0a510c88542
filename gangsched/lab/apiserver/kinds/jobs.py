"""Jobs: defaults, the selector by the job's UID, validation, immutable fields.

Lives here: the strategy. Not here: running them (simulated/jobs).
Source: pkg/registry/batch/job/strategy.go, pkg/apis/batch/v1/defaults.go, pkg/apis/batch/validation of
Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.lab.apiserver.kinds import names, pod_validation
from gangsched.lab.apiserver.kinds.canonical import tidy
from gangsched.lab.apiserver.kinds.names import Problems
from gangsched.lab.apiserver.kinds.pod_defaults import default_template
from gangsched.lab.apiserver.selectors import LabelSelector
from gangsched.lab.apiserver.status import FieldProblem, invalid_value, not_supported, required
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

UID_LABEL = "batch.kubernetes.io/controller-uid"
_UID_LABELS = ("controller-uid", UID_LABEL)
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_NONNEGATIVE = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
)
_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
# While a job is suspended and has not started, the fields that affect its pods' placement may change.
_WHERE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


class JobStrategy(Strategy):
    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)
        if not obj["spec"]["manualSelector"]:
            _select_by_uid(obj)
        if not obj["metadata"].get("labels") and (own := obj["spec"]["template"]["metadata"].get("labels")):
            obj["metadata"]["labels"] = dict(own)
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            new["status"] = new.get("status") or {}
            return
        _default(new)
        keep("status", new, old)

    def finalizers(self, obj: Object, propagation: str | None) -> list[str]:
        """Without a propagation policy the pods are orphaned, as batch/v1 has always done."""
        return super().finalizers(obj, propagation or "Orphan")

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status" or (old is not None and new["spec"] == old["spec"]):
            return []
        problems = _problems(new, created=old is None)
        return problems if old is None else problems + _update_problems(new, old)

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}

    def field_names(self) -> tuple[str, ...]:
        return ("status.successful",)


def _default(job: Object) -> None:
    spec = job["spec"] = job.get("spec") or {}
    template = spec["template"] = spec.get("template") or {}
    default_template(template, "Job")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    for key, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
        ("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"),
    ):
        if spec.get(key) is None:
            spec[key] = value
    if selector := spec.get("selector"):
        tidy(selector)
        if chosen := selector.get("matchLabels"):
            selector["matchLabels"] = dict(sorted(chosen.items()))


def _select_by_uid(job: Object) -> None:
    spec, metadata = job["spec"], job["metadata"]
    template = spec["template"]["metadata"]
    labels = template["labels"] = dict(template.get("labels") or {})
    for key in _NAME_LABELS:
        labels.setdefault(key, metadata.get("name") or "")
    for key in _UID_LABELS:
        labels.setdefault(key, metadata["uid"])
    # By key, as Go prints a map.
    template["labels"] = dict(sorted(labels.items()))
    selector = spec["selector"] = spec.get("selector") or {}
    chosen = {UID_LABEL: metadata["uid"]} | (selector.get("matchLabels") or {})
    selector["matchLabels"] = dict(sorted(chosen.items()))


def _problems(job: Object, *, created: bool) -> Problems:
    spec = job["spec"]
    template = spec["template"]
    problems: Problems = []
    for key in _NONNEGATIVE:
        if (value := spec.get(key)) is not None:
            problems += names.nonnegative(f"spec.{key}", value)
    mode = spec["completionMode"]
    problems += names.one_of("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        problems.append(required("spec.completions", "when completion mode is Indexed"))
    if created:
        problems += names.labels("spec.template.labels", template["metadata"].get("labels"))
    problems += pod_validation.spec_problems("spec.template.spec", template["spec"])
    policy = template["spec"]["restartPolicy"]
    field = "spec.template.spec.restartPolicy"
    if policy == "Always":
        # The default for pods; a Job rejects it and must state its restartPolicy.
        problems.append(required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        problems.append(not_supported(field, policy, ("OnFailure", "Never")))
    return problems + _selector_problems(job, created=created)


def _selector_problems(job: Object, *, created: bool) -> Problems:
    spec, problems = job["spec"], list[FieldProblem]()
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels") or {}
    made = {"matchLabels": {UID_LABEL: job["metadata"].get("uid")}}
    if created and not spec["manualSelector"] and selector != made:
        problems.append(invalid_value("spec.selector", selector, "`selector` not auto-generated"))
    found = LabelSelector.of_object(selector)
    if selector is None:
        problems.append(required("spec.selector"))
    elif found is not None and not found.matches(labels):
        says = "`selector` does not match template `labels`"
        problems.append(invalid_value("spec.template.metadata.labels", labels, says))
    return problems


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
