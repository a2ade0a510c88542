"""A pod's terms about other pods, in a form that can be compared and counted.

Made once per template (core.types.templates.pod_template), counted by core.cache.pods.index, read by the
affinity plugins. A term's omitted namespaces are the pod's own. Keys of matchLabelKeys and mismatchLabelKeys
are merged into the selector as kube-apiserver does when it admits the pod, so that merging twice changes
nothing. Sources: kube-scheduler `framework/types.go` (AffinityTerm), kubernetes
`pkg/registry/core/pod/strategy.go` (applyMatchLabelKeysAndMismatchLabelKeys).

What a pod asks of other pods has a most length (core.types.templates.spec_limits). A pending pod above it is
not placed. One that is on a node already cannot be refused: of its terms the required anti-affinity alone is
kept, as written as far as the limits go, and the rest as if it repelled all pods of its own namespace, in
the same topology domains. Whoever created the pod may say that of the namespace anyway; pods of other
namespaces are not kept away by what is above the limit, so one tenant cannot take another's nodes with it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from gangsched.core.types.templates.spec_limits import MAX_POD_TERMS, PodWishes
from gangsched.model.objects import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from gangsched.model.selectors import EVERYTHING, PodTerm, Requirement, Selector, selector_of


class AffinityKind(enum.Enum):
    """The kinds of terms that a pod can have about other pods."""

    # Terms are counted by kind with every such pod; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    REQUIRED = "required affinity"
    PREFERRED = "preferred affinity"
    ANTI_REQUIRED = "required anti-affinity"
    ANTI_PREFERRED = "preferred anti-affinity"


class AffinityTerm(msgspec.Struct, frozen=True, gc=False):
    """Near, or far from, the pods of `term`, within one value of the node label `topology_key`.

    weight: of a preference; 0 if required.
    """

    term: PodTerm
    topology_key: str
    weight: int = 0


Carried = tuple[AffinityKind, AffinityTerm]
"""A term, as counted on the nodes of pods that have it."""


def affinity_terms_of(pod: Pod) -> tuple[Carried, ...]:
    """All terms of the pod about other pods, in the order of its spec; see above for a pod over a limit."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    if not _is_within(affinity):
        return _anti_required_within(pod)
    found: list[Carried] = []
    for rules, required, preferred in (
        (affinity.pod_affinity, AffinityKind.REQUIRED, AffinityKind.PREFERRED),
        (affinity.pod_anti_affinity, AffinityKind.ANTI_REQUIRED, AffinityKind.ANTI_PREFERRED),
    ):
        found += [(required, _compiled(term, pod)) for term in _required(rules)]
        found += [(preferred, _compiled(one.pod_affinity_term, pod, one.weight)) for one in _preferred(rules)]
    return tuple(found)


def _is_within(affinity: Affinity) -> bool:
    """Whether each side is within the limits, which are counted as for the reason (over_limit)."""
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
        wishes = PodWishes()
        preferred = (one.pod_affinity_term for one in _preferred(rules))
        if not all(map(wishes.add, (*_required(rules), *preferred))):
            return False
    return True


def _anti_required_within(pod: Pod) -> tuple[Carried, ...]:
    """Required anti-affinity up to the limits, then one term for each further topology key (see above)."""
    terms = _required(pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None)
    wishes, found = PodWishes(), []
    for term in terms:
        if not wishes.add(term):
            break
        found.append((AffinityKind.ANTI_REQUIRED, _compiled(term, pod)))
    rest = dict.fromkeys(term.topology_key for term in terms[len(found) :])
    own = PodTerm((pod.metadata.namespace,), None, EVERYTHING)
    more = [(AffinityKind.ANTI_REQUIRED, AffinityTerm(own, key)) for key in islice(rest, MAX_POD_TERMS)]
    return (*found, *more)


def keys_named(pod: Pod) -> Iterator[str]:
    """The pod labels that the pod's selectors look at."""
    spec = pod.spec
    affinity = spec.affinity
    if affinity is not None and not _is_within(affinity):
        yield from (key for _, term in _anti_required_within(pod) for key in term.term.keys)
    elif affinity is not None:
        for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
            for term in (*_required(rules), *(one.pod_affinity_term for one in _preferred(rules))):
                yield from _keys(term.label_selector)
                yield from term.match_label_keys or ()
                yield from term.mismatch_label_keys or ()
    for constraint in (spec.topology_spread_constraints or ())[:MAX_POD_TERMS]:
        yield from _keys(constraint.label_selector)
        yield from constraint.match_label_keys or ()


def spread_selectors_of(spec: PodSpec, labels: Mapping[str, str]) -> tuple[Selector | None, ...]:
    """The selector of each spread constraint of the spec, in its order, for a pod with these labels."""
    return tuple(_spread_selector(one, labels) for one in spec.topology_spread_constraints or ())


def counted_to_spread(namespace: str, selector: Selector | None) -> PodTerm | None:
    """The pods that a spread constraint counts; None: no pods. An empty selector, which matches all, counts
    none."""
    if selector is None or not selector.requirements:
        return None
    return PodTerm((namespace,), None, selector, skip_leaving=True)


def merged_keys(
    keys: Sequence[str] | None, labels: Mapping[str, str], *, operator: str = "In"
) -> list[Requirement]:
    """Conditions on `keys` with the pod's own label values; a missing label gives no condition."""
    return [Requirement(key, operator, (labels[key],)) for key in keys or () if key in labels]


def _spread_selector(one: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector | None:
    selector = selector_of(one.label_selector)
    return selector and selector.with_requirements(merged_keys(one.match_label_keys, labels))


def _compiled(term: PodAffinityTerm, pod: Pod, weight: int = 0) -> AffinityTerm:
    labels = pod.metadata.labels or {}
    selector = selector_of(term.label_selector)
    if selector is not None:
        more = merged_keys(term.match_label_keys, labels)
        more += merged_keys(term.mismatch_label_keys, labels, operator="NotIn")
        selector = selector.with_requirements(more)
    namespaces = tuple(sorted(set(term.namespaces or ())))
    if not namespaces and term.namespace_selector is None:
        namespaces = (pod.metadata.namespace,)
    meant = PodTerm(namespaces, selector_of(term.namespace_selector), selector)
    return AffinityTerm(meant, term.topology_key, weight)


def _required(rules: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return (rules.required_during_scheduling_ignored_during_execution if rules else None) or ()


def _preferred(rules: PodAffinity | None) -> Sequence[WeightedPodAffinityTerm]:
    return (rules.preferred_during_scheduling_ignored_during_execution if rules else None) or ()


def _keys(selector: LabelSelector | None) -> Iterable[str]:
    if selector is None:
        return ()
    return (*(selector.match_labels or ()), *(one.key for one in selector.match_expressions or ()))
