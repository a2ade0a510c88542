"""Joint: devices for the claims of many pods, each on its node, at once; earlier pods' devices included.

Claims of one pod alone are asked for on its node. A claim that several use is asked for once, among the
devices that all its users' nodes reach. Where no device is reached by more than one node and no claim is
shared, nodes are problems of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import Cluster, NodeOffer
from gangsched.core.resource_claims.pod_claims import ClaimNeed
from gangsched.core.resource_claims.search.allocator import STEPS, Ask, ChosenDevice, allocate
from gangsched.core.resource_claims.search.better import allocate_better
from gangsched.model.objects import Node


class PlacedPods(NamedTuple):
    """Equal pods on one node."""

    node: Node
    needs: tuple[ClaimNeed, ...]
    n: int = 1


class JointSolution(NamedTuple):
    """own: for each pod, in the order of the pods, the devices of each of its own claims in its order.
    shared: those of claims that several use, by UID. None: there are none, which `is_proved` unless a budget
    ended the search.
    """

    own: list[list[list[ChosenDevice]]] | None
    shared: Mapping[str, list[ChosenDevice]]
    is_proved: bool = True


def open_shared(book: ClaimBook, needs: Sequence[ClaimNeed]) -> list[str]:
    """Returns the UIDs of the claims among these that several pods use and that are still to be allocated."""
    return [need.uid for need in needs if need.uid and book.allocation(need.uid) is None]


def solve(
    book: ClaimBook,
    placed: Sequence[PlacedPods],
    cluster: Cluster,
    *,
    steps: int = STEPS,
    is_last: bool = False,
) -> JointSolution:
    """Finds devices for all claims of the pods that are still to be allocated.

    cluster: the devices that claims hold. is_last: these devices will be allocated; else it is asked whether
    there are some.
    Raises: AllocationError, ClaimProblem.
    """
    users: dict[str, list[NodeOffer]] = {}
    on = book.extended.on
    placed = [pods._replace(needs=on(pods.needs, pods.node.metadata.name)) for pods in placed]
    for pods in placed:
        for uid in open_shared(book, pods.needs):
            users.setdefault(uid, []).append(book.offer(pods.node))
    asks: list[Ask] = []
    asked_of: list[str] = []
    shared: dict[str, list[ChosenDevice]] = {}
    n_pods = 0
    for pods in placed:
        offer, like = book.offer(pods.node), -1
        for _ in range(pods.n):
            first, is_alone = len(asks), True
            # In the pod's order, which counts where one of its claims has admin access.
            for need in pods.needs:
                if need.digest:
                    asks.append(Ask(book.prepared(need.digest), offer, n_pods, like))
                    asked_of.append("")
                    like = -1
                elif need.uid in users and need.uid not in shared:
                    there = _common(users[need.uid])
                    asks.append(Ask(book.prepared(book.digest(need.uid)), there, n_pods))
                    asked_of.append(need.uid)
                    shared[need.uid] = []
                    is_alone = False
            like = first if is_alone else -1
            n_pods += 1
    finds = allocate_better if is_last and book.picks_better else allocate
    solution = finds(asks, cluster, steps=steps)
    if solution.chosen is None:
        return JointSolution(None, {}, is_proved=solution.is_proved)
    own: list[list[list[ChosenDevice]]] = [[] for _ in range(n_pods)]
    for ask, uid, chosen in zip(asks, asked_of, solution.chosen, strict=True):
        if uid:
            shared[uid] = chosen
        else:
            own[ask.pod].append(chosen)
    return JointSolution(own, shared)


def _common(offers: Sequence[NodeOffer]) -> NodeOffer:
    """Returns what all of these nodes reach."""
    first, others = offers[0], [one for one in offers[1:] if one is not offers[0]]
    return first.common(others) if others else first
