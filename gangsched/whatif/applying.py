"""What becomes of a file's objects when they are applied to a cluster that has some already. Pure.

Namespaces keep labels, as with `kubectl apply`; claims get the default StorageClass, as from the API server,
and volumes at once where their class does not wait for a pod, as from the volume controller. Called by trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gangsched.model import storage
from gangsched.model.events import Event, ObjectPut
from gangsched.model.objects import ObjectMeta
from gangsched.model.text.printable import one_line
from gangsched.plugins.volumes.claims import BIND_COMPLETED

NAMESPACES = "namespaces"
Objects = Callable[[str], Mapping[tuple[str, str], Any]]
"""The cluster's objects of a kind, by namespace and name."""
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_BY_HAND = "kubernetes.io/no-provisioner"
_FIRST_CONSUMER = "WaitForFirstConsumer"


def applied(events: Sequence[Event], objects: Objects) -> tuple[list[Event], list[str]]:
    """Returns the events that follow, and what is assumed, for people."""
    classes = {name: one for (_, name), one in objects(storage.CLASSES).items()}
    for event in events:
        if isinstance(event, ObjectPut) and event.kind == storage.CLASSES:
            classes[event.object.metadata.name] = event.object
    found: list[Event] = []
    bound: list[str] = []
    for event in events:
        if isinstance(event, ObjectPut) and event.kind == NAMESPACES:
            found.append(replace(event, object=_namespace(event.object, objects)))
        elif isinstance(event, ObjectPut) and event.kind == storage.CLAIMS:
            meta = event.object.metadata
            before = objects(storage.CLAIMS).get((meta.namespace, meta.name))
            if before is not None:
                continue  # its class cannot be changed, and its volume stays
            made = list(_claim(event.object, classes))
            found += made
            if len(made) > 1:
                bound.append(one_line(meta.name[:80]))
        else:
            found.append(event)
    notes = []
    if bound:
        more = f", and {len(bound) - 10} more" if len(bound) > 10 else ""
        named = ", ".join(bound[:10])
        notes.append(
            f"PersistentVolumeClaim {named}{more}: taken as bound to a volume that every node reaches"
        )
    return found, notes


def _namespace(namespace: Any, objects: Objects) -> Any:
    meta = namespace.metadata
    before = objects(NAMESPACES).get(("", meta.name))
    kept = (before.metadata.labels or {}) if before is not None else {}
    labels = {**kept, **(meta.labels or {}), "kubernetes.io/metadata.name": meta.name}
    return replace(namespace, metadata=replace(meta, labels=labels))


def _claim(
    claim: storage.PersistentVolumeClaim, classes: Mapping[str, storage.StorageClass]
) -> Iterator[Event]:
    spec = claim.spec
    if spec.storage_class_name is None and (name := _default(classes)):
        spec = replace(spec, storage_class_name=name)
    of = classes.get(spec.storage_class_name or "")
    if (
        of is None
        or spec.volume_name
        or of.provisioner == _BY_HAND
        or of.volume_binding_mode == _FIRST_CONSUMER
    ):
        yield ObjectPut(storage.CLAIMS, replace(claim, spec=spec))
        return
    meta = claim.metadata
    volume = f"whatif-{meta.namespace}-{meta.name}"
    annotations = {**(meta.annotations or {}), BIND_COMPLETED: "yes"}
    status = replace(claim.status, phase="Bound")
    spec = replace(spec, volume_name=volume)
    yield ObjectPut(
        storage.CLAIMS,
        replace(claim, metadata=replace(meta, annotations=annotations), spec=spec, status=status),
    )
    yield ObjectPut(
        storage.VOLUMES,
        storage.PersistentVolume(
            metadata=ObjectMeta(name=volume, uid=volume, resource_version="1"),
            spec=storage.VolumeSpec(
                access_modes=spec.access_modes,
                storage_class_name=of.metadata.name,
                volume_mode=spec.volume_mode,
                claim_ref=storage.ObjectReference(meta.name, meta.namespace, meta.uid),
            ),
            status=storage.VolumeStatus("Bound"),
        ),
    )


def _default(classes: Mapping[str, storage.StorageClass]) -> str:
    """Returns the default class: of several the newest, then by name."""
    found = [one for one in classes.values() if (one.metadata.annotations or {}).get(_IS_DEFAULT) == "true"]
    newest = sorted(found, key=lambda one: (_age(one.metadata), one.metadata.name))
    return newest[0].metadata.name if newest else ""


def _age(meta: ObjectMeta) -> float:
    return 0.0 if meta.creation_timestamp is None else -meta.creation_timestamp.timestamp()
