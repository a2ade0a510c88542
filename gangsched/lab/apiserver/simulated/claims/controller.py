"""The resourceclaim controller: makes claims from templates, reserves and frees, never allocates.

    a pod needs a claim of a template            made, with the pod as owner; the pod's status names it
    a pod has a node, its claim is allocated     reserved for the pod, if it is not
    a consumer is gone or done                   taken off reservedFor
    the last consumer is taken off               deallocated as well, and then unprotected
    a claim in deletion is reserved for nobody   deallocated, unprotected
    its pod is done, it is reserved for nobody   deleted, if it was made for that pod

An allocation that nobody reserved stays, and so does one that is reserved for a pod which is never bound.
A PodGroup's claims are made with it as owner, and named in the status of each member that refers to them;
their consumer is the PodGroup, taken off when that is gone (DRAWorkloadResourceClaims). Other consumers stay.

Lives here: reconciling. Not here: deleting the claims of deleted pods (lab.apiserver.simulated.garbage).
cluster.py passes changes in; it reconciles (`act`) once all known changes have been processed.
Source: kubernetes pkg/controller/resourceclaim/controller.go, read in v1.37.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import structlog

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.claims.claim_view import (
    POD_CLAIM,
    PROTECTION,
    SCHEDULING,
    ClaimView,
    Consumer,
    GroupView,
    NotYet,
    claim_name,
    claim_of,
    group_of,
)
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import PodClaim, PodView, View
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object

_log = structlog.get_logger(__name__)

_RETRY_S, _MAX_RETRY_S = 0.1, 1000.0
"""The controller begins at 5 ms, at most ten a second for all."""
_MAX_BASE = 57
"""Leaves room for five random characters in a name of 63."""
_GROUP = "resource.k8s.io"

Key = tuple[str, str]
"""Namespace and name."""


class _Failed(Exception):
    """A claim cannot be made now; the message is that of the event on the pod."""


class Claims:
    """All claims of the cluster, and the pods that use them."""

    def __init__(self, api: Api, view: View, timetable: Timetable) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._resource = api.resources.get(f"resourceclaims.{_GROUP}")
        self._templates = api.resources.get(f"resourceclaimtemplates.{_GROUP}")
        self._groups = api.resources.get(f"podgroups.{SCHEDULING}")
        self.storage_key = self._resource.storage_key
        self.template_key = self._templates.storage_key
        self._claims: dict[Key, ClaimView] = {}
        self._made_for: dict[str, dict[Key, None]] = {}
        self._users = _Index()
        self._users_of_template = _Index()
        self._members = _Index()
        self._known_groups: dict[Key, GroupView] = {}
        self._groups_of_template = _Index()
        self._groups_to_look_at: dict[Key, None] = {}
        self._pods_to_look_at: dict[str, None] = {}
        self._claims_to_look_at: dict[Key, None] = {}
        self._n_failed: dict[str, int] = {}

    # Changes from lab.apiserver.simulated.cluster.

    def heard(self, change: Change) -> None:
        """A claim was created, changed or deleted."""
        key = (change.item.namespace, change.item.name)
        before = self._claims.pop(key, None)
        if before is not None:
            made = self._made_for.get(before.controller_uid)
            if made is not None:
                made.pop(key, None)
                if not made:
                    del self._made_for[before.controller_uid]
        if change.type != "DELETED":
            claim = self._claims[key] = claim_of(change.item)
            if uid := claim.controller_uid:
                self._made_for.setdefault(uid, {})[key] = None
            self._claims_to_look_at[key] = None
        for uid in self._users.of(key):
            if (pod := self._view.pods.get(uid)) is not None:
                self._note(pod)
        for place, group in self._known_groups.items():
            if place[0] == key[0] and key[1] in _names(group):
                self._groups_to_look_at[place] = None

    def group_heard(self, change: Change) -> None:
        """A PodGroup was created, changed or deleted."""
        key = (change.item.namespace, change.item.name)
        group = group_of(change.item)
        if not group.claims:
            return
        if change.type == "DELETED":
            self._known_groups.pop(key, None)
            self._groups_of_template.put(group.uid, ())
            self._settled(group.uid)
            for name in _names(group):
                self._claims_to_look_at[group.namespace, name] = None
        else:
            self._known_groups[key] = group
            asked = (entry.resource_claim_template_name for entry in group.claims)
            self._groups_of_template.put(group.uid, ((key[0], name) for name in asked if name))
            if not group.metadata.deletion_timestamp:
                self._groups_to_look_at[key] = None
        for uid in self._members.of(key):
            if (pod := self._view.pods.get(uid)) is not None:
                self._note(pod)

    def template_heard(self, change: Change) -> None:
        """A template was created or changed."""
        key = (change.item.namespace, change.item.name)
        groups = self._groups_of_template.of(key)
        self._groups_to_look_at.update(
            (place, None) for place, group in self._known_groups.items() if group.uid in groups
        )
        for uid in self._users_of_template.of(key):
            if (pod := self._view.pods.get(uid)) is not None:
                self._note(pod)

    def pod_changed(self, pod: PodView) -> None:
        """A pod was created or has changed."""
        if pod.claims or pod.extended_claim:
            self._users.put(pod.uid, ((pod.namespace, name) for name in _names(pod)))
            asked = (entry.resource_claim_template_name for entry in pod.claims)
            self._users_of_template.put(pod.uid, ((pod.namespace, name) for name in asked if name))
            self._members.put(pod.uid, ((pod.namespace, pod.group),) if pod.group else ())
            self._note(pod)

    def pod_gone(self, pod: PodView) -> None:
        """A pod was deleted; this is its last state."""
        if pod.claims or pod.extended_claim:
            for index in (self._users, self._users_of_template, self._members):
                index.put(pod.uid, ())
            self._pods_to_look_at.pop(pod.uid, None)
            self._settled(pod.uid)
            self._free(pod)

    def act(self, now_s: float) -> int:
        """Process all noted groups, pods and claims; returns how many."""
        groups, self._groups_to_look_at = self._groups_to_look_at, {}
        pods, self._pods_to_look_at = self._pods_to_look_at, {}
        claims, self._claims_to_look_at = self._claims_to_look_at, {}
        for key in groups:
            if (group := self._known_groups.get(key)) is not None:
                self._look_at_group(group, now_s)
        for uid in pods:
            if (pod := self._view.pods.get(uid)) is not None and pod.is_active:
                self._look_at_pod(pod, now_s)
        for key in claims:
            if (claim := self._claims.get(key)) is not None:
                self._guarded(key, partial(self._look_at_claim, claim))
        return len(groups) + len(pods) + len(claims)

    def _note(self, pod: PodView) -> None:
        if _is_done(pod):
            self._free(pod)
        # Nor is a claim made again for a pod that has ended, which is how its claim came to be deleted. (The
        # real controller is kept from that by a cache of its own claims alone.)
        if pod.is_active and self._needs_work(pod):
            self._pods_to_look_at[pod.uid] = None

    def _free(self, pod: PodView) -> None:
        for name in _names(pod):
            self._claims_to_look_at[pod.namespace, name] = None

    def _needs_work(self, pod: PodView) -> bool:
        """Whether a claim is to be made for the pod or reserved for it."""
        for entry in pod.claims:
            try:
                name = claim_name(pod, entry)
            except NotYet:
                return True
            claim = self._claims.get((pod.namespace, name)) if name is not None else None
            is_made = entry.resource_claim_template_name is not None
            if name is None or (claim is not None and is_made and not claim.is_for(pod)):
                continue
            if claim is None:
                if is_made:
                    return True
            elif pod.node and _is_unreserved(claim, pod):
                return True
        return False

    # Pods.

    def _look_at_pod(self, pod: PodView, now_s: float) -> None:
        if pod.group and self._api.find(self._groups, pod.namespace, pod.group) is None:
            self._again(pod.uid, now_s)
            return
        if self._make(pod, now_s) and pod.node:
            self._reserve(pod)

    def _look_at_group(self, group: GroupView, now_s: float) -> None:
        if not group.metadata.deletion_timestamp:
            self._make(group, now_s)

    def _make(self, user: PodView | GroupView, now_s: float) -> bool:
        """Makes the claims that are missing, and names them in the status; False if that has failed."""
        is_group = isinstance(user, GroupView)
        try:
            made = {entry.name: name for entry in user.claims if (name := self._made(user, entry))}
        except _Failed as failed:
            self._api.event(
                "PodGroup" if is_group else "Pod",
                user,
                "FailedResourceClaimCreation",
                str(failed),
                component="resource_claim",
                warning=True,
            )
            self._again(user.uid, now_s)
            return False
        self._settled(user.uid)
        if not made:
            return True

        def change(obj: Object) -> None:
            status = obj.setdefault("status", {})
            kept = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
            kept |= {name: {"name": name, "resourceClaimName": made[name]} for name in made}
            status["resourceClaimStatuses"] = [kept[name] for name in sorted(kept)]

        resource = self._groups if is_group else self._api.pods
        self._api.modify(resource, user.namespace, user.name, change, uid=user.uid)
        return True

    def _made(self, user: PodView | GroupView, entry: PodClaim) -> str:
        """Returns the name of a claim that the status does not name yet; "" if there is nothing to do.

        One that was made before, and not written down, is found again. Raises: _Failed.
        """
        template = entry.resource_claim_template_name
        if template is None:
            return ""
        try:
            name = claim_name(user, entry)
        except NotYet:
            pass
        else:
            claim = self._claims.get((user.namespace, name)) if name is not None else None
            if name is None or (claim is not None and _is_for(claim, user)):
                return ""
        group = None if isinstance(user, GroupView) else self._sharing(user, entry)
        for key in self._made_for.get(user.uid if group is None else group.uid, ()):
            if (self._claims[key].metadata.annotations or {}).get(POD_CLAIM) == entry.name:
                return key[1]
        return self._create(user, entry.name, template) if group is None else ""

    def _sharing(self, pod: PodView, entry: PodClaim) -> GroupView | None:
        """The pod's PodGroup, if the entry is one of that's claims."""
        group = self._known_groups.get((pod.namespace, pod.group)) if pod.group else None
        return group if group is not None and entry in group.claims else None

    def _create(self, user: PodView | GroupView, entry: str, template: str) -> str:
        """Raises: _Failed."""
        is_group = isinstance(user, GroupView)
        what = f"{'PodGroup' if is_group else 'Pod'}ResourceClaim {entry}"
        found = self._api.find(self._templates, user.namespace, template)
        if found is None:
            missing = f'resourceclaimtemplate.{_GROUP} "{template}" not found'
            raise _Failed(f'{what}: resource claim template "{template}": {missing}')
        spec = found.decode()["spec"]
        given = spec.get("metadata") or {}
        version, kind = (f"{SCHEDULING}/v1beta1", "PodGroup") if is_group else ("v1", "Pod")
        owner = {"apiVersion": version, "kind": kind, "name": user.name, "uid": user.uid, "controller": True}
        metadata: Object = {
            "generateName": _base(user.name, entry),
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: entry},
            "ownerReferences": [owner],
        }
        if labels := given.get("labels"):
            metadata["labels"] = labels
        claim = {"metadata": metadata, "spec": spec["spec"]}
        try:
            return self._api.registry.create(self._resource, claim, namespace=user.namespace).name
        except StatusError as error:
            raise _Failed(f"{what}: create ResourceClaim : {error.message}") from None

    def _reserve(self, pod: PodView) -> None:
        """Adds the reservations that are missing of a pod that was bound without them."""
        for entry in pod.claims:
            try:
                name = claim_name(pod, entry)
            except NotYet:
                return  # the pod's own change will bring it here again
            claim = self._claims.get((pod.namespace, name)) if name is not None else None
            is_made = entry.resource_claim_template_name is not None
            if claim is None or (is_made and not claim.is_for(pod)) or not _is_unreserved(claim, pod):
                continue

            consumer: Object = {"resource": "pods", "name": pod.name, "uid": pod.uid}
            if (group := self._sharing(pod, entry)) is not None:
                of_group = {"resource": "podgroups", "name": group.name, "uid": group.uid}
                consumer = {"apiGroup": SCHEDULING, **of_group}

            def change(obj: Object, consumer: Object = consumer) -> None:
                obj["status"]["reservedFor"] = [*(obj["status"].get("reservedFor") or ()), consumer]

            self._api.modify(self._resource, claim.namespace, claim.name, change, uid=claim.uid)

    def _again(self, uid: str, now_s: float) -> None:
        n = self._n_failed[uid] = min(self._n_failed.get(uid, 0) + 1, 20)
        delay_s = min(_RETRY_S * 2 ** (n - 1), _MAX_RETRY_S)
        self._timetable.at(now_s + delay_s, ("claims", uid), partial(self._look_again, uid=uid))

    def _look_again(self, now_s: float, *, uid: str) -> None:
        if (pod := self._view.pods.get(uid)) is not None:
            self._note(pod)
        for key, group in self._known_groups.items():
            if group.uid == uid:
                self._groups_to_look_at[key] = None

    def _settled(self, uid: str) -> None:
        if self._n_failed.pop(uid, None) is not None:
            self._timetable.cancel(("claims", uid))

    # Claims.

    def _look_at_claim(self, claim: ClaimView) -> None:
        consumers = claim.status.reserved_for
        n_left = sum(self._stays(consumer, claim.namespace) for consumer in consumers)
        if n_left < len(consumers):
            self._take_off(claim, deallocate=not n_left and claim.is_protected)
            if claim.is_protected and not n_left:
                self._modify(claim, _unprotect)
        elif claim.is_protected and claim.is_deleted and not n_left:
            if claim.is_allocated:
                self._modify(claim, _deallocate)
            self._modify(claim, _unprotect)
        name, uid = claim.maker
        if not n_left and name and self._is_done(claim.namespace, name, uid):
            self._api.delete(self._resource, claim.namespace, claim.name, uid=claim.uid)

    def _stays(self, consumer: Consumer, namespace: str) -> bool:
        """Whether it may need the claim; of kinds that are not known here, always."""
        if consumer.is_group:
            item = self._api.find(self._groups, namespace, consumer.name)
            return item is not None and item.uid == consumer.uid
        pod = self._view.pods.get(consumer.uid) if consumer.is_pod else None
        return not consumer.is_pod or (pod is not None and not _is_done(pod))

    def _is_done(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the pod that a claim was made for will not run; a pod that is gone is the collector's."""
        item = self._api.find(self._api.pods, namespace, name)
        if item is None:
            return False
        pod = self._view.pods.get(item.uid)
        return item.uid != uid or (pod is not None and _is_done(pod))

    def _take_off(self, claim: ClaimView, *, deallocate: bool) -> None:
        def change(obj: Object) -> None:
            left = [
                each
                for each in obj["status"].get("reservedFor") or ()
                if self._stays(msgspec.convert(each, Consumer), claim.namespace)
            ]
            obj["status"]["reservedFor"] = left
            if not left:
                del obj["status"]["reservedFor"]
            if deallocate:
                _deallocate(obj)

        self._modify(claim, change)

    def _modify(self, claim: ClaimView, change: Callable[[Object], None]) -> None:
        self._api.modify(self._resource, claim.namespace, claim.name, change, uid=claim.uid)

    def _guarded(self, key: Key, work: Callable[[], None]) -> None:
        try:
            work()
        except StatusError as error:
            _log.warning("a claim could not be processed", claim="/".join(key), err=str(error))


