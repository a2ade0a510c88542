"""Reading each document once: the checkers look at the same ones after every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from gangsched.model.objects import Pod, PodSpec

_MAX_REMEMBERED = 8192

_Document = TypeVar("_Document")
_Read = TypeVar("_Read")


def read_once(read: Callable[[_Document], _Read]) -> Callable[[_Document], _Read]:
    """Caches `read` by document: a change in the store makes another object, and results are never written
    to.

    By identity, as documents cannot be hashed. Each is kept alive, so that no other gets its identity.
    """

    def whole(document: _Document) -> tuple[object, ...]:
        return (document,)

    return read_once_of(whole)(read)


def read_once_of(
    parts: Callable[[_Document], tuple[object, ...]],
) -> Callable[[Callable[[_Document], _Read]], Callable[[_Document], _Read]]:
    """As `read_once`, and reads only once for all versions of a document that share these parts (the same
    objects), which must be all that is read of it."""

    def reading(read: Callable[[_Document], _Read]) -> Callable[[_Document], _Read]:
        kept: dict[int, tuple[_Document, _Read]] = {}
        by_parts: dict[tuple[int, ...], tuple[tuple[object, ...], _Read]] = {}

        @wraps(read)
        def once(document: _Document) -> _Read:
            found = kept.get(id(document))
            if found is not None:
                return found[1]
            if len(kept) >= _MAX_REMEMBERED:
                kept.clear()
                by_parts.clear()
            own = parts(document)
            key = (*map(id, own),)
            known = by_parts.get(key)
            if known is None:
                known = by_parts[key] = (own, read(document))
            kept[id(document)] = (document, known[1])
            return known[1]

        return once

    return reading


def asking(spec: PodSpec) -> tuple[object, ...]:
    """All that pod_asks reads, which no binding replaces."""
    return spec.containers, spec.init_containers, spec.resources, spec.overhead


def naming_devices(pod: Pod) -> tuple[object, ...]:
    """All that ids_of reads."""
    return pod.metadata.annotations, pod.metadata.labels


def naming_a_gang(pod: Pod) -> tuple[object, ...]:
    """All that gang_of reads, which no new status of the pod replaces."""
    meta = pod.metadata
    return meta.uid, meta.name, meta.namespace, meta.labels, meta.annotations, pod.spec
