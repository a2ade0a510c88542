"""Binds a pod's claims before the pod: writes what VolumeBinding chose, and waits until it is done.

An existing volume gets the claim as its claimRef; a claim that needs a new volume gets the node. Then the
volume controller binds the claims, and each claim's volume is read: the driver may have made it where the
node does not reach it, or another process may have chosen it for another node. Called by VolumeBinding's
PreBind, which has a deadline. Source: kube-scheduler 1.37 `plugins/volumebinding/binder.go` (checkBindings).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import Handle
from gangsched.errors import ApiError
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.storage import VOLUMES, PersistentVolume, PersistentVolumeClaim
from gangsched.model.text.names import is_subdomain
from gangsched.model.text.printable import marked, one_line
from gangsched.plugins.volumes.claims import claim_of, is_bound, lost, on_nodes
from gangsched.plugins.volumes.volume_matching import SELECTED_NODE, Choice

T = TypeVar("T")
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_LOOK_S = 0.5
# Drivers name few keys with one value each; people may write anything.
_MAX_AFFINITY = 256


class _Expected(NamedTuple):
    """A claim to be bound: to this volume, or to one that is made for a node."""

    claim: PersistentVolumeClaim
    volume_name: str = ""
    made_for: str = ""


async def bind_claims(choice: Choice, node_name: str, handle: Handle) -> str:
    """Binds the claims; returns the problem, "" once all have volumes that the node reaches. Raises:
    ApiError.

    A gang may have waited in Permit for minutes since its volumes were chosen. A volume given to a claim that
    is gone would be lost: the volume controller calls it released.
    """
    for claim in (*(claim for claim, _ in choice.volumes), *choice.made):
        if not _is_still(claim, claim_of(choice.view, (claim.metadata.namespace, claim.metadata.name))):
            return _replaced(claim)
    expected = [_Expected(claim, volume.metadata.name) for claim, volume in choice.volumes]
    for claim, volume in choice.volumes:
        await _give(volume, claim, handle)
    for claim in choice.made:
        expected.append(_Expected(claim, made_for=await _ask_for(claim, node_name, handle)))
    for one in expected:
        problem = await _bound(one, node_name, choice.view, handle)
        if problem:
            return problem
    return ""


async def _give(volume: PersistentVolume, claim: PersistentVolumeClaim, handle: Handle) -> None:
    """Reserves the volume for this claim; a member of the same gang that shares the claim may have done so.

    Raises: ApiError, also on a concurrent change by another program.
    """
    meta = claim.metadata
    owner = volume.spec.claim_ref
    if owner is not None and owner.uid == meta.uid:
        return
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    patched: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if owner is None:
        patched["annotations"] = {_BOUND_BY_CONTROLLER: "yes"}
    path = _volume_path(volume.metadata.name)
    try:
        await handle.patch(path, {"metadata": patched, "spec": {"claimRef": reference}})
    except ApiError as error:
        if error.code != 409:
            raise
        owner = (await _read(path, PersistentVolume, handle)).spec.claim_ref
        if owner is None or owner.uid != meta.uid:
            raise


async def _ask_for(claim: PersistentVolumeClaim, node_name: str, handle: Handle) -> str:
    """Has a volume provisioned where the node reaches it; returns the node it is made for. Raises: ApiError.

    A member of the same gang that shares the claim may have asked first, for its own node. The volume will
    show whether this node reaches it too.
    """
    meta = claim.metadata
    if (meta.annotations or {}).get(SELECTED_NODE) == node_name:
        return node_name
    patched = {"resourceVersion": meta.resource_version, "annotations": {SELECTED_NODE: node_name}}
    try:
        await handle.patch(_claim_path(claim), {"metadata": patched})
    except ApiError as error:
        if error.code != 409:
            raise
        now = (await _read(_claim_path(claim), PersistentVolumeClaim, handle)).metadata
        asked = (now.annotations or {}).get(SELECTED_NODE, "")
        if now.uid != meta.uid or not asked:
            raise
        return asked
    return node_name


async def _bound(expected: _Expected, node_name: str, nodes: NodeQueries, handle: Handle) -> str:
    """Waits until the claim is bound; returns the problem, "" if none. Raises: ApiError."""
    path, wanted = _claim_path(expected.claim), expected.volume_name
    name = expected.claim.metadata.name
    while True:
        now = await _read(path, PersistentVolumeClaim, handle)
        if not _is_still(expected.claim, now):
            return _replaced(expected.claim)
        got = now.spec.volume_name
        if is_bound(now):
            if wanted and got != wanted:
                # A request of a former process may have come first.
                return f"binding volumes: PVC {name!r} got {got} instead"
            if now.status.phase == "Lost":
                return lost(now)
            volume = await _volume(got, handle)
            if volume is not None:
                return _unsuitable(now, volume, node_name, nodes)
        elif not wanted and (now.metadata.annotations or {}).get(SELECTED_NODE) != expected.made_for:
            # The provisioner removes the annotation to report failure.
            return f"provisioning failed for PVC {name!r}"
        await handle.sleep(_LOOK_S)


def _is_still(claim: PersistentVolumeClaim, now: PersistentVolumeClaim | None) -> bool:
    """Whether this claim still has its name, and is not being deleted."""
    return now is not None and now.metadata.uid == claim.metadata.uid and not now.metadata.deletion_timestamp


def _replaced(claim: PersistentVolumeClaim) -> str:
    return f"binding volumes: PVC {claim.metadata.name!r} was deleted meanwhile"


async def _volume(name: str, handle: Handle) -> PersistentVolume | None:
    """Returns the volume; None if the API server has none, as its caches may answer for a new one. Raises:
    ApiError.

    If it is gone, the volume controller will mark the claim as lost.
    """
    if not is_subdomain(name):  # users may write any text there, and it becomes a part of a path
        raise ApiError(f"{name!r} is not the name of a volume")
    try:
        return await _read(_volume_path(name), PersistentVolume, handle)
    except ApiError as error:
        subject = error.subject
        is_about_it = subject is not None and (subject.kind, subject.name) == (VOLUMES, name)
        if error.code == 404 and is_about_it:
            return None
        raise


async def _read(path: str, form: type[T], handle: Handle) -> T:
    """Raises: ApiError."""
    try:
        return msgspec.convert(await handle.get(path), form)
    except msgspec.ValidationError as error:
        raise ApiError(f"{path} cannot be read: {error}") from None


def _unsuitable(
    claim: PersistentVolumeClaim, volume: PersistentVolume, node_name: str, nodes: NodeQueries
) -> str:
    """Returns why the pod cannot use the claim's volume on this node; "" if it can."""
    name, mine, owner = volume.metadata.name, claim.metadata, volume.spec.claim_ref
    if owner is None or owner.uid != mine.uid:
        its = "none" if owner is None else marked("claim", [f"{owner.namespace}/{owner.name}"])
        if owner is not None and owner.namespace == mine.namespace:
            its = f"{its} ({owner.uid})"  # it may be of the same name, and a former one
        return f"binding volumes: PVC {mine.name!r} names {name} as its volume, whose claim is {its}"
    row = nodes.row_of(node_name)
    if row is None:
        return f"node {node_name} is gone"
    reached = on_nodes(volume, nodes, slice(row, row + 1))
    if reached is None or reached[0]:
        return ""
    what = f"{name}, the volume of PVC {mine.name!r}"
    return f"binding volumes: node {node_name} does not reach {what}: it is for {_affinity(volume)}"


def _affinity(volume: PersistentVolume) -> str:
    """Describes the nodes that reach the volume, by its affinity."""
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else None
    text = one_line(" or ".join(map(_term, terms or ())))
    if len(text) > _MAX_AFFINITY:
        text = f"{text[:_MAX_AFFINITY]}…"
    return f"nodes with {text}" if text else "no node"


def _term(term: NodeSelectorTerm) -> str:
    asked = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(f"{one.key} {one.operator} {', '.join(one.values or ())}".rstrip() for one in asked)


def _claim_path(claim: PersistentVolumeClaim) -> str:
    meta = claim.metadata
    return f"/api/v1/namespaces/{meta.namespace}/persistentvolumeclaims/{meta.name}"


def _volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{name}"
