"""Namespaces: their label, their own finalizers, and deletion in two steps.

Lives here: the strategy. Not here: emptying a namespace that is being deleted (the simulated controllers),
refusing to create in one (registry.py). Source: pkg/registry/core/namespace/{strategy,storage/storage}.go,
k8s.io/apiserver plugin/namespace/lifecycle of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.lab.apiserver.status import forbidden
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep

FINALIZER = "kubernetes"
_LABEL = "kubernetes.io/metadata.name"
# They cannot be deleted. Source: NamespaceLifecycle's immortal namespaces.
_IMMORTAL = ("default", "kube-system", "kube-public")
_STANDARD = ("orphan", "foregroundDeletion", FINALIZER)


class NamespaceStrategy(Strategy):
    name_rule = "label"
    says_grace = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = (obj.setdefault("spec", {}) or {}).get("finalizers") or []
        if FINALIZER not in finalizers:
            finalizers = [*finalizers, FINALIZER]
        obj["spec"] = {"finalizers": finalizers}
        _label(obj)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        _label(new)
        if context.subresource == "finalize":
            keep("status", new, old)
            new["spec"] = {key: value for key, value in (new.get("spec") or {}).items() if value}
            return
        keep("spec", new, old)
        if context.subresource == "status":
            status = new.setdefault("status", {})
            status.setdefault("phase", "Active")
            for condition in status.get("conditions") or ():
                condition.setdefault("lastTransitionTime", None)
        else:
            keep("status", new, old)

    def before_delete(self, obj: Object, context: Context) -> None:
        if context.name in _IMMORTAL:
            raise forbidden("namespaces", context.name, "this namespace may not be deleted")
        # A namespace has no grace period; it waits only for its finalizers.
        obj["metadata"].setdefault("deletionTimestamp", context.timestamp())
        obj["status"]["phase"] = "Terminating"

    def is_gone(self, obj: Object) -> bool:
        return not obj["spec"].get("finalizers")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.phase": obj["status"].get("phase", "")}

    def field_names(self) -> tuple[str, ...]:
        return ("status.phase",)


def _label(obj: Object) -> None:
    labels = obj["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {**labels, _LABEL: obj["metadata"].get("name") or ""}
