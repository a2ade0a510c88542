"""What is written into a claim's status: its devices, what drivers are told, and where they can be used.

Source: k8s.io/dynamic-resource-allocation v0.37.1 `structured/internal/incubating/allocator_incubating.go`,
Allocate and createNodeSelector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gangsched.core.resource_claims.candidates import AllocationError
from gangsched.core.resource_claims.requests import PreparedClaim, Request
from gangsched.core.resource_claims.search.allocator import ChosenDevice
from gangsched.model.objects import NodeSelector, NodeSelectorTerm, SelectorRequirement
from gangsched.model.resource_claims.objects import (
    AllocatedConfiguration,
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
)


def allocation(
    claim: PreparedClaim, chosen: Sequence[ChosenDevice], node_name: str, new_share_id: Callable[[], str]
) -> Allocation:
    """Returns the allocation; when it is made is noted by whoever sends it. Raises: AllocationError."""
    results = [_device(one, new_share_id) for one in chosen]
    devices = AllocatedDevices(results, _configuration(claim, chosen) or None)
    return Allocation(devices, _node_selector(chosen, node_name))


def _device(one: ChosenDevice, new_share_id: Callable[[], str]) -> AllocatedDevice:
    device, request = one.device, one.request
    return AllocatedDevice(
        request=request.name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.name,
        admin_access=request.admin_access or None,
        tolerations=list(request.tolerations) or None,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=new_share_id() if device.shareable else None,
        consumed_capacity={name: taken.text for name, taken in (one.taken or {}).items()} or None,
    )


def _served(claim: PreparedClaim, chosen: Sequence[ChosenDevice]) -> list[Request]:
    """Returns for each request itself, or the subrequest that is served."""
    served = {one.request.parent: one.request for one in chosen}
    return [served.get(each[0].parent, each[0]) for each in claim.choices]


def _configuration(claim: PreparedClaim, chosen: Sequence[ChosenDevice]) -> list[AllocatedConfiguration]:
    """Returns the classes' parameters for drivers, each once, then the claim's; an entry that is for all of
    the claim's requests names none."""
    served = _served(claim, chosen)
    found: list[AllocatedConfiguration] = []
    of_class: dict[str, list[AllocatedConfiguration]] = {}
    for request in served:
        spec, name = request.device_class.spec, request.device_class.metadata.name
        if name in of_class:
            for one in of_class[name]:
                one.requests = [*(one.requests or ()), request.name]
            continue
        of_class[name] = [
            AllocatedConfiguration(source="FromClass", requests=[request.name], opaque=one.opaque)
            for one in spec.config or ()
        ]
        found += of_class[name]
    names = {name for request in served for name in (request.parent, request.name)}
    for asked in claim.spec.devices.config or ():
        if not asked.requests or names.intersection(asked.requests):
            found.append(
                AllocatedConfiguration(source="FromClaim", requests=asked.requests, opaque=asked.opaque)
            )
    for each in found:
        listed = each.requests or ()
        if listed and all(one.parent in listed or one.name in listed for one in served):
            each.requests = None
    return found


def _node_selector(chosen: Sequence[ChosenDevice], node_name: str) -> NodeSelector | None:
    """Returns where all of the devices can be used: on the node if one of them is there only."""
    fields: list[SelectorRequirement] = []
    expressions: list[SelectorRequirement] = []
    for one in chosen:
        reach = one.device.reach
        if reach.node_name or one.device.binds_to_node:
            only = SelectorRequirement("metadata.name", "In", [node_name])
            return NodeSelector([NodeSelectorTerm(match_fields=[only])])
        terms = reach.selector.node_selector_terms or () if reach.selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(
                f"device {one.device.id}: its node selector has {len(terms)} terms, one can be used"
            )
        for term in terms:
            _join(fields, term.match_fields or ())
            _join(expressions, term.match_expressions or ())
    if not fields and not expressions:
        return None
    return NodeSelector([NodeSelectorTerm(expressions or None, fields or None)])


def _join(known: list[SelectorRequirement], more: Iterable[SelectorRequirement]) -> None:
    for one in more:
        values = set(one.values or ())
        if not any(
            each.key == one.key and each.operator == one.operator and set(each.values or ()) == values
            for each in known
        ):
            known.append(one)
