"""The rows of kinds that run pods or keep them running: jobs, deployments, pod groups, disruption budgets.

Called by printer.py. Source: kubernetes pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime

from gangsched.lab.apiserver.tables.ages import human_duration, parse, since
from gangsched.lab.apiserver.tables.columns import AGE, Cells, Column, Kind, Object, columns


def selector_text(selector: Object | None) -> str:
    """Formats a label selector on one line, by key."""
    if not selector:
        return ""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, operator = each["key"], each.get("operator")
        values = ",".join(sorted(each.get("values") or ()))
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append((key, texts.get(operator, key)))
    return ",".join(text for _, text in sorted(parts))


def _containers(owner: Object) -> Cells:
    """Returns names and images of the pod template."""
    spec = (((owner.get("spec") or {}).get("template") or {}).get("spec")) or {}
    containers = spec.get("containers") or ()
    return [",".join(each.get(key, "") for each in containers) for key in ("name", "image")]


def _has_condition(obj: Object, type_: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == type_ and each.get("status") == "True" for each in conditions)


def _job(job: Object, now: datetime) -> Cells:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif spec.get("parallelism", 0) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    return [
        meta.get("name", ""),
        _job_status(job),
        completions,
        _job_duration(status, now),
        since(meta.get("creationTimestamp"), now),
        *_containers(job),
        selector_text(spec.get("selector")) or "<none>",
    ]


def _job_status(job: Object) -> str:
    if _has_condition(job, "Complete"):
        return "Complete"
    if _has_condition(job, "Failed"):
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _has_condition(job, "Suspended"):
        return "Suspended"
    for type_ in ("FailureTarget", "SuccessCriteriaMet"):
        if _has_condition(job, type_):
            return type_
    return "Running"


def _job_duration(status: Object, now: datetime) -> str:
    started = parse(status.get("startTime") or "")
    if started is None:
        return ""
    ended = parse(status.get("completionTime") or "") or now
    return human_duration((ended - started).total_seconds())


def _deployment(deployment: Object, now: datetime) -> Cells:
    meta, spec, status = deployment["metadata"], deployment.get("spec") or {}, deployment.get("status") or {}
    return [
        meta.get("name", ""),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        since(meta.get("creationTimestamp"), now),
        *_containers(deployment),
        selector_text(spec.get("selector")),
    ]


def _disruption_budget(budget: Object, now: datetime) -> Cells:
    meta, spec, status = budget["metadata"], budget.get("spec") or {}, budget.get("status") or {}
    limits = (spec.get(key) for key in ("minAvailable", "maxUnavailable"))
    return [
        meta.get("name", ""),
        *("N/A" if limit is None else str(limit) for limit in limits),
        status.get("disruptionsAllowed", 0),
        since(meta.get("creationTimestamp"), now),
    ]


def _pod_group(group: Object, now: datetime) -> Cells:
    meta, spec, status = group["metadata"], group.get("spec") or {}, group.get("status") or {}
    policy = "Gang" if (spec.get("schedulingPolicy") or {}).get("gang") is not None else "Basic"
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    state = "Pending"
    if scheduled := conditions.get("PodGroupInitiallyScheduled"):
        state = "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"
    if disrupted := conditions.get("DisruptionTarget"):
        state = disrupted.get("reason", "")
    workload = (spec.get("workloadRef") or {}).get("workloadName") or "<none>"
    return [meta.get("name", ""), policy, workload, state, since(meta.get("creationTimestamp"), now)]


_OF_PODS: tuple[str | Column, ...] = ("Containers", "Images", "Selector")

KINDS = {
    "batch/jobs": Kind(columns("Status", "Completions", "Duration", AGE, wide=_OF_PODS), _job),
    "apps/deployments": Kind(columns("Ready", "Up-to-date", "Available", AGE, wide=_OF_PODS), _deployment),
    "policy/poddisruptionbudgets": Kind(
        columns("Min Available", "Max Unavailable", Column("Allowed Disruptions", "integer"), AGE),
        _disruption_budget,
    ),
    "scheduling.k8s.io/podgroups": Kind(columns("Policy", "Workload", "Status", AGE), _pod_group),
}
