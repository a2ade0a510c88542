"""Deployments: stored as by the real server, so that manifests are accepted; no controller runs them here.

Source: pkg/apis/apps/v1/defaults.go, pkg/apis/apps/validation of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.apiserver.kinds import names, pod_validation
from gangsched.apiserver.kinds.names import Problems
from gangsched.apiserver.kinds.pod_defaults import default_template
from gangsched.apiserver.selectors import LabelSelector
from gangsched.apiserver.status import FieldProblem, invalid_value, not_supported, required
from gangsched.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status


class DeploymentStrategy(Strategy):
    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)
        obj["status"] = {}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            new["status"] = new.get("status") or {}
            return
        _default(new)
        keep("status", new, old)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status" or (old is not None and new["spec"] == old["spec"]):
            return []
        problems = _problems(new["spec"])
        if old is not None and new["spec"].get("selector") != old["spec"].get("selector"):
            problems.append(invalid_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
        return problems


def _default(deployment: Object) -> None:
    spec = deployment["spec"] = deployment.get("spec") or {}
    for key, value in (("replicas", 1), ("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
        if spec.get(key) is None:
            spec[key] = value
    strategy = spec["strategy"] = spec.get("strategy") or {}
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    if chosen := (spec.get("selector") or {}).get("matchLabels"):
        # By key, as Go prints a map.
        spec["selector"]["matchLabels"] = dict(sorted(chosen.items()))
    spec["template"] = spec.get("template") or {}
    default_template(spec["template"], "Deployment")


def _problems(spec: Object) -> Problems:
    problems = names.nonnegative("spec.replicas", spec["replicas"])
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels") or {}
    if selector is None:
        problems.append(required("spec.selector"))
    found = LabelSelector.of_object(selector)
    if found is None or not found.matches(labels):
        says = "`selector` does not match template `labels`"
        problems.append(invalid_value("spec.template.metadata.labels", labels, says))
    pod = spec["template"]["spec"]
    problems += pod_validation.spec_problems("spec.template.spec", pod)
    if pod["restartPolicy"] != "Always":
        field = "spec.template.spec.restartPolicy"
        problems.append(not_supported(field, pod["restartPolicy"], ("Always",)))
    return problems
