"""PersistentVolumes and claims: stored, never bound, protected while in use.

Lives here: both strategies, and removing their protection finalizers. Here the write that ends the use
removes them, on a real cluster a controller. Source: pkg/registry/core/persistentvolume{,claim},
pkg/controller/volume/ pv{,c}protection, plugin/pkg/admission/storage/storageobjectinuseprotection of
Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules.canonical import canonical_list, tidy
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Cluster, Context, Object, Strategy

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
_ENDED = ("Succeeded", "Failed")


class ClaimStrategy(Strategy):
    def prepare_for_create(self, obj: Object, context: Context) -> None:
        spec = obj["spec"] = obj.get("spec") or {}
        tidy(spec)
        spec.setdefault("volumeMode", "Filesystem")
        canonical_list((spec.get("resources") or {}).get("requests"), "PersistentVolumeClaim")
        _protect(obj, CLAIM_PROTECTION)
        obj["status"] = {"phase": "Pending"}

    def after_update(self, item: Item, before: Item, context: Context) -> None:
        release_claim(context.cluster, item.namespace, item.name)


class VolumeStrategy(Strategy):
    def prepare_for_create(self, obj: Object, context: Context) -> None:
        spec = obj["spec"] = obj.get("spec") or {}
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        if path := spec.get("hostPath"):
            path.setdefault("type", "")
        canonical_list(spec.get("capacity"), "PersistentVolume")
        _protect(obj, VOLUME_PROTECTION)
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": context.timestamp()}

    def after_update(self, item: Item, before: Item, context: Context) -> None:
        if (item.decode().get("status") or {}).get("phase") != "Bound":
            _release(context.cluster, "persistentvolumes", "", item.name, VOLUME_PROTECTION)


def claims_of(pod: Object) -> set[str]:
    """The claims that a pod mounts, by name."""
    return {
        volume["persistentVolumeClaim"].get("claimName") or ""
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }


def release_claim(cluster: Cluster, namespace: str, name: str) -> None:
    """Remove a claim that is being deleted, once no pod that still runs mounts it."""
    claim = cluster.find(cluster.resource("persistentvolumeclaims"), namespace, name)
    if claim is None or b'"deletionTimestamp"' not in claim.raw:
        return
    for item in cluster.list(cluster.resource("pods"), namespace):
        if item.fields.get("status.phase") not in _ENDED and name in claims_of(item.decode()):
            return
    _release(cluster, "persistentvolumeclaims", namespace, name, CLAIM_PROTECTION)


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def _release(cluster: Cluster, plural: str, namespace: str, name: str, finalizer: str) -> None:
    resource = cluster.resource(plural)
    item = cluster.find(resource, namespace, name)
    if item is None:
        return
    metadata = item.decode()["metadata"]
    if "deletionTimestamp" not in metadata or finalizer not in (metadata.get("finalizers") or ()):
        return

    def change(obj: Object) -> None:
        obj["metadata"]["finalizers"] = [each for each in obj["metadata"]["finalizers"] if each != finalizer]

    cluster.modify(resource, namespace, name, change)
