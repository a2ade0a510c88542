"""Topology spread constraints, compiled: the pod's own, or the profile's for pods without any.

Read only by PodTopologySpread; separate because a constraint's meaning does not depend on what it is counted
for. Source: kube-scheduler 1.37 `plugins/podtopologyspread/common.go` and `plugin.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gangsched.core.types.templates.affinity_terms import counted_to_spread
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import LabelSelector, TopologySpreadConstraint
from gangsched.model.selectors import PodTerm, Selector
from gangsched.model.text.names import is_qualified_name

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
MUST = "DoNotSchedule"
MAY = "ScheduleAnyway"
_IGNORE = "Ignore"
_HONOR = "Honor"


class DefaultConstraint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One of PodTopologySpreadArgs.defaultConstraints, as it is written."""

    max_skew: Annotated[
        int,
        Meta(description="Constraints for pods that state none; the fields are a pod's own."),
    ] = 0
    topology_key: Annotated[str, Meta(description="A node label.")] = ""
    when_unsatisfiable: Annotated[str, Meta(description="`DoNotSchedule` or `ScheduleAnyway`.")] = ""
    label_selector: Annotated[
        LabelSelector | None,
        Meta(description="Refused: it is made for each pod."),
    ] = None
    min_domains: Annotated[int | None, Meta(description="As a pod's.")] = None
    node_affinity_policy: Annotated[str | None, Meta(description="As a pod's.")] = None
    node_taints_policy: Annotated[str | None, Meta(description="As a pod's.")] = None
    match_label_keys: Annotated[list[str] | None, Meta(description="As a pod's.")] = None


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """PodTopologySpreadArgs. Raises: ValueError (a constraint that kube-scheduler refuses)."""

    default_constraints: tuple[DefaultConstraint, ...] | None = None
    defaulting_type: Annotated[
        Literal["System", "List"],
        Meta(
            description="`List`: the list above. `System`: kube-scheduler's built-in constraints, which need"
            " the right to follow services and controllers: `deploy/default-spreading/`."
        ),
    ] = "System"

    def __post_init__(self) -> None:
        given = self.default_constraints or ()
        if self.defaulting_type == "System" and given:
            raise ValueError("defaultingType: System cannot be combined with defaultConstraints; use List")
        for i, one in enumerate(given):
            wrong = _problem(one, given[:i])
            if wrong:
                raise ValueError(f"defaultConstraints[{i}]{wrong}")


def _problem(one: DefaultConstraint, before: Sequence[DefaultConstraint]) -> str:
    if one.max_skew <= 0:
        return f".maxSkew: {one.max_skew} is not above 0"
    if not is_qualified_name(one.topology_key):
        return f".topologyKey: {one.topology_key!r} is not a label's key"
    if one.when_unsatisfiable not in (MUST, MAY):
        return f".whenUnsatisfiable: {one.when_unsatisfiable!r} is not one of {MUST}, {MAY}"
    if one.label_selector is not None:
        return ".labelSelector: is made for each pod and cannot be given"
    if any(
        (o.topology_key, o.when_unsatisfiable) == (one.topology_key, one.when_unsatisfiable) for o in before
    ):
        return f": {one.topology_key} with {one.when_unsatisfiable} is given twice"
    return ""


SYSTEM_DEFAULTS = (
    DefaultConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=MAY),
    DefaultConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=MAY),
)


class Constraint(msgspec.Struct, frozen=True, gc=False):
    """One constraint. term: the pods it counts, None for none; counts_itself: the pod is one of them.

    honors_affinity, honors_taints: only nodes that the pod's node affinity allows, or whose taints it
    tolerates, are part of their domain.
    """

    topology_key: str
    max_skew: int
    term: PodTerm | None
    counts_itself: bool
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


def compiled(
    template: PodTemplate,
    wire: Sequence[TopologySpreadConstraint | DefaultConstraint],
    selectors: Sequence[Selector | None],
    action: str,
) -> tuple[Constraint, ...]:
    """Compiles the constraints with this whenUnsatisfiable. selectors: the pods that each of `wire` is
    about."""
    found = []
    for one, selector in zip(wire, selectors, strict=True):
        if one.when_unsatisfiable != action:
            continue
        found.append(
            Constraint(
                one.topology_key,
                one.max_skew,
                counted_to_spread(template.namespace, selector),
                selector is not None and selector.matches(template.labels),
                one.min_domains if one.min_domains is not None else 1,
                (one.node_affinity_policy or _HONOR) == _HONOR,
                (one.node_taints_policy or _IGNORE) == _HONOR,
            )
        )
    return tuple(found)
