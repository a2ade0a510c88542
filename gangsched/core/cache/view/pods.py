"""PodQueries: pods on nodes, how many match a term, which are placed on this view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gangsched.core.cache.pods.index import PodIndex
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.affinity_terms import Carried
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import PodTerm


class PodQueries(RowQueries):
    """Pods that hold something on a node, bound or reserved, and those that a Trial has placed."""

    __slots__ = ()
    _by_node: Mapping[str, Mapping[str, PodInfo]]
    _index: PodIndex

    def pods_on(self, row: int) -> Iterable[PodInfo]:
        """Returns the pods that hold something on the node, bound or reserved; a Trial's own are in
        `placed`."""
        return self._by_node.get(self._nodes.names[row], _NOBODY).values()

    @property
    def placed(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """(row, template, count) placed by a Trial, in order; empty on the cache's own view."""
        return ()

    @property
    def moved(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """As `placed`, and the pods that the Trial has removed, with negative counts."""
        return ()

    @property
    def expected(self) -> Sequence[tuple[int, PodTemplate]]:
        """(row, template) of pods in `placed` that are yet to come: others' victims must go first, or a claim
        starts later. What must have a pod beside it must not count them; what must have none must."""
        return ()

    def matching_now(self, term: PodTerm) -> IntArray | None:
        """As `matching`, without the `expected` pods; None if none of them matches."""
        coming = [row for row, template in self.expected if self.means(term, template)]
        if not coming:
            return None
        there: IntArray = self.matching(term).copy()
        np.subtract.at(there, coming, 1)
        return there

    def matching(self, term: PodTerm) -> IntArray:
        """int64[n_rows]: how many pods on each node match the term; kept current, so it is cheap.

        Of a Trial's own pods, only labels that some selector has named before are compared.
        """
        return self._index.matching(term, self.n_rows)

    def carried_against(self, template: PodTemplate) -> Iterable[tuple[Carried, Mapping[int, int]]]:
        """Terms of pods on nodes that match pods of this template: row -> number of pods with the term."""
        return self._index.carried_against(template)

    def terms_about(self, template: PodTemplate) -> Sequence[Carried]:
        """As carried_against, including pods without a node, such as siblings."""
        return [one.stated for one in self._index.terms_about(template)]

    def means(self, term: PodTerm, template: PodTemplate) -> bool:
        """Whether the term matches pods of this template."""
        return self._index.means_template(term, template)

    def means_pod(self, term: PodTerm, pod: Pod) -> bool:
        """Whether the term matches this pod as it is."""
        return self._index.means_pod(term, pod)

    def volume_users(self) -> Mapping[int, Iterable[PodTemplate]]:
        """row -> the pods on it that use storage, by their templates; rows without any are absent."""
        return {row: tuple(users.values()) for row, users in self._index.volumes.by_row.items()}

    def claim_users(self, claim: tuple[str, str]) -> int:
        """How many pods on nodes use a claim, by (namespace, name)."""
        return self._index.volumes.claims.get(claim, 0)


_NOBODY: Mapping[str, PodInfo] = {}
