"""Templates: which pods are one problem to the scheduler, found when each is first seen.

Pods that no plugin can tell apart share one PodTemplate, and with it all that is worked out for it. What
makes them equal is core.template's signature, the labels that some selector looks at, and what plugins sign
of a pod's metadata. Kept by core.cache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from gangsched.core.pod_index import PodIndex
from gangsched.core.pod_terms import keys_named
from gangsched.core.template import PodTemplate, Unsigned, constraints_of, signature
from gangsched.model.objects import Pod
from gangsched.model.resources import ResourceTable

# Templates are shared by live pods; beyond this many the table is dropped and pods keep what they have.
_MAX_TEMPLATES = 50_000


class Templates:
    """One template for each kind of pod; sign: what plugins read of a pod's metadata, None: nothing."""

    def __init__(self, table: ResourceTable, index: PodIndex, sign: Callable[[Pod], Hashable] | None) -> None:
        self._table = table
        self._index = index
        self._sign = sign
        self._by_key: dict[Hashable, PodTemplate] = {}
        self._latest: tuple[Pod, PodTemplate, Hashable] | None = None
        """Who asked last, for which, and what was signed: a gang's pods come one after the other."""
        self._serial = 0
        self._n_signatures = 0

    @property
    def all(self) -> Collection[PodTemplate]:
        """Those that a new pod may come to share."""
        return self._by_key.values()

    def sign_by(self, sign: Callable[[Pod], Hashable] | None) -> bool:
        """This signature from now on; False: nothing is signed, as before."""
        if sign is None and self._sign is None:
            return False
        self._sign = sign
        self._n_signatures += 1
        self._by_key.clear()
        self._latest = None
        return True

    @property
    def edition(self) -> int:
        """Moves when a pod like one before may come to have another template."""
        return self._index.selection + self._n_signatures

    def is_of_all_alike(self, pod: Pod, template: PodTemplate) -> bool:
        """Whether the pod has its template, and all there is to it, by nothing that tells it from its like.

        Claims of its own are named after a pod; what it says of others is heard of each anew; and a plugin
        that reads metadata may read the name.
        """
        spec = pod.spec
        if spec.volumes or spec.affinity is not None or spec.topology_spread_constraints:
            return False
        return self._sign is None or self._sign(pod) in (None, ())

    def of(self, pod: Pod) -> PodTemplate:
        """The shared template of pods that no plugin can tell apart."""
        spec = pod.spec
        if spec.affinity is not None or spec.topology_spread_constraints:
            self._index.select(keys_named(spec))
        labels = self._index.project(pod.metadata.labels)
        signed = self._sign(pod) if self._sign is not None else None
        latest = self._latest
        if latest is not None and latest[2] == signed and _is_alike(pod, latest[0], labels, latest[1]):
            template = latest[1]
        else:
            template = self._known(pod, labels, signed)
            self._latest = (pod, template, signed)
        if template.wishes or spec.topology_spread_constraints:
            self._index.wake(template.wishes)
        return template

    def _known(self, pod: Pod, labels: Mapping[str, str], signed: Hashable) -> PodTemplate:
        key: Hashable = signature(pod, labels)
        if signed is not None:
            key = (key, signed)
        template = self._by_key.get(key)
        if template is None:
            if len(self._by_key) >= _MAX_TEMPLATES:
                self._by_key.clear()
            self._serial += 1
            template = self._by_key[key] = PodTemplate(pod, self._table, self._serial, labels)
            if isinstance(signed, Unsigned):
                template.problem = signed.problem
        return template


def _is_alike(pod: Pod, other: Pod, labels: Mapping[str, str], template: PodTemplate) -> bool:
    """Whether a glance tells that the pod's signature is the other's, whose template this is.

    The template's own pod is mostly of another group, which its spec may name: no use as the other.
    """
    return (
        pod.spec == other.spec
        and not pod.spec.volumes  # a claim of its own is named after the pod
        and pod.metadata.namespace == other.metadata.namespace
        and labels == template.labels
        and constraints_of(pod) == constraints_of(other)
    )
