"""Core PodGroups being deleted: kept until all their pods have ended.

Lives here: removing the protection finalizer. Not here: adding it (kinds/pod_groups.py). cluster.py passes
changes in. Source: kubernetes pkg/controller/scheduling/podgroupprotection, read in v1.37.
"""

from __future__ import annotations

from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.view import PodView, View, meta_of
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object

PROTECTION = "scheduling.k8s.io/podgroup-protection"
_GROUP, _KIND = "scheduling.k8s.io", "podgroups"


class PodGroups:
    """The groups that wait for their pods."""

    def __init__(self, api: Api, view: View) -> None:
        self._api = api
        self._view = view
        self._groups = api.resources.get(f"{_KIND}.{_GROUP}")
        self.storage_key = self._groups.storage_key
        self._waiting: dict[tuple[str, str], str] = {}

    def heard(self, change: Change) -> None:
        """A group was created, changed or deleted."""
        item = change.item
        key = (item.namespace, item.name)
        self._waiting.pop(key, None)
        if change.type != "DELETED":
            meta = meta_of(item)
            if meta.deletion_timestamp and PROTECTION in meta.finalizers:
                self._waiting[key] = item.uid
                self._look(key)

    def pod_changed(self, pod: PodView) -> None:
        """A pod was created, ended or deleted."""
        if self._waiting and pod.group and (pod.namespace, pod.group) in self._waiting:
            self._look((pod.namespace, pod.group))

    def _look(self, key: tuple[str, str]) -> None:
        namespace, name = key
        for pod in self._view.pods.values():
            if pod.group == name and pod.namespace == namespace and not pod.is_terminal:
                return
        uid = self._waiting.pop(key)
        self._api.modify(self._groups, namespace, name, _release, uid=uid)


def _release(obj: Object) -> None:
    kept = [each for each in obj["metadata"].get("finalizers", ()) if each != PROTECTION]
    obj["metadata"]["finalizers"] = kept
    if not kept:
        del obj["metadata"]["finalizers"]
