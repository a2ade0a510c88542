"""The core API: `spec.schedulingGroup` and scheduling.k8s.io PodGroup. Sources: KEP-4671, KEP-5832,
KEP-5729.

The Job controller of 1.37 (gate WorkloadWithJob) gives every Job such a PodGroup, and if the Job states
nothing about scheduling its policy is `basic`, which requires no gang.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import ALL, SINGLE, Dialect, GroupClaim, Numbers, ObjectKind
from gangsched.model.dialects.numbers import GROUPS_KEY, count, priority_class
from gangsched.model.fields import Fields
from gangsched.model.objects import CustomObject, PodResourceClaim
from gangsched.model.stated.topology import both, parse_constraints

WHERE = "spec.schedulingGroup.podGroupName"
"""The field in which a pod names its group; it is outside the metadata."""


_PARENT = "parentCompositePodGroupName"
_MODES_OF_ALPHA = {"Pod": SINGLE, "PodGroup": ALL}
"""In v1alpha2 the field is a text."""

_FIELDS = Fields(
    read=(
        "spec.schedulingPolicy.basic",
        "spec.schedulingPolicy.gang.minCount",
        "spec.schedulingConstraints.topology[].key",
        "spec.disruptionMode.single",
        "spec.disruptionMode.all",
        "spec.priority",
        "spec.priorityClassName",
        "spec.preemptionPolicy",
        "spec.resourceClaims[].name",
        "spec.resourceClaims[].resourceClaimName",
        "spec.resourceClaims[].resourceClaimTemplateName",
    ),
    without_effect={
        "spec.workloadRef.**": "names the template that the PodGroup was made from; its fields are copied",
        "spec.podGroupTemplateRef.**": "the same in v1alpha2",
    },
    refused={
        f"spec.{_PARENT}": "a PodGroup that is part of a CompositePodGroup starts only when the whole tree "
        "can, and trees are not placed (yet); make it without a parent, and write the annotation "
        f"{GROUPS_KEY} with the names of all PodGroups of the tree on each of them: they start together",
    },
)


def _from_object(item: CustomObject, annotated: Numbers) -> Numbers:
    spec = item.spec or {}
    policy = spec.get("schedulingPolicy")
    gang = policy.get("gang") if isinstance(policy, dict) else None
    topology = both(parse_constraints(spec), annotated["topology"])
    # A basic child of a gang waits for its parent: it is no group whose pods may start one by one.
    numbers: Numbers = {
        "min_count": 1,
        "is_basic": not isinstance(gang, dict) and not topology and not spec.get(_PARENT),
        "topology": topology,
    }
    if isinstance(gang, dict):
        numbers["min_count"] = count(gang.get("minCount", 1), "spec.schedulingPolicy.gang.minCount")
    numbers |= priority_class(spec)
    priority = spec.get("priority")
    if isinstance(priority, int):
        numbers["priority"] = priority
    mode = spec.get("disruptionMode")
    # The API's own field overrides the annotation; a PodGroup without either is disrupted pod by pod.
    if isinstance(mode, dict) and (ALL in mode or SINGLE in mode):
        numbers["disruption_mode"] = ALL if ALL in mode else SINGLE
    elif isinstance(mode, str) and mode in _MODES_OF_ALPHA:
        numbers["disruption_mode"] = _MODES_OF_ALPHA[mode]
    elif not annotated["disruption_mode"]:
        numbers["disruption_mode"] = SINGLE
    numbers["preempts"] = spec.get("preemptionPolicy") != "Never"
    if claims := spec.get("resourceClaims"):
        numbers["claims"] = tuple(_claims(claims))
    return numbers


def _claims(entries: object) -> Iterator[GroupClaim]:
    """Raises: ParseError."""
    for at, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        try:
            given = msgspec.convert(entry, PodResourceClaim)
        except msgspec.ValidationError as error:
            raise ParseError(str(error), field=f"spec.resourceClaims[{at}]") from None
        yield GroupClaim(given.name, given.resource_claim_name, given.resource_claim_template_name)


DIALECT = Dialect(
    name="core",
    kinds=(ObjectKind("scheduling.k8s.io", ("v1beta1", "v1alpha2")),),
    from_object=_from_object,
    fields=_FIELDS,
)
