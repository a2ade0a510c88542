"""Claims that several pods share: kept together, allocated once, and no loop about them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gangsched.core.binding import claim_writes
from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.cache.trial import ClusterView
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.search import joint
from gangsched.core.resource_claims.search.joint import PlacedPods, open_shared
from gangsched.core.state.claim_uses import ClaimRecord, ClaimUses
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import CLAIMS, ResourceClaim
from gangsched.plugins.resources import dynamic_resources
from tests.core.claims import ClaimCluster, gpus, wish, with_claims
from tests.public_faults.faults import shows
from tests.public_faults.scenes import given, no_answer


def using(name: str, **options: object) -> Pod:
    """A pod that uses the claim `shared`."""
    return with_claims(make_pod(name, gpus=0, **options), shared={"gpu": "shared"})  # type: ignore[arg-type]


def members(n: int, **options: object) -> list[Pod]:
    return [using(f"g-{i}", group="g", min_members=n, **options) for i in range(n)]


def pending_refuses_the_next_member(patch: pytest.MonkeyPatch) -> None:
    """A claim that an earlier member is about to allocate is nobody else's until that is done."""
    why_not = dynamic_resources._why_not

    def asked(view: ClusterView, placed: Sequence[PlacedPods]) -> str:
        *before, last = placed
        mine = set(open_shared(view.claims, last.needs))
        if any(mine & set(open_shared(view.claims, one.needs)) for one in before):
            return "resource claim is in the process of being allocated"
        return why_not(view, placed)

    patch.setattr(dynamic_resources, "_why_not", asked)


@shows("I2", pending_refuses_the_next_member)
def test_a_gang_that_shares_a_claim_starts_and_then_rests() -> None:
    """It looped for ever: "in the process of being allocated".

    github.com/kubernetes/kubernetes/issues/137617
    """
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    c.submit(members(3)).run()
    assert c.n_bound() == 3
    assert sorted(c.reserved("shared")) == ["g-0", "g-1", "g-2"]
    n_written = len(c.all(ef.PatchClaim))
    assert n_written <= 4, "the finalizer, and a reservation a pod at most"
    c.five_more_turns_change_nothing()
    assert len(c.all(ef.PatchClaim)) == n_written


def pending_is_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Where an allocation is that is not written yet is not looked at."""
    is_on = dynamic_resources._is_on

    def on(claim: ResourceClaim, node: Node, book: ClaimBook) -> bool:
        return claim.status.allocation is None or is_on(claim, node, book)

    patch.setattr(dynamic_resources, "_is_on", on)


def only_the_first_node_counts(patch: pytest.MonkeyPatch) -> None:
    """A shared claim gets devices that the first of its pods reaches."""
    patch.setattr(joint, "_common", lambda offers: offers[0])


@shows("I3", pending_is_everywhere)
def test_the_second_pod_of_a_claim_that_is_being_allocated_goes_where_its_device_is() -> None:
    """It went to a node that does not have the device.

    github.com/kubernetes/kubernetes/issues/140087
    """
    c = ClaimCluster().node(make_node("n", gpus=0, cpu=1, listed=False))
    c.slice("slice-n", gpus("n", 1)).make_claim("shared", wish())
    c.claim_answer = lambda patch: "hold"
    c.submit(using("first", cpu="1")).run()
    assert len(c.held_patches) == 1, "the allocation is under way"
    c.offer("empty", gpus_each=0)
    c.submit(using("second", cpu="1")).run()
    no_answer(c)
    c.settled()
    assert c.are_bound("first", "second") == [True, False]
    assert "resourceclaim not available on the node" in c.said("second")


@shows("I3", only_the_first_node_counts)
def test_members_that_share_a_claim_do_not_go_beyond_the_nodes_of_its_device() -> None:
    """The second pod went to a node that does not have the device.

    github.com/kubernetes/kubernetes/issues/140087
    """
    c = ClaimCluster().node(make_node("n", gpus=0, cpu=1, listed=False)).offer("empty", gpus_each=0)
    c.slice("slice-n", gpus("n", 1)).make_claim("shared", wish())
    c.submit(members(2, cpu="1")).run()
    assert c.untouched("g")
    assert not c.all(ef.PatchClaim)
    c.offer("m", gpus_each=1).settled()
    assert c.nodes_of("g") == ["m", "m"]


def allocated_meanwhile_is_allocated_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """What another member has written counts as somebody else's."""
    patch.setattr(claim_writes, "_differ", lambda one, other: True)


@shows("I4", allocated_meanwhile_is_allocated_elsewhere)
def test_a_pod_goes_on_when_its_claim_was_allocated_for_another_pod_meanwhile() -> None:
    """The second member gave up: "got allocated elsewhere in the meantime".

    github.com/kubernetes/kubernetes/issues/140053
    """
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    c.claim_answer = lambda patch: "hold" if patch.is_status else "ok"
    c.submit(using("first")).run()
    c.claim_answer = lambda patch: "ok"
    c.submit(using("second")).run()
    [held] = c.held_patches
    assert c.land(held)
    stored = c._stored(held.uid)
    assert stored is not None
    c.tell(ev.ClaimPatched(held.uid, held.ticket, stored)).run()
    assert c.are_bound("first", "second") == [True, True]
    assert not c.all(ef.GetClaim)
    assert len(given(c)) == 1


def given_up_by_one_is_given_up_by_all(patch: pytest.MonkeyPatch) -> None:
    """When a pod gives up, memory goes back to what the watch has shown of its claims."""
    unwant = ClaimUses.unwant

    def restores(uses: ClaimUses, pod: str) -> None:
        for uid in uses.of_pod.get(pod, ()):
            uses._book.release(uid)
        unwant(uses, pod)

    patch.setattr(ClaimUses, "unwant", restores)


def the_watch_is_always_right(patch: pytest.MonkeyPatch) -> None:
    """A version from the watch replaces a newer one that the answer to a write has brought."""

    def takes(writes: ClaimWrites, record: ClaimRecord, claim: ResourceClaim | None) -> None:
        record.latest = claim
        writes._shared.claim_uses.dirty[record.uid] = None
        writes._tell(record)

    patch.setattr(ClaimWrites, "_take_in", takes)


@shows("I5", given_up_by_one_is_given_up_by_all, the_watch_is_always_right)
def test_a_claim_is_not_put_back_to_an_older_version_when_one_of_its_pods_gives_up() -> None:
    """Members were stuck: memory had the older, unallocated version of their claim.

    github.com/kubernetes/kubernetes/pull/140269
    """
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    older = c._stored("uid-shared")
    another = c.want("another", wish())
    c.shows_claims = False
    c.submit(using("first"), using("second")).run()
    assert c.devices("shared") == ["n/gpu-0"]
    c.delete("second").submit(another).run()
    assert given(c) == ["n/gpu-0"], "it is the first pod's still"
    c.tell(ev.ObjectPut(CLAIMS, older)).run()
    c.show_all().settled()
    assert c.are_bound("first", "another") == [True, False]
    assert c.reserved("shared") == ["first"]
    assert not c.all(ef.GetClaim), "no write was by an older version"
