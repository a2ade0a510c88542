"""The longest lists that a pod's spec may have where each entry is compared with nodes or with other pods.

The API server bounds only the bytes of an object (1.5 MiB), which hold ten thousands of terms: what a turn
costs would be the choice of anybody who may create a pod. A pending pod above a limit is refused with the
reason and is never placed. A pod that is on a node already (bound by another scheduler, or created there)
stays there, and what it holds counts in full; of its terms about other pods see
core.types.templates.affinity_terms. Limits are an order of magnitude above what people write; kube-scheduler
has none. Called when a template is made, once for all pods that share it. What all pods of a turn ask
together is counted by core.cycle.unit_limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gangsched.model.objects import (
    LabelSelector,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    SelectorRequirement,
)

MAX_NODE_REQUIREMENTS = 1_000
"""Of nodeSelector and node affinity together; each is an array operation over all nodes."""
MAX_POD_TERMS = 100
"""Terms about other pods; each is counted over all pods and all nodes. The same for spread constraints."""
MAX_POD_REQUIREMENTS = 1_000
MAX_VALUES = 10_000
"""Values of requirements, and names of namespaces, each of which is looked up once."""
MAX_TOLERATIONS = 1_000
MAX_CONTAINERS = 1_000
MAX_AMOUNTS = 5_000
"""Requests and limits of all containers."""
MAX_PORTS = 1_000
MAX_VOLUMES = 500
MAX_MONITORS = 1_000
"""Of all RBD images together; two pods are compared by each monitor of an image."""

MAX_UNIT_TERMS = 2_000
"""Terms about other pods and spread constraints that differ, of all pods that are placed in one turn."""
MAX_UNIT_ENTRIES = 20_000
"""The same with those that are equal in pods of several kinds; each is looked at again for each kind."""
MAX_UNIT_REQUIREMENTS = 50_000
"""Requirements of node affinity and nodeSelector of all kinds of pods that are placed in one turn."""


class PodWishes(msgspec.Struct):
    """How much is asked about other pods so far."""

    n_terms: int = 0
    n_requirements: int = 0
    n_values: int = 0

    def add(self, term: PodAffinityTerm) -> bool:
        """Adds a term; returns whether all of them are within the limits."""
        self.n_terms += 1
        self.n_values += len(term.namespaces or ())
        for selector in (term.label_selector, term.namespace_selector):
            self.add_selector(selector)
        self.n_requirements += len(term.match_label_keys or ()) + len(term.mismatch_label_keys or ())
        return self.is_within

    def add_selector(self, selector: LabelSelector | None) -> None:
        """Adds the requirements of one selector."""
        if selector is not None:
            expressions = selector.match_expressions or ()
            self.n_requirements += len(selector.match_labels or ()) + len(expressions)
            self.n_values += _n_values(expressions)

    @property
    def is_within(self) -> bool:
        """Whether no limit is exceeded."""
        return (
            self.n_terms <= MAX_POD_TERMS
            and self.n_requirements <= MAX_POD_REQUIREMENTS
            and self.n_values <= MAX_VALUES
        )


def over_limit(spec: PodSpec) -> str:
    """Returns the first list that is too long, with its length and the limit; "" if none is."""
    for where, what, n, most in _counts(spec):
        if n > most:
            return f"{where}: {n:,} {what}, at most {most:,} are compared with each node or pod"
    return ""


def n_node_requirements(spec: PodSpec) -> int:
    """Counts the requirements of nodeSelector and node affinity."""
    n = len(spec.node_selector or ())
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        n += sum(map(_n_requirements, _node_terms(spec.affinity.node_affinity)))
    return n


def plain(spec: PodSpec) -> PodSpec:
    """The spec without the lists that are compared with nodes and pods: of a pod that is above a limit."""
    return msgspec.structs.replace(
        spec, node_selector=None, affinity=None, tolerations=None, topology_spread_constraints=None
    )


def _counts(spec: PodSpec) -> Iterator[tuple[str, str, int, int]]:
    """(field, what is counted, how many, the most)."""
    affinity = spec.affinity
    n_labels = len(spec.node_selector or ())
    if n_labels > MAX_NODE_REQUIREMENTS:
        yield "spec.nodeSelector", "labels", n_labels, MAX_NODE_REQUIREMENTS
    if affinity is not None:
        if affinity.node_affinity is not None:
            at = "spec.affinity.nodeAffinity"
            terms = list(_node_terms(affinity.node_affinity))
            n = n_node_requirements(spec)
            yield at, "requirements (with nodeSelector)", n, MAX_NODE_REQUIREMENTS
            yield at, "values", sum(map(_n_node_values, terms)), MAX_VALUES
        for at, rules in (
            ("spec.affinity: podAffinity", affinity.pod_affinity),
            ("spec.affinity: podAntiAffinity", affinity.pod_anti_affinity),
        ):
            if rules is not None:
                wishes = PodWishes()
                for term in _pod_terms(rules):
                    wishes.add(term)
                yield at, "terms", wishes.n_terms, MAX_POD_TERMS
                yield at, "requirements", wishes.n_requirements, MAX_POD_REQUIREMENTS
                yield at, "values and namespaces", wishes.n_values, MAX_VALUES
    if spec.topology_spread_constraints:
        at, wishes = "spec.topologySpreadConstraints", PodWishes()
        wishes.n_terms = len(spec.topology_spread_constraints)
        for one in spec.topology_spread_constraints:
            wishes.add_selector(one.label_selector)
            wishes.n_requirements += len(one.match_label_keys or ())
        yield at, "constraints", wishes.n_terms, MAX_POD_TERMS
        yield at, "requirements", wishes.n_requirements, MAX_POD_REQUIREMENTS
        yield at, "values", wishes.n_values, MAX_VALUES
    yield "spec.tolerations", "tolerations", len(spec.tolerations or ()), MAX_TOLERATIONS
    containers = (*spec.containers, *(spec.init_containers or ()))
    yield "spec.containers", "containers (with initContainers)", len(containers), MAX_CONTAINERS
    asked = [one.resources for one in containers if one.resources is not None]
    n = sum(len(one.requests or ()) + len(one.limits or ()) for one in asked)
    yield "spec.containers.resources", "requests and limits", n, MAX_AMOUNTS
    yield "spec.containers.ports", "ports", sum(len(one.ports or ()) for one in containers), MAX_PORTS
    volumes = spec.volumes or ()
    yield "spec.volumes", "volumes of storage or images", len(volumes), MAX_VOLUMES
    n = sum(len(one.rbd.monitors or ()) for one in volumes if one.rbd is not None)
    yield "spec.volumes.rbd.monitors", "monitors", n, MAX_MONITORS


def _node_terms(rules: NodeAffinity) -> Iterator[NodeSelectorTerm]:
    required = rules.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms or ()
    for one in rules.preferred_during_scheduling_ignored_during_execution or ():
        yield one.preference


def _pod_terms(rules: PodAffinity) -> Iterator[PodAffinityTerm]:
    yield from rules.required_during_scheduling_ignored_during_execution or ()
    for one in rules.preferred_during_scheduling_ignored_during_execution or ():
        yield one.pod_affinity_term


def _n_requirements(term: NodeSelectorTerm) -> int:
    """An empty term is one, too: it is looked at."""
    return max(1, len(term.match_expressions or ()) + len(term.match_fields or ()))


def _n_node_values(term: NodeSelectorTerm) -> int:
    return _n_values(term.match_expressions or ()) + _n_values(term.match_fields or ())


def _n_values(requirements: Iterable[SelectorRequirement]) -> int:
    return sum(len(one.values or ()) for one in requirements)
