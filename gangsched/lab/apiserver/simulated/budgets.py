"""PodDisruptionBudgets: how many pods are healthy, and how many may be evicted now.

Lives here: the part of kube-controller-manager's disruption controller that writes their status. Not here:
evictions, which use that status (kinds/eviction.py). cluster.py passes changes in. Source: kubernetes
pkg/controller/disruption/disruption.go, read in v1.37.

No kind here has a scale, so a percentage and maxUnavailable, which are shares of a scale, fail for the pods
of a Job, as on a real server, and have no effect on pods without a controller.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import structlog

from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import PodView, View
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object, timestamp

_log = structlog.get_logger(__name__)

# Pods change in bursts: a namespace's budgets are counted once for all changes in this time.
_SETTLE_S = 0.1
# An eviction that was allowed but does not happen stops counting after this time.
_DELETION_TIMEOUT = timedelta(minutes=2)


class _Count(NamedTuple):
    healthy: int
    wanted: int
    expected: int
    problem: str = ""

    @property
    def allowed(self) -> int:
        return max(self.healthy - self.wanted, 0) if self.expected and not self.problem else 0


class Budgets:
    """The budgets of all namespaces."""

    def __init__(self, api: Api, view: View, timetable: Timetable) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._budgets = api.resources.get("poddisruptionbudgets.policy")
        self._n_in: dict[str, int] = {}

    def heard(self, change: Change, now_s: float) -> None:
        """A budget was created, changed or deleted."""
        namespace = change.item.namespace
        self._n_in[namespace] = self._n_in.get(namespace, 0) + {"ADDED": 1, "DELETED": -1}.get(change.type, 0)
        self._count_soon(namespace, now_s)

    def pod_changed(self, pod: PodView, now_s: float) -> None:
        """A pod was created, changed or deleted."""
        self._count_soon(pod.namespace, now_s)

    def _count_soon(self, namespace: str, now_s: float) -> None:
        key = ("budgets", namespace)
        if self._n_in.get(namespace) and key not in self._timetable:
            self._timetable.at(now_s + _SETTLE_S, key, partial(self._count_all, namespace))

    def _count_all(self, namespace: str, now_s: float) -> None:
        pods = [pod for pod in self._view.pods.values() if pod.namespace == namespace]
        for item in self._api.registry.store.items(self._budgets.storage_key, namespace):
            try:
                self._write(item.decode(), pods)
            except StatusError as error:
                _log.warning("a budget could not be counted", budget=item.key, err=str(error))

    def _write(self, budget: Object, pods: list[PodView]) -> None:
        selector = LabelSelector.of_object(budget["spec"].get("selector"))
        covered = [pod for pod in pods if selector is not None and selector.matches(pod.metadata.labels)]
        now = self._api.now()
        disrupted = _still_disrupted(budget, covered, now)
        count = _count(budget["spec"], covered, disrupted)

        def change(obj: Object) -> None:
            status: dict[str, Any] = obj.setdefault("status", {})
            status["observedGeneration"] = obj["metadata"].get("generation", 1)
            status["currentHealthy"] = count.healthy
            status["desiredHealthy"] = count.wanted
            status["expectedPods"] = count.expected
            status["disruptionsAllowed"] = count.allowed
            if disrupted:
                status["disruptedPods"] = disrupted
            else:
                status.pop("disruptedPods", None)
            _set_condition(status, count, now)

        meta = budget["metadata"]
        self._api.modify(self._budgets, meta["namespace"], meta["name"], change, uid=meta["uid"])


def _count(spec: Object, pods: list[PodView], disrupted: dict[str, str]) -> _Count:
    healthy = sum(pod.is_ready and not pod.is_deleted and pod.name not in disrupted for pod in pods)
    least = spec.get("minAvailable")
    if isinstance(least, int):
        return _Count(healthy, least, len(pods))
    for pod in pods:
        for owner in pod.metadata.owner_references:
            if owner.controller and owner.kind == "Job":
                return _Count(healthy, 0, 0, "jobs.batch does not implement the scale subresource")
            if owner.controller:
                return _Count(healthy, 0, 0, f'found no controllers for pod "{pod.name}"')
    return _Count(healthy, 0, 0)


def _still_disrupted(budget: Object, pods: list[PodView], now: datetime) -> dict[str, str]:
    """Returns evictions allowed but not yet seen, by pod, with the time when they were allowed."""
    known = (budget.get("status") or {}).get("disruptedPods") or {}
    there = {pod.name for pod in pods if not pod.is_deleted}
    return {
        name: when
        for name, when in known.items()
        if name in there
        and datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) + _DELETION_TIMEOUT > now
    }


def _set_condition(status: dict[str, Any], count: _Count, now: datetime) -> None:
    conditions: list[dict[str, Any]] = status.setdefault("conditions", [])
    known = next((each for each in conditions if each["type"] == "DisruptionAllowed"), None)
    if known is None:
        known = {"type": "DisruptionAllowed", "status": ""}
        conditions.append(known)
    value = "True" if count.allowed else "False"
    if known["status"] != value:
        known["lastTransitionTime"] = timestamp(now)
    reason = "SufficientPods" if count.allowed else "InsufficientPods"
    known.update(
        status=value,
        reason="SyncFailed" if count.problem else reason,
        message=count.problem,
        observedGeneration=status["observedGeneration"],
    )
