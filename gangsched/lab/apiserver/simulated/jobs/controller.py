"""Jobs: how many pods a Job should have, how they ended, when it is done.

Lives here: reconciling one Job after a change of it or its pods. Not here: building its pods
(api_rules.job_pods), reading them (pods.py), its status object (status.py). cluster.py passes changes in; it
reconciles (`act`) once all known changes have been processed, so that it knows all pods that it created.
Source: kubernetes pkg/controller/job/job_controller.go, read in v1.37.

Not simulated, with an event on the Job that says so: podFailurePolicy, successPolicy, backoffLimitPerIndex.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from gangsched.api_rules.job_pods import TRACKING, build
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.jobs import indexes, pods, status
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import PodView, View
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object

_log = structlog.get_logger(__name__)

_BACKOFF_S, _MAX_BACKOFF_S = 10.0, 600.0
_RETRY_S, _MAX_RETRY_S = 1.0, 60.0
_MAX_AT_ONCE = 50
"""Limit on pods created or deleted in one look; the next look follows right after waiting requests."""
_NOT_SIMULATED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex")
_OURS = (None, "kubernetes.io/job-controller")


class _Record:
    """What the controller remembers of a Job between looks."""

    __slots__ = ("failed_s", "n_failed_in_a_row", "n_refused", "said", "started_s")

    def __init__(self) -> None:
        self.n_failed_in_a_row = 0
        self.failed_s = 0.0
        self.n_refused = 0
        self.started_s: float | None = None
        self.said = False


class Ref:
    """A Job in an event."""

    __slots__ = ("name", "namespace", "uid")

    def __init__(self, job: Object) -> None:
        self.namespace: str = job["metadata"]["namespace"]
        self.name: str = job["metadata"]["name"]
        self.uid: str = job["metadata"]["uid"]


class Look:
    """One Job and its pods at one moment."""

    def __init__(self, job: Object, of_job: list[PodView]) -> None:
        self.job = job
        self.ref = Ref(job)
        self.spec: dict[str, Any] = job["spec"]
        self.status: dict[str, Any] = job.get("status") or {}
        self.pods = of_job
        self.parallelism = int(self.spec.get("parallelism", 1))
        completions = self.spec.get("completions")
        if completions is None and "parallelism" not in self.spec:
            completions = 1
        self.completions: int | None = completions
        self.indexed = self.spec.get("completionMode") == "Indexed" and completions is not None
        self.only_when_failed = self.spec.get("podReplacementPolicy") == "Failed"
        self.suspended = bool(self.spec.get("suspend"))
        self.active = [pod for pod in of_job if pod.is_active]
        self.terminating = [pod for pod in of_job if pod.is_deleted and not pod.is_terminal]
        tracked = [pod for pod in of_job if pods.is_tracked(pod)]
        self.succeeded_now = [pod for pod in tracked if pod.phase == "Succeeded"]
        self.failed_now = [
            pod for pod in tracked if pods.has_failed(pod, only_when_failed=self.only_when_failed)
        ]
        self.n_failed = int(self.status.get("failed", 0)) + len(self.failed_now)
        self.done: set[int] = set()
        if self.indexed:
            assert completions is not None
            self.done = indexes.parse(self.status.get("completedIndexes", ""), completions)
            ended = (pods.index_of(pod, completions) for pod in self.succeeded_now)
            self.done.update(index for index in ended if index is not None)
            self.n_succeeded = len(self.done)
        else:
            self.n_succeeded = int(self.status.get("succeeded", 0)) + len(self.succeeded_now)

    @property
    def wanted(self) -> int:
        """How many pods should be active."""
        if self.suspended:
            return 0
        if self.completions is None:
            return len(self.active) if self.n_succeeded else self.parallelism
        return max(min(self.parallelism, self.completions - self.n_succeeded), 0)

    @property
    def is_complete(self) -> bool:
        if self.completions is None:
            return self.n_succeeded > 0 and not self.active
        return self.n_succeeded >= self.completions and not self.active

    @property
    def is_exhausted(self) -> bool:
        """Whether more pods have failed, or restarted, than backoffLimit allows."""
        limit = int(self.spec.get("backoffLimit", 6))
        if self.n_failed > limit:
            return True
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        n_restarts = sum(pod.n_restarts for pod in self.active)
        return n_restarts > 0 if limit == 0 else n_restarts >= limit


class Jobs:
    """All Jobs of the cluster."""

    def __init__(self, api: Api, view: View, timetable: Timetable) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._where: dict[str, tuple[str, str]] = {}
        self._records: dict[str, _Record] = {}
        self._to_look_at: dict[str, None] = {}

    def heard(self, change: Change) -> None:
        """A Job was created, changed or deleted."""
        item = change.item
        if change.type == "DELETED":
            self._where.pop(item.uid, None)
            self._records.pop(item.uid, None)
            for what in ("retry", "deadline", "ttl"):
                self._timetable.cancel((what, item.uid))
            for pod in self._view.controlled_by(item.uid):
                self._release(pod)  # it no longer counts for a Job
        else:
            self._where[item.uid] = (item.namespace, item.name)
            self._to_look_at[item.uid] = None

    def pod_changed(self, pod: PodView) -> None:
        """One of a Job's pods is new, different or gone."""
        for owner in pod.metadata.owner_references:
            if owner.controller and owner.kind == "Job":
                if owner.uid in self._where:
                    self._to_look_at[owner.uid] = None
                elif pod.is_deleted and pods.is_tracked(pod):
                    self._release(pod)

    def act(self, now_s: float) -> int:
        """Reconcile every noted Job; returns how many."""
        noted, self._to_look_at = self._to_look_at, {}
        for uid in noted:
            try:
                self._look_at(uid, now_s)
            except StatusError as error:
                _log.warning(
                    "a Job could not be looked after", job="/".join(self._where[uid]), err=str(error)
                )
            except Exception:  # a problem with this Job must not block the rest
                _log.exception("a Job could not be looked after", job="/".join(self._where[uid]))
        return len(noted)

    def _look_again(self, now_s: float, *, uid: str) -> None:
        self._to_look_at[uid] = None

    def _look_at(self, uid: str, now_s: float) -> None:
        namespace, name = self._where.get(uid, ("", ""))
        item = self._api.find(self._api.jobs, namespace, name, uid)
        if item is None:
            return
        look = Look(item.decode(), self._view.controlled_by(uid))
        if look.spec.get("managedBy") not in _OURS:
            return
        record = self._records.setdefault(uid, _Record())
        self._say_what_is_not_simulated(look, record)
        if status.is_finished(look.status):
            for pod in look.pods:
                if pods.is_tracked(pod) and (pod.is_terminal or pod.is_deleted):
                    self._release(pod)
            self._expire(look, now_s)
            return
        self._count_failures(look, record, now_s)
        self._start_clock(look, record, now_s)
        verdict = status.interim(look.status) or self._verdict(look, record, now_s)
        n_active = self._move(look, record, verdict, now_s)
        if verdict is None and look.is_complete and not n_active:
            verdict = status.COMPLETED
        self._write(look, verdict, n_active)
        for pod in (*look.succeeded_now, *look.failed_now):
            self._release(pod)

    def _count_failures(self, look: Look, record: _Record, now_s: float) -> None:
        if look.succeeded_now:
            record.n_failed_in_a_row = 0
        elif look.failed_now:
            record.n_failed_in_a_row += len(look.failed_now)
            record.failed_s = now_s

    def _start_clock(self, look: Look, record: _Record, now_s: float) -> None:
        limit_s = look.spec.get("activeDeadlineSeconds")
        if look.suspended:
            record.started_s = None
            self._timetable.cancel(("deadline", look.ref.uid))
        elif record.started_s is None:
            record.started_s = now_s
            if limit_s is not None:
                again = partial(self._look_again, uid=look.ref.uid)
                self._timetable.at(now_s + limit_s, ("deadline", look.ref.uid), again)

    def _verdict(self, look: Look, record: _Record, now_s: float) -> status.Verdict | None:
        if look.is_exhausted:
            return status.TOO_MANY_FAILURES
        limit_s = look.spec.get("activeDeadlineSeconds")
        if limit_s is not None and record.started_s is not None and now_s >= record.started_s + limit_s:
            return status.TOO_LONG
        return None

    def _move(self, look: Look, record: _Record, verdict: status.Verdict | None, now_s: float) -> int:
        """Delete or create pods; returns how many are active afterwards."""
        if verdict is not None:
            return len(look.active) - self._delete(look, look.active)
        if look.job["metadata"].get("deletionTimestamp"):
            return len(look.active)
        excess = self._excess(look)
        if excess:
            return len(look.active) - self._delete(look, excess[:_MAX_AT_ONCE])
        waiting = len(look.terminating) if look.only_when_failed else 0
        n_missing = min(look.wanted - len(look.active) - waiting, _MAX_AT_ONCE)
        if n_missing <= 0:
            return len(look.active)
        not_before_s = record.failed_s + self._backoff_s(record)
        if now_s < not_before_s:
            self._again_at(look, not_before_s)
            return len(look.active)
        return len(look.active) + self._create(look, record, n_missing, now_s)

    def _excess(self, look: Look) -> list[PodView]:
        ordered = sorted(look.active, key=pods.removal_order)
        surplus: list[PodView] = []
        if look.indexed:
            assert look.completions is not None
            seen: set[int] = set()
            for pod in reversed(ordered):
                index = pods.index_of(pod, look.completions)
                if index is None or index in seen:
                    surplus.append(pod)
                else:
                    seen.add(index)
        n_more = len(look.active) - len(surplus) - look.wanted
        if n_more > 0:
            chosen = {pod.uid for pod in surplus}
            surplus += [pod for pod in ordered if pod.uid not in chosen][:n_more]
        return surplus

    def _create(self, look: Look, record: _Record, count: int, now_s: float) -> int:
        which: list[int | None] = [None] * count
        if look.indexed:
            assert look.completions is not None
            blocking = [*look.active, *(look.terminating if look.only_when_failed else ())]
            taken = look.done | {
                index for pod in blocking if (index := pods.index_of(pod, look.completions)) is not None
            }
            which = list(indexes.pending(taken, count, look.completions))
        for n_done, index in enumerate(which):
            try:
                item = self._api.registry.create(
                    self._api.pods, build(look.job, index), namespace=look.ref.namespace
                )
            except StatusError as error:
                if "is being terminated" not in error.message:
                    self._event(look, "FailedCreate", f"Error creating: {error.message}", warning=True)
                    self._again_at(look, now_s + min(_RETRY_S * 2**record.n_refused, _MAX_RETRY_S))
                    record.n_refused = min(record.n_refused + 1, 10)
                return n_done
            self._event(look, "SuccessfulCreate", f"Created pod: {item.name}")
        record.n_refused = 0
        return len(which)

    def _delete(self, look: Look, doomed: list[PodView]) -> int:
        for pod in doomed:
            if self._api.delete(self._api.pods, pod.namespace, pod.name, uid=pod.uid):
                self._event(look, "SuccessfulDelete", f"Deleted pod: {pod.name}")
        return len(doomed)

    def _backoff_s(self, record: _Record) -> float:
        if not record.n_failed_in_a_row:
            return 0.0
        return min(_BACKOFF_S * 2.0 ** min(record.n_failed_in_a_row - 1, 10), _MAX_BACKOFF_S)

    def _again_at(self, look: Look, when_s: float) -> None:
        again = partial(self._look_again, uid=look.ref.uid)
        self._timetable.at(when_s, ("retry", look.ref.uid), again)

    def _expire(self, look: Look, now_s: float) -> None:
        """Deletes a finished Job, after its pods, when its time to live is over."""
        ttl_s = look.spec.get("ttlSecondsAfterFinished")
        if ttl_s is None or look.job["metadata"].get("deletionTimestamp"):
            return
        key = ("ttl", look.ref.uid)
        if key not in self._timetable:
            self._timetable.at(now_s + ttl_s, key, partial(self._expired, ref=look.ref))

    def _expired(self, now_s: float, *, ref: Ref) -> None:
        self._api.delete(self._api.jobs, ref.namespace, ref.name, uid=ref.uid, propagation="Foreground")

    def _write(self, look: Look, verdict: status.Verdict | None, n_active: int) -> None:
        n_leaving = len(look.terminating) + max(len(look.active) - n_active, 0)
        n_ready = min(sum(pod.is_ready for pod in look.active), n_active)
        counts: dict[str, Any] = {
            "active": n_active,
            "ready": n_ready,
            "terminating": n_leaving,
            "succeeded": look.n_succeeded,
            "failed": look.n_failed,
        }
        if look.indexed:
            counts["completedIndexes"] = indexes.text(look.done)
        now = self._api.now()
        said: list[status.Said] = []

        def change(obj: Object) -> None:
            said[:] = status.write(obj, counts, verdict, now, suspended=look.suspended)

        self._api.modify(self._api.jobs, look.ref.namespace, look.ref.name, change, uid=look.ref.uid)
        for reason, message, warning in said:
            self._event(look, reason, message, warning=warning)

    def _release(self, pod: PodView) -> None:
        """Removes the finalizer of a counted pod."""
        if not pods.is_tracked(pod):
            return

        def change(obj: Object) -> None:
            kept = [each for each in obj["metadata"].get("finalizers", ()) if each != TRACKING]
            obj["metadata"]["finalizers"] = kept
            if not kept:
                del obj["metadata"]["finalizers"]

        self._api.modify(self._api.pods, pod.namespace, pod.name, change, uid=pod.uid)

    def _say_what_is_not_simulated(self, look: Look, record: _Record) -> None:
        asked = [key for key in _NOT_SIMULATED if look.spec.get(key) is not None]
        if asked and not record.said:
            record.said = True
            message = f"the simulated Job controller takes no notice of {', '.join(asked)}"
            self._event(look, "NotSimulated", message, warning=True)

    def _event(self, look: Look, reason: str, message: str, *, warning: bool = False) -> None:
        self._api.event(
            "Job",
            look.ref,
            reason,
            message,
            component="job-controller",
            warning=warning,
            api_version="batch/v1",
        )