class _Index:
    """Pods by what they name; of each pod it knows what it named before."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[str, None]] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}

    def put(self, uid: str, keys: Iterable[Key]) -> None:
        named = tuple(keys)
        for key in self._keys.pop(uid, ()):
            pods = self._pods[key]
            pods.pop(uid, None)
            if not pods:
                del self._pods[key]
        for key in dict.fromkeys(named):
            self._pods.setdefault(key, {})[uid] = None
        if named:
            self._keys[uid] = tuple(dict.fromkeys(named))

    def of(self, key: Key) -> list[str]:
        return list(self._pods.get(key, ()))


def _names(pod: PodView | GroupView) -> list[str]:
    """The claims that it uses, as far as they have been made."""
    found: list[str] = []
    for entry in pod.claims:
        try:
            name = claim_name(pod, entry)
        except NotYet:
            continue
        if name is not None:
            found.append(name)
    if isinstance(pod, PodView) and pod.extended_claim:
        found.append(pod.extended_claim)
    return found


def _is_for(claim: ClaimView, user: PodView | GroupView) -> bool:
    return claim.controller_uid == user.uid if isinstance(user, GroupView) else claim.is_for(user)


def _is_done(pod: PodView) -> bool:
    return pod.is_terminal or (pod.is_deleted and not pod.node)


def _is_unreserved(claim: ClaimView, pod: PodView) -> bool:
    return claim.is_allocated and claim.can_be_reserved and not claim.is_reserved_for(pod)


def _deallocate(obj: Object) -> None:
    obj["status"].pop("allocation", None)
    # As the API server does: they say something of devices that are not held any more.
    obj["status"].pop("devices", None)


def _unprotect(obj: Object) -> None:
    kept = [each for each in obj["metadata"].get("finalizers", ()) if each != PROTECTION]
    obj["metadata"]["finalizers"] = kept
    if not kept:
        del obj["metadata"]["finalizers"]


def _base(pod: str, entry: str) -> str:
    """The beginning of a generated name: both names, cut in proportion to their lengths."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _MAX_BASE:
        return whole
    return f"{pod[: len(pod) * _MAX_BASE // len(whole)]}-{entry[: len(entry) * _MAX_BASE // len(whole)]}"
