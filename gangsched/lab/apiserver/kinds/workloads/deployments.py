"""Deployments: stored with the real server's defaults, so that manifests are accepted; not run, not checked.

Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules.pod_defaults import default_template
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status


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
