"""PerTemplate: what a plugin has computed for each template, kept while the template is in use.

A template keeps a whole pod spec alive, which may be a megabyte. Nothing here keeps a template alive: its
value is dropped once neither the template table nor a pod refers to it.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from gangsched.core.types.templates.pod_template import PodTemplate

T = TypeVar("T")


class PerTemplate(Generic[T]):
    """At most `limit` values by template; beyond it all are cleared, as recomputing takes microseconds.

    A value must not refer to its template.
    """

    __slots__ = ("_kept", "_limit")

    def __init__(self, limit: int = 2000) -> None:
        self._kept: WeakKeyDictionary[PodTemplate, T] = WeakKeyDictionary()
        self._limit = limit

    def get(self, template: PodTemplate) -> T | None:
        """The template's value; None if not computed."""
        return self._kept.get(template)

    def put(self, template: PodTemplate, value: T) -> T:
        """Keeps the value, and returns it."""
        if len(self._kept) >= self._limit and template not in self._kept:
            self._kept.clear()
        self._kept[template] = value
        return value
