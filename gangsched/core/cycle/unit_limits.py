"""What all pods of one turn may ask together about nodes and other pods.

One pod's lists are bounded where its template is made (core.types.templates.spec_limits). Members of a gang
may each have lists of their own, as long as one pod's may be, so a gang of a few hundred pods would still
take a turn of minutes. Above the limits here the unit is refused before anything is computed for its members.
Searches, which look again and again, have budgets of looks, and a look costs more the more is asked
(`weight_of`). Called by core.groups.attempts.attempts, core.preemption.victim_trials, and by core.cycle.cycle
for those who ask on a copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.types.templates.spec_limits import MAX_UNIT_ENTRIES, MAX_UNIT_REQUIREMENTS, MAX_UNIT_TERMS
from gangsched.core.why import Why
from gangsched.core.why.not_tried import AsksTooMuch


def over_unit_limit(members: Sequence[Sequence[PodInfo]]) -> Why:
    """Returns why the members of the unit's groups ask too much together; "" if they do not."""
    if _are_alike(members):  # nearly always
        return ""
    templates = _templates(members)
    n = sum(one.n_node_requirements for one in templates)
    if n > MAX_UNIT_REQUIREMENTS:
        return AsksTooMuch("nodeAffinity and nodeSelector", f"{n:,} requirements", MAX_UNIT_REQUIREMENTS)
    n = sum(one.n_pod_terms for one in templates)
    if n > MAX_UNIT_ENTRIES:
        return AsksTooMuch(_POD_TERMS, f"{n:,} of them", MAX_UNIT_ENTRIES)
    if n > MAX_UNIT_TERMS:
        n = len(set(_terms(templates)))
        if n > MAX_UNIT_TERMS:
            return AsksTooMuch(_POD_TERMS, f"{n:,} different ones", MAX_UNIT_TERMS)
    return ""


def _are_alike(members: Sequence[Sequence[PodInfo]]) -> bool:
    first = members[0][0].template if members[0] else None
    for own in members:
        for info in own:
            if info.template is not first:
                return False
    return True


def weight_of(members: Sequence[Sequence[PodInfo]]) -> int:
    """Returns about how many times as much one look at all nodes costs for a member of the unit as for a pod
    that asks little of nodes and other pods; budgets of searches are divided by it."""
    templates = _templates(members)
    n_terms = sum(one.n_pod_terms for one in templates)
    n_requirements = sum(one.n_node_requirements for one in templates)
    return 1 + (n_terms // _TERMS + n_requirements // _REQUIREMENTS) // max(len(templates), 1)


# Measured: a template with so many costs about twice as much as one with none.
_TERMS, _REQUIREMENTS = 4, 100


def _templates(members: Sequence[Sequence[PodInfo]]) -> set[PodTemplate]:
    return {info.template for own in members for info in own}


_POD_TERMS = "podAffinity, podAntiAffinity and topologySpreadConstraints"


def _terms(templates: Iterable[PodTemplate]) -> Iterator[Hashable]:
    """Yields what is compared with other pods; equal terms of several templates are computed once."""
    for template in templates:
        yield from template.affinity_terms
        constraints = template.spec.topology_spread_constraints or ()
        for one, selector in zip(constraints, template.spread_selectors, strict=True):
            yield template.namespace, one.topology_key, selector
