"""Our allocator's answer to a case, in the form of the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import msgspec

from gangsched.core.resource_claims.candidates import AllocationError, Cluster, NodeOffer
from gangsched.core.resource_claims.devices import PoolBook
from gangsched.core.resource_claims.holdings import Holdings
from gangsched.core.resource_claims.requests import ClaimProblem, PreparedClaim
from gangsched.core.resource_claims.results import allocation
from gangsched.core.resource_claims.search.allocator import Ask, Solution, allocate
from gangsched.core.resource_claims.selectors import Selectors
from gangsched.model.resource_claims.objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)

_Object = TypeVar("_Object")
# Nothing random is proved infeasible by more.
_STEPS = 2_000_000


def answer(case: dict[str, Any], *, finds: Callable[..., Solution] = allocate) -> dict[str, Any]:
    """What we answer on each node: "allocations", "none" or "error"."""
    classes = {one.metadata.name: one for one in _read(case["classes"], DeviceClass)}
    rules = _read(case.get("rules") or [], DeviceTaintRule)
    book, holdings, selectors = PoolBook(), Holdings(), Selectors()
    for at, one in enumerate(_read(case["slices"], ResourceSlice)):
        # Kubernetes' tables have slices of one name in different pools.
        one.metadata.name += f"-{at:03}"
        book.put(one)
    for claim in _read(case.get("allocated") or [], ResourceClaim):
        if claim.status.allocation is not None:
            holdings.add(claim.status.allocation)
    claims = _read(case["claims"], ResourceClaim)

    cluster = Cluster(holdings, selectors, {str(at): one for at, one in enumerate(rules)})
    return {
        "nodes": {
            node["metadata"]["name"]: _on_node(node, book, cluster, claims, classes, finds)
            for node in case["nodes"]
        }
    }


def _read(raw: list[dict[str, Any]], kind: type[_Object]) -> list[_Object]:
    # As the bytes of a watch would be: drivers' parameters are kept as they are.
    return msgspec.json.decode(msgspec.json.encode(raw), type=list[kind])  # type: ignore[valid-type]


def _on_node(
    node: dict[str, Any],
    book: PoolBook,
    cluster: Cluster,
    claims: list[ResourceClaim],
    classes: dict[str, DeviceClass],
    finds: Callable[..., Solution],
) -> dict[str, Any]:
    name = node["metadata"]["name"]
    labels = node["metadata"].get("labels") or {}

    share_ids = (f"00000000-0000-4000-8000-{n:012}" for n in count(1))
    try:
        place = NodeOffer(book.at(name, labels), name, labels)
        prepared = [PreparedClaim(one.spec, classes) for one in claims]
        found = finds([Ask(one, place) for one in prepared], cluster, steps=_STEPS)
        if found.chosen is None:
            return {"none": True} if found.is_proved else {"error": "deadline"}
        made = [
            allocation(one, chosen, name, lambda: next(share_ids))
            for one, chosen in zip(prepared, found.chosen, strict=True)
        ]
    except (AllocationError, ClaimProblem) as error:
        return {"error": error.reason}
    return {"allocations": [msgspec.json.decode(msgspec.json.encode(one)) for one in made]}
