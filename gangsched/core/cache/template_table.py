"""TemplateTable: finds pods that are the same problem to the scheduler, when each is first seen.

Pods that no plugin can distinguish share one PodTemplate, and with it all that is computed for it. They have
the same signature (core.types.templates.pod_template), the same values of the labels that some selector looks
at, and the same metadata as far as plugins sign it. Kept by core.cache.cache.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Protocol

import msgspec

from gangsched.core.cache.pods.index import PodIndex
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.pod_claims import ClaimNeed
from gangsched.core.types.templates.affinity_terms import keys_named
from gangsched.core.types.templates.pod_template import PodTemplate, Unsigned, signature
from gangsched.model.objects import Pod
from gangsched.model.resources import ResourceTable

_encode, _encode_any = msgspec.msgpack.Encoder().encode, msgspec.json.Encoder().encode
# Templates are shared by live pods; beyond this many the table is dropped and pods keep theirs.
_MAX_TEMPLATES = 50_000
# Keys take as much memory as the specs in them, mostly a kilobyte each; but users may write pods of a
# megabyte, each with its own template.
_MAX_BYTES = 16 * 2**20


class Signer(Protocol):
    """What one profile's plugins read of metadata; core.framework.filters.signing has the one
    implementation.
    """

    def sign(self, pod: Pod) -> Hashable:
        """Returns the part of the pod's metadata that plugins read."""
        ...


Signers = Mapping[str, Signer]
"""By the name of the scheduler."""


class TemplateTable:
    """One template for each kind of pod. signers: None: no plugin reads metadata."""

    def __init__(
        self, table: ResourceTable, index: PodIndex, claims: ClaimBook, signers: Signers | None
    ) -> None:
        self._table = table
        self._index = index
        self._claims = claims
        self._signers = signers
        self._by_key: dict[Hashable, PodTemplate] = {}
        self._n_bytes = 0
        self._latest: tuple[tuple[object, ...], PodTemplate, Hashable] | None = None
        """The last looked-up pod's signature, template and signed part: the next pod is often like it."""
        self._serial = 0
        self.unresolved: PodTemplate | None = None
        """The last new template, if it requests a resource without a column."""
        self._n_signatures = 0

    @property
    def all(self) -> Collection[PodTemplate]:
        """Templates that a new pod may come to share."""
        return self._by_key.values()

    def sign_by(self, signers: Signers | None) -> bool:
        """Sets the signers to use from now on; False if nothing was or is signed."""
        if signers is None and self._signers is None:
            return False
        self._signers = signers
        self._n_signatures += 1
        self._by_key.clear()
        self._n_bytes = 0
        self._latest = None
        return True

    @property
    def edition(self) -> int:
        """Changes when an equal pod may get another template than before."""
        return self._index.selected.n_added + self._n_signatures + self._claims.edition

    def is_of_all_alike(self, pod: Pod) -> bool:
        """Whether nothing distinguishes the last looked-up pod from the other pods of its template.

        Its claims, of volumes and of devices, may be its own; its terms about other pods are counted for each
        pod; and a plugin that reads metadata may read the name.
        """
        spec = pod.spec
        if spec.volumes or spec.affinity is not None or spec.topology_spread_constraints:
            return False
        if spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            return False
        return self._latest is not None and self._latest[2] in (None, ())

    def template(self, pod: Pod) -> PodTemplate:
        """Returns the shared template of pods that no plugin can distinguish."""
        spec = pod.spec
        if spec.affinity is not None or spec.topology_spread_constraints:
            self._index.selected.name(pod.metadata.uid, keys_named(pod))
        labels = self._index.project(pod.metadata.labels)
        signer = None if self._signers is None else self._signers.get(spec.scheduler_name)
        signed = None if signer is None else signer.sign(pod)
        needs = self._claims.needs(pod) if self._claims.may_need(pod) else ()
        looks = signature(pod, labels, needs)
        latest = self._latest
        if latest is not None and latest[2] == signed and latest[0] == looks:
            template = latest[1]
        else:
            template = self._known(pod, looks, labels, signed, needs)
            self._latest = (looks, template, signed)
        if template.affinity_terms or spec.topology_spread_constraints:
            self._index.start_counting(template.affinity_terms)
        return template

    def _known(
        self,
        pod: Pod,
        looks: tuple[object, ...],
        labels: Mapping[str, str],
        signed: Hashable,
        claims: tuple[ClaimNeed, ...] | None,
    ) -> PodTemplate:
        try:
            encoded = _encode(looks)
        except OverflowError:  # a quantity that is no text and needs more than 64 bits
            encoded = _encode_any(looks)
        key: Hashable = encoded if signed is None else (encoded, signed)
        template = self._by_key.get(key)
        if template is None:
            n_bytes = len(encoded) + sum(map(len, (pod.metadata.annotations or {}).values()))
            if len(self._by_key) >= _MAX_TEMPLATES or self._n_bytes + n_bytes > _MAX_BYTES:
                self._by_key.clear()
                self._n_bytes = 0
            self._n_bytes += n_bytes
            self._serial += 1
            template = self._by_key[key] = PodTemplate(pod, self._table, self._serial, labels, claims)
            if isinstance(signed, Unsigned):
                template.problem = signed.problem
            if template.missing:
                self.unresolved = template
        return template
