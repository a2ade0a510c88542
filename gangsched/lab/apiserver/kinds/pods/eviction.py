"""Evicting a pod: a deletion that a PodDisruptionBudget may forbid for now.

Lives here: POST of an Eviction. Not here: budgets themselves (lab.apiserver.kinds.workloads.budgets) and
their status; without a disruption controller a budget stays "still being processed", as on the real server.
Called through the pods' strategy. Source: pkg/registry/core/pod/storage/eviction.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import Cause, StatusError, bad_request
from gangsched.lab.apiserver.deletion import DeleteOptions, checked_options
from gangsched.lab.apiserver.kinds.pods.conditions import set_condition
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.status import conflict, forbidden, too_many_requests
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object

EVICTED: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_DISRUPTED_PODS = 2000
_RETRY_S = 10


def evict(body: Object, name: str, context: Context) -> Object:
    """Raises: StatusError (400, 404, 409, 422, 429, 500)."""
    metadata = body.get("metadata") or {}
    if metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    if (metadata.get("namespace") or context.namespace) != context.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    pods = context.cluster.resource("pods")
    context.cluster.admit_to_namespace(pods, context.namespace, name)
    item = context.cluster.get(pods, context.namespace, name)
    options, dry_run = checked_options(body.get("deleteOptions") or {})
    dry_run = dry_run or context.dry_run
    pod = item.decode()
    if not _may_ignore_budgets(pod):
        _ask_budgets(pod, context, dry_run=dry_run)
    _delete(item, pods, options, context, dry_run=dry_run)
    return dict(EVICTED)


def _may_ignore_budgets(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _ask_budgets(pod: Object, context: Context, *, dry_run: bool) -> None:
    budgets = context.cluster.resource("poddisruptionbudgets.policy")
    found = [
        budget
        for item in context.cluster.list(budgets, context.namespace)
        if _covers(budget := item.decode(), pod)
    ]
    if len(found) > 1:
        raise StatusError(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
            "support.",
        )
    if not found:
        return
    budget = found[0]
    status = budget.get("status") or {}
    if not _is_ready(pod):
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= wanted > 0:
            return
    _check(budget, status)
    if not dry_run:
        _take_one(budgets, budget["metadata"]["name"], pod["metadata"]["name"], context)


def _covers(budget: Object, pod: Object) -> bool:
    selector = LabelSelector.of_object(budget.get("spec", {}).get("selector"))
    return selector is not None and selector.matches(pod["metadata"].get("labels"))


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _check(budget: Object, status: Object) -> None:
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        says = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(says, retry_s=_RETRY_S)
    allowed = status.get("disruptionsAllowed", 0)
    unable = f"The disruption budget {name} does not allow evicting pods currently"
    if allowed < 0:
        raise _forbidden(
            name,
            "pdb disruptions allowed is negative",
            f"{unable}: pdb disruptions allowed is negative",
        )
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
        raise _forbidden(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            f"{unable}: too many pending evictions not confirmed by PDB controller",
        )
    if allowed == 0:
        raise _too_many(_why_none(name, unable, status))


def _why_none(name: str, unable: str, status: Object) -> str:
    conditions: list[Object] = status.get("conditions") or []
    condition: Object = next((each for each in conditions if each["type"] == "DisruptionAllowed"), {})
    says = condition.get("message") if condition.get("status") == "False" else ""
    if says and condition.get("reason") == "SyncFailed":
        return f"{unable} because it failed sync: {says}"
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= wanted:
        return f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
    return f"{unable} ({condition['reason']}): {says}" if says else unable


def _too_many(says: str, *, retry_s: int | None = None) -> StatusError:
    return too_many_requests(_VIOLATES, retry_after_s=retry_s, causes=[Cause("DisruptionBudget", says)])


def _forbidden(name: str, why: str, says: str) -> StatusError:
    causes = [Cause("DisruptionBudget", says)]
    return forbidden("poddisruptionbudget", name, why, group="policy", causes=causes)


def _take_one(budgets: Resource, name: str, pod_name: str, context: Context) -> None:
    """Counts the disruption, and names the pod in the budget's status for its controller."""

    def change(budget: Object) -> None:
        status = budget["status"]
        status["disruptionsAllowed"] -= 1
        status.setdefault("disruptedPods", {})[pod_name] = context.timestamp()
        if status["disruptionsAllowed"] == 0:
            _set_disruption_allowed(budget, context.timestamp())

    context.cluster.modify(budgets, context.namespace, name, change)


def _set_disruption_allowed(budget: Object, now: str) -> None:
    conditions = budget["status"].setdefault("conditions", [])
    condition: Object | None = next(
        (each for each in conditions if each["type"] == "DisruptionAllowed"), None
    )
    if condition is None:
        condition = {"type": "DisruptionAllowed"}
        conditions.append(condition)
    if condition.get("status") != "False":
        condition["lastTransitionTime"] = now
    condition.update(
        status="False",
        reason="InsufficientPods",
        message="",
        observedGeneration=budget["status"].get("observedGeneration", 0),
    )


def _delete(item: Item, pods: Resource, options: DeleteOptions, context: Context, *, dry_run: bool) -> None:
    why = ""
    if (uid := options.uid) and uid != item.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({item.uid}). The object "
            "might have been deleted and then recreated"
        )
    elif (version := options.resource_version) and version != str(item.revision):
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in "
            f"record ({item.revision}). The object might have been modified"
        )
    if why:
        raise conflict("Pod", item.name, why)
    if dry_run:
        return

    def mark(pod: Object) -> None:
        set_condition(
            pod["status"],
            "DisruptionTarget",
            "True",
            context.timestamp(),
            reason="EvictionByEvictionAPI",
            message="Eviction API: evicting",
        )

    context.cluster.modify(pods, context.namespace, item.name, mark)
    context.cluster.delete(
        pods,
        context.namespace,
        item.name,
        grace_s=options.grace_s,
        propagation=options.propagation,
    )
