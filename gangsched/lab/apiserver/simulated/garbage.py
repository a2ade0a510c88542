"""Deletes objects that depend on a deleted one: dependents of owners, pods of nodes.

Lives here: kube-controller-manager's garbage collector (background, foreground, orphan) and the part of pod
GC that concerns nodes. Not here: namespaces (namespaces.py). cluster.py passes every change in; it acts
(`act`) once all known changes have been processed. Source: kubernetes pkg/controller/garbagecollector,
pkg/controller/podgc, read in v1.37.
"""

from __future__ import annotations

import structlog

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.nodes import pod_status
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import Meta, NodeView, Owner, PodView, View, meta_of
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object

_log = structlog.get_logger(__name__)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_QUARANTINE_S = 40.0
"""A node must be gone for this long before its pods are deleted."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_OWNED, _FINALIZED = b'"ownerReferences"', b'"finalizers"'
Place = tuple[str, str, str]
"""Storage key, namespace and name of an object."""


class Garbage:
    """Tracks which object depends on which, and which to check next."""

    def __init__(self, api: Api, view: View, timetable: Timetable) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._meta: dict[Place, Meta] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._to_look_at: dict[Place, None] = {}

    def heard(self, change: Change) -> None:
        """Note one change; an object without owners and dependents costs only a search in its bytes."""
        item = change.item
        place = (change.collection, item.namespace, item.name)
        if change.type == "DELETED":
            self._drop(place)
            for dependent in self._dependents.get(item.uid, ()):
                self._to_look_at[dependent] = None
            return
        if _OWNED in item.raw or _FINALIZED in item.raw:
            meta = meta_of(item)
            self._put(place, meta)
            if meta.owner_references or (meta.deletion_timestamp and meta.finalizers):
                self._to_look_at[place] = None
        elif place in self._meta:
            self._drop(place)

    def act(self, budget: int) -> int:
        """Check up to `budget` objects; returns how many."""
        done = 0
        while self._to_look_at and done < budget:
            place = next(iter(self._to_look_at))
            del self._to_look_at[place]
            done += 1
            try:
                self._look(place)
            except StatusError as error:
                _log.warning("garbage could not be collected", object="/".join(place), err=str(error))
        return done

    # Pods of nodes.

    def node_changed(self, node: NodeView) -> None:
        """Removes the pods being deleted from a node that is declared out of service."""
        if any(taint.key == _OUT_OF_SERVICE for taint in node.taints) and node.condition("Ready") != "True":
            for pod in self._view.on_node(node.name):
                if pod.is_deleted:
                    self._force(pod)

    def node_gone(self, name: str, now_s: float) -> None:
        """Takes in that a node is gone: its pods can no longer report."""
        for pod in self._view.on_node(name):
            self.without_node(pod, now_s)

    def without_node(self, pod: PodView, now_s: float) -> None:
        """Takes in a pod bound to a node that does not exist (yet)."""
        key = ("no node", pod.uid)
        self._timetable.at(now_s + _QUARANTINE_S, key, lambda now_s: self._still_without_node(pod.uid))

    def _still_without_node(self, uid: str) -> None:
        """Sets the pod to Failed, if it has not ended, and removes it."""
        pod = self._view.pods.get(uid)
        if pod is None or pod.node in self._view.nodes:
            return
        now = self._api.now()

        def change(obj: Object) -> None:
            if not pod.is_terminal:
                pod_status.disrupt(obj, "DeletionByPodGC", "PodGC: node no longer exists", now)
                obj["status"]["phase"] = "Failed"

        self._api.modify(self._api.pods, pod.namespace, pod.name, change, uid=pod.uid)
        self._force(pod)

    def _force(self, pod: PodView) -> None:
        try:
            self._api.delete(self._api.pods, pod.namespace, pod.name, uid=pod.uid, grace_s=0)
        except StatusError as error:
            _log.warning("a pod of a lost node could not be removed", pod=pod.key, err=str(error))

    # Owners and dependents.

    def _put(self, place: Place, meta: Meta) -> None:
        known = self._meta.get(place)
        if known is not None and (known.uid != meta.uid or known.owner_references != meta.owner_references):
            self._drop(place)
        self._meta[place] = meta
        for owner in meta.owner_references:
            self._dependents.setdefault(owner.uid, {})[place] = None

    def _drop(self, place: Place) -> None:
        """Removes an object, and checks its owners again: they may have waited for it."""
        meta = self._meta.pop(place, None)
        for owner in meta.owner_references if meta else ():
            others = self._dependents.get(owner.uid)
            if others is not None:
                others.pop(place, None)
                if not others:
                    del self._dependents[owner.uid]
            there = self._place_of(owner, place[1])
            if there is not None:
                self._to_look_at[there] = None

    def _look(self, place: Place) -> None:
        meta = self._meta.get(place)
        if meta is None:
            return
        if meta.deletion_timestamp:
            self._look_at_deleted(place, meta)
            return
        if not meta.owner_references:
            return
        there: list[Owner] = []
        waiting: list[Owner] = []
        for owner in meta.owner_references:
            held = self._owner(owner, place[1])
            if held is None:
                continue
            blocked = owner.block_owner_deletion and FOREGROUND in held.finalizers and held.deletion_timestamp
            (waiting if blocked else there).append(owner)
        gone = [each for each in meta.owner_references if each not in there and each not in waiting]
        if there and (gone or waiting):
            self._forget_owners(place, meta, {each.uid for each in (*gone, *waiting)})
        elif waiting:
            # An owner waits for this object, whose own blocking dependents are deleted first.
            own = self._dependents.get(meta.uid)
            self._delete(place, meta, "Foreground" if own else "Background")
        elif gone and not there:
            self._delete(place, meta, None)

    def _look_at_deleted(self, place: Place, meta: Meta) -> None:
        dependents = list(self._dependents.get(meta.uid, ()))
        if ORPHAN in meta.finalizers:
            for dependent in dependents:
                held = self._meta.get(dependent)
                if held is not None:
                    self._forget_owners(dependent, held, {meta.uid})
            self._release(place, meta, ORPHAN)
        elif FOREGROUND in meta.finalizers:
            blocking = [each for each in dependents if self._blocks(each, meta.uid)]
            for dependent in dependents:
                self._to_look_at[dependent] = None
            if not blocking:
                self._release(place, meta, FOREGROUND)

    def _blocks(self, dependent: Place, owner: str) -> bool:
        held = self._meta.get(dependent)
        references = held.owner_references if held else ()
        return any(each.uid == owner and each.block_owner_deletion for each in references)

    def _owner(self, owner: Owner, namespace: str) -> Meta | None:
        """Returns the owner's metadata, or None if it is gone; an unknown kind counts as existing."""
        resource = self._resource_of(owner)
        if resource is None:
            return Meta(uid=owner.uid)
        item = self._api.find(resource, namespace if resource.namespaced else "", owner.name, owner.uid)
        return None if item is None else meta_of(item)

    def _place_of(self, owner: Owner, namespace: str) -> Place | None:
        resource = self._resource_of(owner)
        if resource is None:
            return None
        return resource.storage_key, namespace if resource.namespaced else "", owner.name

    def _resource_of(self, owner: Owner) -> Resource | None:
        group, _, _ = owner.api_version.rpartition("/")
        return self._api.resources.by_kind(group, owner.kind)

    def _resource_at(self, place: Place) -> Resource:
        group, _, plural = place[0].partition("/")
        resource = self._api.resources.by_key(group, plural)
        if resource is None:
            raise LookupError(f"{place[0]} is not served")
        return resource

    def _delete(self, place: Place, meta: Meta, propagation: str | None) -> None:
        self._api.delete(
            self._resource_at(place),
            place[1],
            place[2],
            uid=meta.uid,
            propagation=propagation or "Background",
        )

    def _forget_owners(self, place: Place, meta: Meta, uids: set[str]) -> None:
        def change(obj: Object) -> None:
            kept = [each for each in obj["metadata"].get("ownerReferences", ()) if each["uid"] not in uids]
            obj["metadata"]["ownerReferences"] = kept
            if not kept:
                del obj["metadata"]["ownerReferences"]

        self._api.modify(self._resource_at(place), place[1], place[2], change, uid=meta.uid)

    def _release(self, place: Place, meta: Meta, finalizer: str) -> None:
        def change(obj: Object) -> None:
            kept = [each for each in obj["metadata"].get("finalizers", ()) if each != finalizer]
            obj["metadata"]["finalizers"] = kept
            if not kept:
                del obj["metadata"]["finalizers"]

        self._api.modify(self._resource_at(place), place[1], place[2], change, uid=meta.uid)
