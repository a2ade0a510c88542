"""Pods: defaults, admission, validation and deletion.

Lives here: the strategy that ties the pieces together. The pieces: pod_defaults.py, admission.py,
status_validation.py, updates.py, binding.py, eviction.py.
Source: pkg/registry/core/pod/strategy.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import pod_validation
from gangsched.api_rules.canonical import tidy
from gangsched.api_rules.pod_defaults import default_pod
from gangsched.api_rules.status import FieldProblem, StatusError, bad_request
from gangsched.lab.apiserver.kinds.pods import admission as pod_admission
from gangsched.lab.apiserver.kinds.pods import updates as pod_updates
from gangsched.lab.apiserver.kinds.pods.binding import bind
from gangsched.lab.apiserver.kinds.pods.eviction import evict
from gangsched.lab.apiserver.kinds.pods.status_validation import status_problems
from gangsched.lab.apiserver.kinds.volumes import claims_of, release_claim
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_REACHING_IN = {
    "attach": "attach to",
    "exec": "run a command in",
    "log": "read logs of",
    "portforward": "forward a port to",
}
_TIMES = ("lastProbeTime", "lastTransitionTime")


class PodStrategy(Strategy):
    """`service_accounts`: a pod that names no account runs as `default`, as with the ServiceAccount plugin
    on."""

    has_generation = True
    returns_deleted = True

    def __init__(self, *, service_accounts: bool = False) -> None:
        self._service_accounts = service_accounts

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        default_pod(obj)
        spec = obj["spec"]
        pod_admission.admit_priority(obj, context)
        pod_admission.reject_runtime_class(obj)
        pod_admission.add_default_tolerations(spec)
        if self._service_accounts:
            pod_admission.default_service_account(spec)
        status: Object = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": context.timestamp(),
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        status["qosClass"] = pod_admission.qos_class(spec)
        obj["status"] = status

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            _prepare_status(new, old)
            return
        default_pod(new)
        keep("status", new, old)
        for key in ("priority", "preemptionPolicy"):
            if key not in new["spec"]:
                keep(key, new["spec"], old["spec"])
        # The plugin acts on updates too: its own tolerations come back when they are removed.
        pod_admission.add_default_tolerations(new["spec"])

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status":
            assert old is not None
            return status_problems(new, old)
        if old is None:
            return pod_validation.creation_problems(new)
        if new["spec"] == old["spec"]:
            return []
        problems = pod_validation.spec_problems("spec", new["spec"])
        return problems + pod_updates.update_problems(new["spec"], old["spec"])

    def changes_generation(self, new: Object, old: Object) -> bool:
        return bool(new.get("spec") != old.get("spec"))

    def grace_s(self, obj: Object, requested_s: int | None, context: Context) -> int:
        """Returns 0 unless a kubelet runs the pod; a negative request counts as one second."""
        spec = obj["spec"]
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return 0
        grace_s = requested_s if requested_s is not None else spec.get("terminationGracePeriodSeconds", 0)
        return 1 if grace_s < 0 else int(grace_s)

    def after_delete(self, item: Item, context: Context) -> None:
        if b'"persistentVolumeClaim"' in item.raw:
            for name in claims_of(item.decode()):
                release_claim(context.cluster, item.namespace, name)

    def fields(self, obj: Object) -> dict[str, str]:
        spec, status = obj["spec"], obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.podIPs": ",".join(each.get("ip", "") for each in status.get("podIPs") or ()),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def field_names(self) -> tuple[str, ...]:
        return _FIELDS

    def create_subresource(self, body: Object, context: Context) -> Object:
        if context.subresource == "binding":
            return bind(body, context.resource, context.name, context)
        if context.subresource == "eviction":
            return evict(body, context.name, context)
        return super().create_subresource(body, context)

    def get_subresource(self, context: Context) -> Object:
        if context.subresource != "log":
            return super().get_subresource(context)
        return self.connect(context)

    def connect(self, context: Context) -> Object:
        """Always fails: there are no containers to reach."""
        pod = context.cluster.get(context.resource, context.namespace, context.name).decode()
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {context.name} does not have a host assigned")
        raise StatusError(
            501,
            "NotImplemented",
            f"cannot {_REACHING_IN[context.subresource]} pod {context.namespace}/{context.name}: "
            "the nodes of this cluster are simulated, nothing runs in its pods",
            name=context.name,
            kind="pods",
        )


def _prepare_status(new: Object, old: Object) -> None:
    keep_all_but_status(new, old)
    # `old` was decoded only for this request, so its parts may be shared.
    status, before = new.setdefault("status", {}), old.get("status") or {}
    conditions = status.get("conditions")
    tidy(status)
    for each in conditions or ():
        for key in _TIMES:
            each.setdefault(key, None)
    if "qosClass" not in status and "qosClass" in before:
        status["qosClass"] = before["qosClass"]
    # An older kubelet sets podIP only, and its value takes precedence.
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses and not address:
        status["podIP"] = addresses[0]["ip"]
    for key in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(key) or ():
            for name, value in (("ready", False), ("restartCount", 0), ("image", ""), ("imageID", "")):
                each.setdefault(name, value)
            each.setdefault("state", {})
            each.setdefault("lastState", {})
            for state in (each["state"], each["lastState"]):
                if "terminated" in state:
                    state["terminated"].setdefault("exitCode", 0)
                    state["terminated"].setdefault("startedAt", None)
                    state["terminated"].setdefault("finishedAt", None)
                elif "running" in state:
                    state["running"].setdefault("startedAt", None)
