"""Resource claims of PodGroups: one for all members, reserved for the PodGroup, for any number of pods."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import Pod, PodResourceClaim, PodResourceClaimStatus, SchedulingGroup
from tests.core.claims import ClaimCluster, Json, wish, with_claims

BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
BY_NAME = {"name": "gpu", "resourceClaimName": "shared"}
OWNER = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "uid-pg-g"}


def group(c: ClaimCluster, n: int, *claims: Json) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": n}}, "resourceClaims": list(claims)}
    c.object("core", make_pod_group("g", spec=spec))


def member(i: int, *, by_name: bool = False, entry: str = "gpu") -> Pod:
    pod = make_pod(f"g-{i}", gpus=0, cpu="10m")
    if by_name:
        pod = with_claims(pod, shared={entry: "shared"})
    else:
        status = replace(pod.status, resource_claim_statuses=[PodResourceClaimStatus(entry, "shared")])
        entries = [PodResourceClaim(entry, resource_claim_template_name="gpus")]
        pod = replace(pod, spec=replace(pod.spec, resource_claims=entries), status=status)
    return replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(pod_group_name="g")))


def make_shared(c: ClaimCluster, *, is_made: bool = True, count: int = 1) -> None:
    raw = c.make_claim("shared", wish(count))
    if is_made:
        raw["metadata"]["ownerReferences"] = [{**OWNER, "controller": True}]
        c.write(raw)


def entries(c: ClaimCluster) -> list[tuple[str, str, str, str]]:
    status = c.resource_claims["uid-shared"].get("status") or {}
    return [
        (one.get("apiGroup", ""), one["resource"], one["name"], one["uid"])
        for one in status.get("reservedFor") or ()
    ]


THE_GROUP = ("scheduling.k8s.io", "podgroups", "g", "uid-pg-g")


@pytest.mark.parametrize("by_name", [False, True])
def test_the_claim_of_a_pod_group_is_reserved_for_the_group_by_one_write(by_name: bool) -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=1)
    make_shared(c, is_made=not by_name)
    group(c, 3, BY_NAME if by_name else BY_TEMPLATE)
    c.submit([member(i, by_name=by_name) for i in range(3)]).run()
    assert c.n_bound() == 3
    assert len({one.spec.node_name for one in c.pods.values()}) == 1
    assert entries(c) == [THE_GROUP]
    assert [one.is_status for one in c.all(ef.PatchClaim)] == [False, True]


@pytest.mark.long
def test_more_pods_than_a_claim_can_list_share_that_of_their_pod_group() -> None:
    c = ClaimCluster().offer("n", "m", "k", gpus_each=0)
    c.slice("net", _everywhere())
    c.make_claim("shared", wish())
    group(c, 260, BY_NAME)
    c.submit([member(i, by_name=True) for i in range(260)]).run()
    assert c.n_bound() == 260
    assert entries(c) == [THE_GROUP]


def _everywhere() -> Json:
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    return {"driver": "gpu.example.com", "pool": pool, "allNodes": True, "devices": [{"name": "d"}]}


@pytest.mark.long
def test_no_more_pods_than_a_claim_can_list_share_one_that_is_not_their_pod_groups() -> None:
    c = ClaimCluster().offer("n", "m", "k", gpus_each=0)
    c.slice("net", _everywhere())
    c.make_claim("shared", wish())
    group(c, 257)
    c.submit([member(i, by_name=True) for i in range(257)]).run()
    assert not c.all(ef.PatchClaim)
    says = "at most 256 pods may use it, unless a PodGroup that lists it is theirs"
    assert f"resource claim d/shared: {says}" in c.said("g-0")
    group(c, 256)
    c.run().wait(60.0)
    assert c.n_bound() == 256
    assert len(entries(c)) == 256
    [late] = [one.metadata.name for one in c.pods.values() if not one.spec.node_name]
    assert says in c.said(late)


@pytest.mark.long
def test_256_pods_whose_scheduler_ended_before_they_were_bound_are_bound_by_the_next() -> None:
    """Their own entries are no reason against them."""
    c = ClaimCluster().offer("n", "m", "k", gpus_each=0)
    c.slice("net", _everywhere())
    c.make_claim("shared", wish())
    group(c, 256)
    c.answer = lambda bind: "hold"
    c.submit([member(i, by_name=True) for i in range(256)]).run()
    assert len(entries(c)) == 256
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert c.n_bound() == 256


@pytest.mark.parametrize("entry", ["gpu", "other"])
def test_an_entry_of_another_name_is_the_pods_own(entry: str) -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    make_shared(c, is_made=False)
    group(c, 2, {**BY_NAME, "name": "gpu"})
    c.submit([member(i, by_name=True, entry=entry) for i in range(2)]).run()
    assert c.n_bound() == 2
    assert (entries(c) == [THE_GROUP]) is (entry == "gpu")
    assert ([one[2] for one in entries(c)] == ["g-0", "g-1"]) is (entry == "other")


def test_a_claim_that_was_made_for_another_pod_group_is_not_used() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    raw = c.make_claim("shared", wish())
    raw["metadata"]["ownerReferences"] = [{**OWNER, "controller": True, "uid": "uid-before"}]
    c.write(raw)
    group(c, 1, BY_TEMPLATE)
    c.submit(member(0)).run()
    assert not c.n_bound()
    assert "(neither Pod nor PodGroup g is the owner)" in c.said("g-0")
    make_shared(c)
    c.run()
    assert c.n_bound() == 1


def test_the_order_of_pods_and_pod_group_does_not_matter() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit([member(i) for i in range(2)])
    make_shared(c)
    c.run()
    assert not c.n_bound()
    group(c, 2, BY_TEMPLATE)
    c.run()
    assert c.n_bound() == 2
    assert entries(c) == [THE_GROUP]


def test_one_refused_write_takes_back_the_whole_claim() -> None:
    c = ClaimCluster().offer("n")
    make_shared(c)
    group(c, 2, BY_TEMPLATE)
    pods = [member(i) for i in range(2)]
    c.make_claim("g-1-own", wish(), owner=pods[1])
    spec, status = pods[1].spec, pods[1].status
    assert spec.resource_claims
    assert status.resource_claim_statuses
    own = [*spec.resource_claims, PodResourceClaim("own", resource_claim_template_name="gpus")]
    named = [*status.resource_claim_statuses, PodResourceClaimStatus("own", "g-1-own")]
    pods[1] = replace(
        pods[1],
        spec=replace(spec, resource_claims=own),
        status=replace(status, resource_claim_statuses=named),
    )
    c.claim_answer = lambda patch: "403" if patch.is_status and patch.name == "g-1-own" else "ok"
    c.submit(pods).run()
    assert not c.n_bound()
    assert not entries(c)
    assert not c.devices("shared")
    c.claim_answer = lambda patch: "ok"
    c.settled()
    assert c.n_bound() == 2


def test_a_member_that_fails_leaves_the_claim_to_those_that_have_started() -> None:
    c = ClaimCluster().offer("n")
    make_shared(c)
    group(c, 1, BY_TEMPLATE)
    c.answer = lambda bind: "403" if bind.name == "g-1" else "ok"
    c.submit([member(i) for i in range(2)]).run()
    assert c.n_bound() == 1
    assert entries(c) == [THE_GROUP]
    assert c.devices("shared") == ["n/gpu-0"]
    c.answer = lambda bind: "ok"
    c.settled()
    assert c.n_bound() == 2
    assert not any('"$patch"' in one.patch.decode() for one in c.all(ef.PatchClaim))


def test_what_a_crash_left_is_given_back_when_the_group_does_not_fit_with_it() -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=1)
    make_shared(c)
    group(c, 2, BY_TEMPLATE)
    c.answer = lambda bind: "hold"
    c.submit([member(i) for i in range(2)]).run()
    c.answer = lambda bind: "ok"
    [device] = c.devices("shared")
    c.drop_node(device.partition("/")[0])
    c.restart().run()
    assert c.n_bound() == 2
    assert c.devices("shared") != [device]
    assert entries(c) == [THE_GROUP]


def test_new_pods_of_a_group_take_its_claim_elsewhere_when_they_do_not_fit_where_it_was() -> None:
    """The controller frees the claim when the PodGroup is deleted, and not with its pods."""
    c = ClaimCluster().offer("n", "m", gpus_each=1)
    make_shared(c)
    group(c, 1, BY_TEMPLATE)
    c.submit(member(0)).run()
    [device] = c.devices("shared")
    c.wait(100.0).delete("g-0")
    c.run().wait(100.0)
    assert c.devices("shared") == [device], "the PodGroup still has it"
    c.drop_node(device.partition("/")[0])
    c.submit(member(1)).settled()
    assert c.n_bound() == 1
    assert c.devices("shared") != [device]


def test_a_claim_is_given_back_when_its_group_is_not_whole_any_more_and_no_pod_of_it_has_a_node() -> None:
    c = ClaimCluster().offer("n")
    make_shared(c)
    group(c, 2, BY_TEMPLATE)
    c.submit([member(i) for i in range(2)]).run()
    c.wait(2 * c.settings.settle_s)
    c.delete("g-0", "g-1").submit(member(2)).run()
    assert entries(c) == [THE_GROUP]
    c.wait(c.settings.settle_s + 1.0)
    assert not entries(c)
    assert not c.devices("shared")


def test_a_running_group_keeps_its_claim_whatever_becomes_of_later_members() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    make_shared(c)
    group(c, 1, BY_TEMPLATE)
    c.submit(member(0)).run()
    before = json.dumps(c.resource_claims["uid-shared"])
    huge = member(1)
    huge = replace(huge, spec=replace(huge.spec, node_selector={"no": "node"}))
    c.submit(huge).run().wait(1000.0)
    assert json.dumps(c.resource_claims["uid-shared"]) == before


def test_devices_of_a_pod_groups_claim_are_not_freed_by_evicting_its_pods() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    make_shared(c)
    group(c, 2, BY_TEMPLATE)
    c.submit([member(i) for i in range(2)]).run()
    c.submit(c.want("p", wish(), priority=100)).run().wait(1000.0)
    assert not c.all(ef.EvictPod)
    assert not c.are_bound("p")[0]
