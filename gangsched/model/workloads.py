"""Namespaces, priority classes, and the objects that own or select pods: only the fields we read.

Decoded like model.objects. A plugin that lists their kind in its `watches` finds them in
`view.objects(kind)`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gangsched.model.objects import LabelSelector, ObjectMeta


class _Kept(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Shared options of all objects here."""


class Namespace(_Kept):
    metadata: ObjectMeta


PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


class PriorityClass(_Kept):
    """The API server sets pods' priority from it; a PodGroup of another system only names it."""

    metadata: ObjectMeta
    value: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0
    global_default: bool = False


class _EqualitySpec(_Kept):
    selector: dict[str, str] | None = None


class _SelectorSpec(_Kept):
    selector: LabelSelector | None = None


class Service(_Kept):
    """Without a selector it selects nothing."""

    metadata: ObjectMeta
    spec: _EqualitySpec = msgspec.field(default_factory=_EqualitySpec)


class ReplicationController(_Kept):
    metadata: ObjectMeta
    spec: _EqualitySpec = msgspec.field(default_factory=_EqualitySpec)


class ReplicaSet(_Kept):
    metadata: ObjectMeta
    spec: _SelectorSpec = msgspec.field(default_factory=_SelectorSpec)


class StatefulSet(_Kept):
    metadata: ObjectMeta
    spec: _SelectorSpec = msgspec.field(default_factory=_SelectorSpec)


class DisruptionBudgetStatus(_Kept):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(_Kept):
    """`status.disruptions_allowed`: how many more pods may be evicted; disrupted_pods already count."""

    metadata: ObjectMeta
    spec: _SelectorSpec = msgspec.field(default_factory=_SelectorSpec)
    status: DisruptionBudgetStatus = msgspec.field(default_factory=DisruptionBudgetStatus)


def selector_keys(obj: Any) -> tuple[str, ...]:
    """Returns the pod labels by which placement distinguishes the object's pods.

    Empty for objects that select no pods, or select them for other purposes (a disruption budget).
    """
    if not isinstance(obj, Service | ReplicationController | ReplicaSet | StatefulSet):
        return ()
    selector = obj.spec.selector
    if isinstance(selector, LabelSelector):
        return (*(selector.match_labels or ()), *(one.key for one in selector.match_expressions or ()))
    return tuple(selector or ()) if isinstance(selector, dict) else ()
