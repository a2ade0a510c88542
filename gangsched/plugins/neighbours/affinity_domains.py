"""Where required terms of affinity and anti-affinity allow a pod: its own, and those of other pods.

Read only by InterPodAffinity. Source: kube-scheduler 1.37 `plugins/interpodaffinity/filtering.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.nodes.table import CodeArray
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.framework.interface import BoolArray, IntArray
from gangsched.core.types.templates.affinity_terms import AffinityKind
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.selectors import PodTerm
from gangsched.plugins.neighbours.domains import at_nodes, domain_totals, spread_out


def all_of(template: PodTemplate) -> PodTerm | None:
    """Combines all required terms: a single pod must match all of them; None when there are none."""
    terms = [term.term for kind, term in template.affinity_terms if kind is AffinityKind.REQUIRED]
    if len(terms) < 2:
        return terms[0] if terms else None
    return msgspec.structs.replace(terms[0], also=tuple(terms[1:]))


class _Near:
    """Nodes whose domains, for every required term, have a pod that matches all of those terms.

    If no pod matches anywhere and the pod matches its own terms, all nodes with the labels: it may be the
    first of its kind. Updated as pods are added. meant: all of those terms; counts: the pods that match.
    """

    __slots__ = ("_any_there", "_has_all", "_has_one", "_may_be_first", "_meant")

    def __init__(self, template: PodTemplate, meant: PodTerm, counts: IntArray, view: ClusterView) -> None:
        self._meant = meant
        self._any_there = False
        self._has_one: dict[str, BoolArray] = {}
        """topology key -> bool[n_rows]."""
        self._has_all = np.ones(view.n_rows, dtype=np.bool_)
        for key in dict.fromkeys(
            term.topology_key for kind, term in template.affinity_terms if kind is AffinityKind.REQUIRED
        ):
            codes, values = view.label(key)
            totals = domain_totals(codes, len(values), counts)
            self._any_there = self._any_there or bool(totals.any())
            self._has_all &= codes >= 0
            self._has_one[key] = at_nodes(codes, totals) > 0
        self._may_be_first = view.means(self._meant, template)

    def add(self, view: ClusterView, row: int, template: PodTemplate) -> None:
        """Counts a pod of `template` on `row`."""
        if not view.means(self._meant, template):
            return
        for key, has_one in self._has_one.items():
            codes, _ = view.label(key)
            if codes[row] >= 0:
                has_one |= codes == codes[row]
                self._any_there = True

    def mask(self) -> BoolArray:
        """bool[n_rows]."""
        if not self._any_there and self._may_be_first:
            return self._has_all
        mask: BoolArray = np.logical_and.reduce(list(self._has_one.values()))
        return mask


def near(template: PodTemplate, view: ClusterView) -> list[_Near]:
    """What the required terms allow, if all expected pods come and if none does; empty without any term.

    Source: kube-scheduler 1.37 `framework/runtime/framework.go` (RunFilterPluginsWithNominatedPods).
    """
    meant = all_of(template)
    if meant is None:
        return []
    found = [_Near(template, meant, view.matching(meant), view)]
    if (now := view.matching_now(meant)) is not None:
        found.append(_Near(template, meant, now, view))
    return found


def mask_of(allowed: Sequence[_Near]) -> BoolArray | None:
    """bool[n_rows]; None where nothing is required."""
    if not allowed:
        return None
    mask = allowed[0].mask()
    for one in allowed[1:]:
        mask = mask & one.mask()
    return mask


class Welcome:
    """Where the Filter allows pods of one template; updated as pods are placed (ClusterView.kept)."""

    __slots__ = ("_apart", "_is_apart", "_near", "_template")

    def __init__(self, template: PodTemplate, view: ClusterView) -> None:
        self._template = template
        self._near = near(template, view)
        clear = [own for own in (not_away(template, view), not_against(template, view)) if own is not None]
        self._is_apart: BoolArray | None = ~np.logical_and.reduce(clear) if clear else None
        """bool[n_rows]: domains with a pod that repels this one or is repelled by it."""
        self._apart: dict[int, list[CodeArray]] = {}
        """By template serial: the domains of all nodes, for each label relevant to its pods."""

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        for one in self._near:
            one.add(view, row, template)
        over = self._apart.get(template.serial)
        if over is None:
            keys = _apart_over(self._template, template, view)
            over = self._apart[template.serial] = [view.label(key)[0] for key in keys]
        for codes in over:
            code = int(codes[row])
            if code >= 0:
                if self._is_apart is None:
                    self._is_apart = np.zeros(view.n_rows, dtype=np.bool_)
                self._is_apart |= codes == code

    def mask(self) -> BoolArray | None:
        allowed = mask_of(self._near)
        if self._is_apart is None:
            return allowed
        return ~self._is_apart if allowed is None else allowed & ~self._is_apart


def _apart_over(one: PodTemplate, other: PodTemplate, view: PodQueries) -> list[str]:
    """Returns the topology keys over which one of the two templates repels the other."""
    terms = [(term, other) for kind, term in one.affinity_terms if kind is AffinityKind.ANTI_REQUIRED]
    terms += [(term, one) for kind, term in other.affinity_terms if kind is AffinityKind.ANTI_REQUIRED]
    return sorted({term.topology_key for term, meant in terms if view.means(term.term, meant)})


def not_away(template: PodTemplate, view: ClusterView) -> BoolArray | None:
    """Returns nodes whose domains have no pod that the template's terms repel."""
    terms = [term for kind, term in template.affinity_terms if kind is AffinityKind.ANTI_REQUIRED]
    return _clear(((term.topology_key, view.matching(term.term)) for term in terms), view)


def not_against(template: PodTemplate, view: ClusterView) -> BoolArray | None:
    """Returns nodes whose domains have no pod whose terms repel the template."""
    at: dict[str, dict[int, int]] = {}
    for (kind, term), rows in view.carried_against(template):
        if kind is AffinityKind.ANTI_REQUIRED:
            at.setdefault(term.topology_key, {}).update(rows)
    return _clear(((key, spread_out(rows, view.n_rows)) for key, rows in at.items()), view)


def _clear(counted: Iterable[tuple[str, IntArray]], view: NodeQueries) -> BoolArray | None:
    mask: BoolArray | None = None
    for key, counts in counted:
        codes, values = view.label(key)
        own = at_nodes(codes, domain_totals(codes, len(values), counts)) == 0
        mask = own if mask is None else mask & own
    return mask
