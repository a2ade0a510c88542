"""Jobs as the API server completes and checks them: defaults, the selector by the Job's UID, validation.

Not here: what an update may change, and the rest of their strategy (lab.apiserver.kinds.workloads.jobs);
their pods (job_pods). Source: pkg/registry/batch/job/strategy.go, pkg/apis/batch/v1/defaults.go,
pkg/apis/batch/validation of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names, pod_validation
from gangsched.api_rules.canonical import tidy
from gangsched.api_rules.names import Problems
from gangsched.api_rules.pod_defaults import default_template
from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import FieldProblem, invalid_value, not_supported, required

Object = dict[str, Any]

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


def creation_problems(job: Object) -> Problems:
    """Checks a decoded Job with a name and UID as its creation does; fills in defaults, in place."""
    complete(job)
    return spec_problems(job, created=True)


def complete(job: Object) -> None:
    """Fill in what a new Job does not say, in place: defaults, and the selector unless it is the user's."""
    fill_in(job)
    if not job["spec"]["manualSelector"]:
        _select_by_uid(job)


def fill_in(job: Object) -> None:
    """Fill in the defaults, in place."""
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


def spec_problems(job: Object, *, created: bool) -> Problems:
    """Checks a completed Job's spec."""
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
