"""Signing: the part of pods' metadata that a profile's plugins read; equal for all pods of a template.

Called by core.state.state for the cache's templates, through the pod's profile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from gangsched.core.framework.filters.per_node import sign_metadata
from gangsched.core.framework.interface import (
    NodeFilterPlugin,
    NodeScorePlugin,
    Plugin,
    PodSigningPlugin,
)
from gangsched.core.framework.plugin_calls import PluginError, guarded
from gangsched.core.framework.supports import (
    SupportsSignedAnnotations,
    SupportsSigns,
    SupportsSignsOwners,
    serves,
)
from gangsched.core.types.templates.pod_template import Unsigned
from gangsched.model.objects import Pod


class Signing:
    """Calls the plugins that sign; for a pod without owners or signed annotations only some of them."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        named = tuple(plugins)
        self._signers = tuple(_signers(named))
        keyed = {p.name: p.signed_annotations for p in named if serves(p, SupportsSignedAnnotations)}
        self._signed_annotations: frozenset[str] = frozenset(key for keys in keyed.values() for key in keys)
        of_owners = {p.name for p in named if serves(p, SupportsSignsOwners) and p.signs_owners}
        self._signers_of = {
            (is_owned, is_noted): tuple(
                one
                for one in self._signers
                if (is_owned or one[0] not in of_owners) and (is_noted or one[0] not in keyed)
            )
            for is_owned in (False, True)
            for is_noted in (False, True)
        }
        """The plugins that sign a pod's metadata, by (it has owners, it has a signed annotation)."""
        self.is_used = bool(self._signers)
        """Whether any of the plugins reads a pod's metadata."""

    def sign(self, pod: Pod) -> Hashable:
        """Returns the part of the pod's metadata that its plugins read; Unsigned when one of them fails."""
        meta = pod.metadata
        annotations = meta.annotations
        is_noted = annotations is not None and not self._signed_annotations.isdisjoint(annotations)
        signers = self._signers_of[bool(meta.owner_references), is_noted]
        if not signers:  # nearly all pods
            return ()
        try:
            signed = tuple([sign(pod) for _, sign in signers])
            hash(signed)
        except Exception:
            return self._unsigned(pod)
        return signed

    def _unsigned(self, pod: Pod) -> Unsigned:
        """Finds the failing plugin by calling each again; rare, so the common path stays cheap."""
        for name, sign in self._signers:
            try:
                guarded(name, "sign", hash, guarded(name, "sign", sign, pod))
            except PluginError as error:
                return Unsigned(str(error))
        return Unsigned("a plugin's sign gives a different answer each time")


def _signers(plugins: Iterable[Plugin]) -> Iterator[tuple[str, Callable[[Pod], Hashable]]]:
    """Yields plugins that read metadata. Plugins for single nodes get the pod itself, so they sign by
    default."""
    for plugin in plugins:
        if serves(plugin, PodSigningPlugin):
            if not serves(plugin, SupportsSigns) or plugin.signs:
                yield plugin.name, plugin.sign
        elif serves(plugin, NodeFilterPlugin) or serves(plugin, NodeScorePlugin):
            yield plugin.name, sign_metadata
