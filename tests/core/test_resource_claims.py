"""Pods with resource claims: where they go, what is written in which order, and what is taken back."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from gangsched.core.cache.trial import Trial
from gangsched.core.explaining.explain import explain
from gangsched.core.resource_claims.book import KINDS
from gangsched.core.resource_claims.requests import DOMAIN_DRIVER, DOMAIN_LABEL
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.resource_claims.objects import CLAIMS, DEVICE_CLASSES, SLICES, TAINT_RULES, DeviceClass
from gangsched.process.leadership import foreseen
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish, with_claims
from tests.support.scenario import Cluster


def gang(c: ClaimCluster, name: str, n: int, spec: Json) -> list[Pod]:
    return [c.want(f"{name}-{i}", spec, group=name, min_members=n) for i in range(n)]


def theirs(device: str) -> Json:
    """The status of a claim of another scheduler's pod, with a device of node n."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": device}
    users = [{"resource": "pods", "name": "x", "uid": "uid-x"}]
    return {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}


def counted(c: ClaimCluster) -> dict[str, int]:
    """What /metrics has of resource claims."""
    names = ("claims_allocated", "claims_taken_back", "claims_swept", "claim_conflicts")
    counters = c.scheduler.shared.counters
    return {name: counters[name] for name in names if counters[name]}


def test_a_pod_is_bound_once_its_claim_is_allocated_and_reserved_for_it() -> None:
    c = ClaimCluster().offer("n")
    c.submit(c.want("p", wish(2))).run()
    assert c.n_bound() == 1
    assert c.devices("p-gpu") == ["n/gpu-0", "n/gpu-1"]
    assert c.reserved("p-gpu") == ["p"]
    kinds = [type(one) for one in c.effects if isinstance(one, ef.PatchClaim | ef.BindPod)]
    assert kinds == [ef.PatchClaim, ef.PatchClaim, ef.BindPod]
    keep, add = c.all(ef.PatchClaim)
    assert json.loads(keep.patch)["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert add.is_status


def test_a_pod_waits_until_its_claim_exists() -> None:
    c = ClaimCluster().offer("n")
    pod = with_claims(make_pod("p", gpus=0), own=("gpu",))
    c.submit(pod).run()
    assert not c.n_bound()
    assert not c.all(ef.WritePodCondition), "it is about to be made"
    c.wait(1.0)
    assert 'could not find ResourceClaim "d/p-gpu"' in c.said("p")
    c.make_claim("p-gpu", wish(), owner=pod)
    c.run()
    assert c.n_bound() == 1


def test_a_gang_shares_a_node_by_devices_and_no_bind_is_sent_before_the_last_claim_is_reserved() -> None:
    c = ClaimCluster().offer("n", "m")
    c.submit(gang(c, "g", 4, wish(4))).run()
    assert c.placed("g", on=2)
    taken = [one for i in range(4) for one in c.devices(f"g-{i}-gpu")]
    assert len(set(taken)) == 16
    first_bind = next(i for i, one in enumerate(c.effects) if isinstance(one, ef.BindPod))
    assert not any(isinstance(one, ef.PatchClaim) for one in c.effects[first_bind:])


def test_a_device_about_which_a_selector_fails_keeps_out_no_pod_that_can_do_without_it() -> None:
    """As Kubernetes' allocator, which takes the first device that will do."""
    spec = gpus("n", 2)
    del spec["devices"][1]["attributes"]
    c = ClaimCluster().offer().node(make_node("n", gpus=0, listed=False)).slice("slice-n", spec)
    bare = wish(expression=f"device.attributes['{DRIVER}'].model == 'H200'")
    c.submit(c.want("p", bare)).run()
    assert c.devices("p-gpu") == ["n/gpu-0"]
    c.submit(c.want("q", bare)).run()
    assert "selector #0 on device gpu.example.com/n/gpu-1: CEL runtime error: no such key: model" in c.said(
        "q"
    )


@pytest.mark.parametrize(("order", "n_bound"), [(("all", "gpu"), 0), (("gpu", "all"), 1)])
def test_admin_access_keeps_later_claims_of_its_pod_from_a_device(
    order: tuple[str, ...], n_bound: int
) -> None:
    """As kube-scheduler, which allocates all claims of a pod together, in their order."""
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("all", wish(adminAccess=True))
    pod = with_claims(make_pod("p", gpus=0), own=("gpu",), shared={"all": "all"})
    entries = {one.name: one for one in pod.spec.resource_claims or ()}
    pod = replace(pod, spec=replace(pod.spec, resource_claims=[entries[name] for name in order]))
    c.make_claim("p-gpu", wish(), owner=pod)
    c.submit(pod).run()
    assert c.n_bound() == n_bound


def test_a_gang_that_does_not_fit_writes_nothing() -> None:
    c = ClaimCluster().offer("n")
    c.submit(gang(c, "g", 3, wish(4))).run()
    assert c.untouched("g")
    assert not c.all(ef.PatchClaim)
    assert "1 cannot allocate all claims" in c.said("g-0")


def test_one_refused_claim_takes_back_all_of_them_with_no_pod_bound() -> None:
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "403" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    assert c.untouched("g")
    assert not c.devices("g-0-gpu")
    assert not c.reserved("g-0-gpu")
    c.claim_answer = lambda patch: "ok"
    c.settled()
    assert c.placed("g")


def test_a_lost_write_is_bumped_and_sent_again() -> None:
    c = ClaimCluster().offer("n")
    answers = iter(["ok", "lost"])
    c.claim_answer = lambda patch: next(answers, "ok")
    c.submit(c.want("p", wish())).run()
    c.wait(10.0)
    assert c.n_bound() == 1
    [lost] = c.held_patches
    assert c.all(ef.BumpClaim)
    assert not c.land(lost)


def test_a_late_answer_is_found_by_a_read() -> None:
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "late"
    c.submit(c.want("p", wish())).run()
    c.wait(10.0)
    assert c.n_bound() == 1
    assert not c.all(ef.BumpClaim)


def test_no_bind_before_the_watch_has_shown_the_writes() -> None:
    c = ClaimCluster().offer("n")
    c.submit(c.want("p", wish()))
    c.shows_claims = False
    c.run()
    assert c.devices("p-gpu")
    assert not c.n_bound()
    c.show_all().run()
    assert c.n_bound() == 1


def test_a_device_that_another_scheduler_gave_out_meanwhile_is_given_back() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit(c.want("p", wish()))
    c.shows_claims = False
    c.run()
    c.shows_claims = True
    c.make_claim("theirs", wish(), **theirs("gpu-0"))
    c.show_all().run()
    assert not c.n_bound()
    assert not c.devices("p-gpu")
    assert any("is in claim d/theirs too" in one.message for one in c.all(ef.WritePodCondition))
    assert counted(c) == {"claims_allocated": 1, "claims_taken_back": 1, "claim_conflicts": 1}


def test_pods_that_share_a_claim_go_where_it_is() -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=1)
    c.make_claim("shared", wish())
    pods = [
        with_claims(make_pod(f"g-{i}", gpus=0, group="g", min_members=3), shared={"gpu": "shared"})
        for i in range(3)
    ]
    c.submit(pods).run()
    assert c.placed("g", on=1)
    assert sorted(c.reserved("shared")) == ["g-0", "g-1", "g-2"]


def test_claims_found_allocated_after_a_crash_are_used() -> None:
    c = ClaimCluster().offer("n")
    c.answer = lambda bind: "hold"
    c.submit(gang(c, "g", 2, wish(4))).run()
    before = [c.devices(f"g-{i}-gpu") for i in range(2)]
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert c.placed("g")
    assert [c.devices(f"g-{i}-gpu") for i in range(2)] == before


def test_devices_of_ended_pods_are_used_again_once_their_claim_is_deallocated() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit(c.want("p", wish())).run()
    c.submit(c.want("q", wish())).run()
    assert c.are_bound("p", "q") == [True, False]
    c.delete("p")
    c.run()
    assert c.are_bound("q") == [False]
    raw = json.loads(json.dumps(c.resource_claims["uid-p-gpu"]))
    raw["status"] = {}
    c.write(raw)
    c.run()
    assert c.are_bound("q") == [True]


def test_a_claim_is_on_its_way_until_its_pods_are_bound_or_it_is_taken_back() -> None:
    """So long the fence lists it: left out of the list, its write could land under the next leader."""
    c = ClaimCluster().offer("n")
    pods = gang(c, "g", 2, wish())
    assert not c.scheduler.is_on_its_way("uid-g-0-gpu")
    c.answer = lambda bind: "hold"
    c.claim_answer = lambda patch: "hold" if patch.name == "g-1-gpu" else "ok"
    c.submit(pods).run()
    assert c.devices("g-0-gpu")
    assert c.scheduler.is_on_its_way("uid-g-0-gpu"), "it may be taken back yet"
    assert c.scheduler.is_on_its_way("uid-g-1-gpu"), "sent, and not answered"

    c = ClaimCluster().offer("n")
    c.answer = lambda bind: "hold"
    c.submit(c.want("p", wish())).run()
    assert c.scheduler.is_on_its_way("uid-p-gpu"), "its pod may not be bound yet, and it would be taken back"

    c = ClaimCluster().offer("n")
    c.submit(c.want("p", wish())).run()
    assert c.n_bound() == 1
    assert not c.scheduler.is_on_its_way("uid-p-gpu")

    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "403" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    assert not c.devices("g-0-gpu")
    assert not c.scheduler.is_on_its_way("uid-g-0-gpu")


def crashed(c: ClaimCluster) -> None:
    """The scheduler ends once all claims are written, and before any bind has landed."""
    c.answer = lambda bind: "hold"
    c.run()
    c.answer = lambda bind: "ok"


def test_what_a_crash_left_is_given_back_when_the_gang_does_not_fit_with_it() -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=4)
    c.submit(gang(c, "g", 2, wish(2)))
    crashed(c)
    [node] = {one.partition("/")[0] for one in c.devices("g-0-gpu")}
    c.drop_node(node)
    c.restart().run()
    assert c.placed("g")
    assert {one.partition("/")[0] for i in range(2) for one in c.devices(f"g-{i}-gpu")} == {"n", "m"} - {node}


def test_what_a_crash_left_of_a_gang_that_is_not_whole_any_more_is_given_back_in_time() -> None:
    c = ClaimCluster().offer("n", gpus_each=4)
    c.submit(gang(c, "g", 2, wish(2)))
    crashed(c)
    c.delete("g-1")
    c.restart().run()
    assert c.devices("g-0-gpu")
    c.wait(c.settings.settle_s + 1.0)
    assert not c.devices("g-0-gpu")
    assert not c.reserved("g-0-gpu")
    assert counted(c) == {"claims_taken_back": 1, "claims_swept": 1}


def test_what_a_user_or_another_scheduler_allocated_is_left_alone() -> None:
    c = ClaimCluster().offer("n", gpus_each=4)
    pod = with_claims(make_pod("p", gpus=0, cpu="10000"), own=("gpu",))
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    c.make_claim("p-gpu", wish(), owner=pod, allocation={"devices": {"results": [device]}})
    c.submit(pod).run().wait(1000.0)
    assert c.devices("p-gpu") == ["n/gpu-0"]


def fabric(c: ClaimCluster) -> None:
    """A node with one device that is attached once it is allocated."""
    c.offer("n", gpus_each=1)
    device = {
        "name": "gpu-0",
        "bindsToNode": True,
        "bindingConditions": ["attached"],
        "bindingFailureConditions": ["broken"],
    }
    pool = {"name": "n", "generation": 2, "resourceSliceCount": 1}
    c.slice("slice-n", {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": [device]})


def report(c: ClaimCluster, condition: str) -> None:
    """The driver says that the condition is true of the claim's device."""
    raw = json.loads(json.dumps(c.resource_claims["uid-p-gpu"]))
    true = {"type": condition, "status": "True"}
    raw["status"]["devices"] = [{"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": [true]}]
    c.write(raw)
    c.run()


def test_a_pod_is_bound_when_its_device_says_that_it_is_attached() -> None:
    c = ClaimCluster()
    fabric(c)
    c.submit(c.want("p", wish())).run()
    assert c.devices("p-gpu")
    assert not c.n_bound()
    report(c, "attached")
    assert c.n_bound() == 1


def test_a_device_that_says_it_is_broken_is_given_back() -> None:
    c = ClaimCluster()
    fabric(c)
    c.submit(c.want("p", wish())).run()
    report(c, "broken")
    assert not c.n_bound()
    assert not c.devices("p-gpu")
    assert any("reports broken" in one.message for one in c.all(ef.WritePodCondition))


def test_a_device_that_stays_broken_is_tried_ever_more_rarely() -> None:
    c = ClaimCluster()
    fabric(c)
    c.claim_answer = lambda patch: "403" if patch.is_status else "ok"
    c.submit(c.want("p", wish())).run().wait(30.0)
    assert 3 <= len([one for one in c.all(ef.PatchClaim) if one.is_status]) <= 8


def test_a_device_that_says_nothing_is_given_back_after_ten_minutes() -> None:
    c = ClaimCluster()
    fabric(c)
    c.submit(c.want("p", wish())).run().wait(590.0)
    assert c.devices("p-gpu")
    c.wait(15.0)
    assert any("did not come true in 600 s" in one.message for one in c.all(ef.WritePodCondition))


def test_a_refusal_says_what_each_node_lacks() -> None:
    c = ClaimCluster().offer("none", gpus_each=0).offer("used", "mixed", gpus_each=2)
    tainted = gpus("tainted", 2)
    for one in tainted["devices"]:
        one["taints"] = [{"key": "xid", "effect": "NoSchedule"}]
    c.offer("tainted").slice("slice-tainted", tainted)
    c.submit(c.want("p", wish(2)), c.want("q", wish(1))).run()
    c.submit(c.want("r", wish(2))).run()
    said = c.said("r")
    assert "2 node(s) whose devices for request gpu (class gpu) are in use" in said
    assert "1 node(s) without the devices for request gpu (class gpu)" in said
    assert "1 node(s) with tainted devices for request gpu (class gpu)" in said


def test_a_queued_gang_is_listed_ahead_with_its_claims() -> None:
    c = ClaimCluster().offer("n")
    c.submit(gang(c, "g", 2, wish()))
    [listed] = foreseen(c.scheduler.in_line(), c.scheduler.claims_of)
    assert sorted(one.object.name for one in listed) == ["g-0", "g-0-gpu", "g-1", "g-1-gpu"]


def test_pods_of_lower_priority_give_way_with_their_devices() -> None:
    c = ClaimCluster().offer("n", gpus_each=4)
    c.submit(*(c.want(f"low-{i}", wish(2), priority=1) for i in range(2))).run()
    assert c.n_bound() == 2
    c.submit(c.want("high", wish(2), priority=100)).run()
    assert len(c.all(ef.EvictPod)) == 1
    [gone] = [f"low-{i}" for i in range(2) if f"d/low-{i}" not in {pod.key for pod in c.pods.values()}]
    c.submit(c.want("late", wish(2), priority=1)).run()
    raw = json.loads(json.dumps(c.resource_claims[f"uid-{gone}-gpu"]))
    raw["status"] = {}
    c.write(raw)
    c.settled()
    assert len(c.all(ef.EvictPod)) == 1
    assert c.are_bound("late") == [False]
    assert c.are_bound("high") == [True]


def test_nodes_of_a_pod_with_a_claim_of_its_own_and_a_shared_one_are_counted_once() -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=1)
    c.make_claim("shared", wish())
    pod = with_claims(make_pod("p", gpus=0), own=("gpu",), shared={"all": "shared"})
    c.make_claim("p-gpu", wish(), owner=pod)
    c.submit(pod).run()
    assert "0/2 nodes are available: 2 cannot allocate all claims" in c.said("p")


def test_what_was_taken_back_is_not_taken_for_reserved_while_the_watch_lags() -> None:
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    c.shows_claims = False
    [held] = c.held_patches
    c.tell(ev.ClaimRefused(held.uid, held.ticket, 403, "Refused", "no")).run()
    assert not c.devices("g-0-gpu")
    c.claim_answer = lambda patch: "ok"
    c.wait(10.0)
    c.show("uid-g-1-gpu")
    c.wait(10.0)
    assert not c.n_bound()
    c.show_all()
    c.settled()
    assert c.placed("g")
    assert c.reserved("g-0-gpu") == ["g-0"]


def test_a_write_without_an_answer_about_a_claim_that_is_gone_is_over() -> None:
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "hold" if patch.is_status else "ok"
    pod = c.want("p", wish())
    c.submit(pod).run()
    [held] = c.held_patches
    c.lose("p-gpu").run()
    c.tell(ev.ClaimUnclear(held.uid, held.ticket, "timed out")).run()
    assert "its resource claim is gone" in c.said("p")
    c.claim_answer = lambda patch: "ok"
    c.make_claim("p-gpu", wish(), owner=pod)
    c.settled()
    assert c.n_bound() == 1


def test_a_version_of_a_claim_that_says_nothing_new_is_the_one_that_is_written() -> None:
    c = ClaimCluster().offer("n")
    pod = c.want("p", wish())
    c.run()
    c.write(json.loads(json.dumps(c.resource_claims["uid-p-gpu"])))
    c.submit(pod).run()
    assert c.n_bound() == 1
    assert not c.all(ef.GetClaim)


def test_pods_that_wait_for_claims_when_the_scheduler_starts_say_so() -> None:
    c = ClaimCluster().offer("n")
    c.submit(with_claims(make_pod("p", gpus=0), own=("gpu",))).run()
    c.effects.clear()
    c.restart().run().wait(1.0)
    assert 'could not find ResourceClaim "d/p-gpu"' in c.said("p")


@pytest.mark.parametrize("kind", KINDS)
def test_pods_with_claims_wait_for_what_may_not_be_read(kind: str) -> None:
    """A rule that is not known might keep the pod from its devices; and the words name the right."""
    c = ClaimCluster().offer("n")
    c.tell(ev.KindMissing(kind, is_forbidden=True))
    c.submit(c.want("p", wish())).run()
    assert f"it is not known which {kind} there are: listing them is not allowed" in c.said("p")
    c.tell(ev.KindSynced(kind)).run()
    assert c.n_bound() == 1


def test_pods_with_claims_do_not_wait_for_rules_that_the_server_does_not_have() -> None:
    c = ClaimCluster().offer("n")
    c.tell(ev.KindMissing(TAINT_RULES))
    c.submit(c.want("p", wish())).run()
    assert c.n_bound() == 1


def test_a_device_that_another_scheduler_gives_out_later_is_told_once() -> None:
    c = ClaimCluster().offer("n")
    c.submit(c.want("p", wish())).run()
    c.make_claim("apart", wish(), **theirs("gpu-7"))
    c.make_claim("theirs", wish(), **theirs("gpu-0"))
    c.run()
    c.show_all().run()
    [told] = [one for one in c.all(ef.RecordEvent) if one.reason == "DeviceMismatch"]
    assert told.name == "p"
    assert (
        told.message
        == f"device {DRIVER}/n/gpu-0 of resource claim d/p-gpu is in claim d/theirs too, of pod d/x"
    )
    assert c.scheduler.shared.counters["device_clashes"] == 1


def test_a_device_in_two_claims_is_told_by_the_next_leader() -> None:
    c = ClaimCluster().offer("n")
    c.submit(c.want("p", wish())).run()
    c.make_claim("theirs", wish(), **theirs("gpu-0"))
    c.effects.clear()
    c.restart().run()
    assert [one.name for one in c.all(ef.RecordEvent) if one.reason == "DeviceMismatch"] == ["p"]


def test_a_device_that_two_claims_of_others_have_is_theirs() -> None:
    c = ClaimCluster().offer("n")
    c.make_claim("first", wish(), **theirs("gpu-0"))
    c.make_claim("second", wish(), **theirs("gpu-0"))
    c.submit(c.want("p", wish())).run()
    assert c.devices("p-gpu") == ["n/gpu-1"]
    assert not [one for one in c.all(ef.RecordEvent) if one.reason == "DeviceMismatch"]


def test_a_victims_device_is_not_taken_before_its_claim_is_given_back() -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    c.submit(c.want("v", wish(), cpu="30"), c.want("w", wish(), cpu="30")).run()
    c.evictions = "slow"
    c.submit(c.want("p", wish(), cpu="30", priority=10)).run()
    [victim] = c.evicted()
    c.submit(c.want("q", wish(), cpu="30", priority=10)).run()  # whose room p need not leave
    c.delete(victim).run()
    assert not c.devices("p-gpu")
    assert f"waiting for 1 resource claim of a pod that is gone to be given back: d/{victim}-gpu" in c.said(
        "p"
    )
    told = explain(c.scheduler, c.group("p"), c.now_s)
    assert f"waits for 1 resource claim of pods that are gone to be given back: d/{victim}-gpu" in told.answer
    c.delete(*({"v", "w"} - {victim}))
    for name in ("v", "w"):
        raw = json.loads(json.dumps(c.resource_claims[f"uid-{name}-gpu"]))
        raw["status"] = {}
        c.write(raw)
    c.settled()
    assert c.are_bound("p", "q") == [True, True]


def test_claims_that_are_about_to_be_given_back_count_so_on_all_nodes() -> None:
    """Also on nodes of which nobody waits for the room: what is kept of them from before is not asked."""
    c = ClaimCluster().offer("n0", "n1", gpus_each=1)
    c.submit(c.want("v", wish()), c.want("w", wish())).run()
    c.submit(c.want("p", wish())).run()
    shared = c.scheduler.shared
    capacity = shared.profiles["gangsched"].filtering.capacity
    template = c.group("p").members["uid-d-p"].template
    [demand] = c.scheduler.attempts._units.demands([c.group("p")])
    state, _ = demand.pre_filter(template, shared.cache.view)
    now = capacity(state, template, shared.cache.view).tolist()
    c.delete("v", "w")
    trial = Trial(shared.cache.view)
    assert capacity(state, template, trial).tolist() == now == [0, 0]
    trial.release_claims()
    assert capacity(state, template, trial).tolist() == [1, 1]


def test_a_claim_that_cannot_be_read_is_told_until_it_can() -> None:
    """What has come of a write is not known; nothing is bound, and nothing written, until it is."""
    c = ClaimCluster().offer("n")
    c.answers_reads = False
    c.claim_answer = lambda patch: "late" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    [read] = c.all(ef.GetClaim)
    c.tell(ev.ClaimUnread(read.uid, "403 Forbidden")).run()
    [told] = [one for one in c.all(ef.RecordEvent) if one.reason == "AnswerUnclear"]
    assert told.message.endswith("a clear answer: reading resource claim d/g-1-gpu: 403 Forbidden")
    assert not c.n_bound()
    c.read_claim(read.uid).run()
    assert c.n_bound() == 2
    c.tell(ev.ClaimUnread(read.uid, "too late")).run()
    assert [one for one in c.all(ef.RecordEvent) if one.reason == "AnswerUnclear"] == [told]


@pytest.mark.parametrize("how", ["gone", "ended"])
def test_what_a_victim_leaves_is_given_back_where_the_controller_is_silent(how: str) -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit(c.want("v", wish())).run()
    c.evictions = "slow"
    c.submit(c.want("p", wish(), priority=10)).run()
    assert c.evicted() == ["v"]
    (c.delete("v") if how == "gone" else c.phase("v", "Failed")).run()
    c.wait(4.9).run()
    assert c.devices("v-gpu") == ["n/gpu-0"], "the controller may be about to"
    c.wait(0.2).run()
    assert (c.devices("v-gpu"), c.devices("p-gpu")) == ([], ["n/gpu-0"])
    assert c.are_bound("p") == [True]
    assert counted(c) == {"claims_allocated": 2, "claims_taken_back": 1}


def test_a_claim_that_victims_share_is_given_back_when_the_last_is_gone() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    users = [with_claims(make_pod(name, gpus=0), shared={"gpu": "shared"}) for name in ("v", "w")]
    c.submit(*users).run()
    c.evictions = "slow"
    c.submit(c.want("p", wish(), priority=10)).run()
    assert sorted(c.evicted()) == ["v", "w"]
    c.delete("v").run().wait(10.0)
    assert (c.devices("shared"), c.reserved("shared")) == (["n/gpu-0"], ["v", "w"])
    c.delete("w").run().wait(5.1)
    assert (c.devices("shared"), c.reserved("shared")) == ([], [])
    assert c.are_bound("p") == [True]


def test_of_pods_that_share_a_claim_none_is_evicted_unless_all_may_be() -> None:
    """Its device would not be free before the other pod has gone, and the claim is not reserved for it."""
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    users = [
        with_claims(make_pod(name, gpus=0, priority=priority), shared={"gpu": "shared"})
        for name, priority in (("low", 0), ("high", 10))
    ]
    c.submit(*users).run()
    c.submit(c.want("p", wish(), priority=10)).run()
    c.delete("high").settled()
    assert not c.evicted()
    raw = json.loads(json.dumps(c.resource_claims["uid-shared"]))
    raw["status"]["reservedFor"] = [one for one in raw["status"]["reservedFor"] if one["name"] == "low"]
    c.write(raw)
    c.run().wait(1.0)
    assert c.evicted() == ["low"]
    c.wait(5.1)
    assert c.are_bound("p") == [True]


@pytest.mark.parametrize("others", [0, 1])
def test_what_another_schedulers_victim_leaves_is_given_back_unless_others_use_it(others: int) -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    c.submit(c.want("q", wish(), priority=10)).run()
    [mine] = c.devices("q-gpu")
    victim = with_claims(make_pod("x", gpus=0, scheduler="default-scheduler"), shared={"gpu": "theirs"})
    victim = replace(victim, spec=replace(victim.spec, node_name="n"))
    status = theirs({"n/gpu-0": "gpu-1", "n/gpu-1": "gpu-0"}[mine])
    status["reservedFor"][0]["uid"] = victim.metadata.uid
    c.make_claim("theirs", wish(), **status)
    c.evictions = "slow"
    c.submit(victim).submit(c.want("p", wish(), priority=10)).run()
    assert c.evicted() == ["x"]
    raw = json.loads(json.dumps(c.resource_claims["uid-theirs"]))
    raw["status"]["reservedFor"] += [{"resource": "pods", "name": "y", "uid": "uid-y"}] * others
    c.write(raw)
    c.delete("x").run().wait(5.1)
    assert bool(c.devices("theirs")) == bool(others)
    assert c.are_bound("p") == [not others]


def test_a_gang_whose_claim_was_made_anew_while_it_was_reserved_gets_the_new_one() -> None:
    c = ClaimCluster().offer("n")
    c.make_claim("shared", wish())
    pods = [
        with_claims(make_pod(f"g-{i}", gpus=0, group="g", min_members=2), shared={"gpu": "shared"})
        for i in range(2)
    ]
    c.claim_answer = lambda patch: "hold" if patch.is_status else "ok"
    c.submit(pods).run()
    [held] = c.held_patches
    c.lose("shared")
    c.write(
        {"metadata": {"name": "shared", "namespace": "d", "uid": "uid-new"}, "spec": wish(), "status": {}}
    )
    c.run()
    c.claim_answer = lambda patch: "ok"
    c.tell(ev.ClaimUnclear(held.uid, held.ticket, "timed out"))
    c.settled()
    assert c.placed("g")
    assert not any("failed in PreFilter" in one.message for one in c.all(ef.WritePodCondition))


def test_claims_and_devices_are_followed_once_there_is_a_class() -> None:
    """A cluster without Dynamic Resource Allocation costs the watch of classes; where there are claims, no
    gang is placed before all of them are known."""
    c = Cluster().node(make_node("n", gpus=8))
    assert not {CLAIMS, SLICES, TAINT_RULES} & {*c.scheduler.kinds}
    c.submit(make_pod("before")).run()
    assert c.scheduler.newly_watched() == ()
    c.tell(ev.ObjectPut(DEVICE_CLASSES, DeviceClass(ObjectMeta("gpu", uid="uid-gpu", resource_version="1"))))
    assert {*c.scheduler.newly_watched()} == {CLAIMS, SLICES, TAINT_RULES}
    assert c.scheduler.newly_watched() == ()
    c.submit(make_pod("after")).run()
    c.tell(ev.KindSynced(CLAIMS), ev.KindSynced(SLICES)).run()
    assert c.n_bound() == 1
    c.tell(ev.KindMissing(TAINT_RULES)).run()
    assert c.n_bound() == 2


def test_claims_are_followed_for_a_pod_that_uses_one_where_there_is_no_class() -> None:
    c = Cluster().node(make_node("n", gpus=8))
    c.submit(with_claims(make_pod("p", gpus=0), own=("gpu",))).run()
    assert {*c.scheduler.newly_watched()} == {CLAIMS, SLICES, TAINT_RULES}
    c.tell(ev.KindMissing(CLAIMS), ev.KindMissing(SLICES), ev.KindMissing(TAINT_RULES)).run()
    says = f"it is not known which {CLAIMS} there are: listing them is not possible: the API server does not"
    assert says in c.said("p")


def test_a_node_that_still_serves_another_compute_domain_is_left_out() -> None:
    """There the driver would refuse the channel, and the pod would hang, bound."""
    c = ClaimCluster().offer("busy", "idle")

    def serves(domain: str) -> None:
        node = make_node("busy", gpus=0, listed=False)
        c.node(replace(node, metadata=replace(node.metadata, labels={DOMAIN_LABEL: domain})))

    serves("uid-of-another")
    channel = {"apiVersion": "resource.nvidia.com/v1beta1", "domainID": "uid-of-ours"}
    spec = wish(8)
    spec["devices"]["config"] = [{"opaque": {"driver": DOMAIN_DRIVER, "parameters": channel}}]
    c.submit(*gang(c, "a", 2, spec)).run()
    assert not c.n_bound()
    assert "1 node(s) that serve another ComputeDomain" in c.said("a-0")
    serves("uid-of-ours")
    c.run()
    assert c.n_bound() == 2


def test_a_selector_that_fails_on_a_node_that_suits_ends_the_attempt_everywhere() -> None:
    """As in Kubernetes: what is mistaken is to be seen. A node that does not suit is not asked."""
    c = ClaimCluster().offer("n", gpus_each=2).offer("m")
    spec = gpus("k", 2)
    for device in spec["devices"]:
        del device["attributes"]["model"]
    c.node(make_node("k", gpus=0, listed=False)).slice("slice-k", spec)
    asks = wish(1, f"device.attributes['{DRIVER}'].model == 'H200'")
    c.submit(gang(c, "g", 2, asks)).run()
    assert c.untouched("g")
    assert "request gpu: selector #0 on device gpu.example.com/k/gpu-0: CEL runtime error:" in c.said("g-0")
    assert not c.all(ef.PatchClaim)
    elsewhere = c.want("elsewhere", asks, cpu="32")
    c.node(make_node("k", gpus=0, cpu=16, listed=False)).submit(elsewhere).run()
    assert c.n_bound() == 1
    for device in spec["devices"]:
        device["attributes"]["model"] = {"string": "A10"}
    spec["pool"]["generation"] = 2
    c.slice("slice-k", spec).run()
    assert c.n_bound() == 3


def cures(c: ClaimCluster, group: str) -> tuple[str, ...]:
    return explain(c.scheduler, c.group(group), c.now_s).cures


def test_a_pool_that_is_being_written_asks_for_patience_and_not_for_less() -> None:
    c = ClaimCluster().offer("n")
    c.slice("slice-n", gpus("n", 8) | {"pool": {"name": "n", "generation": 2, "resourceSliceCount": 2}})
    c.submit(gang(c, "g", 1, wish())).run()
    [cure] = cures(c, "g")
    assert cure.startswith(f"Wait until the driver has published the rest of pool {DRIVER}/n.")
    c.offer("m", gpus_each=1)
    c.wait(1.0)
    assert c.placed("g")
    c.submit(gang(c, "h", 1, wish())).run()
    wait, free = cures(c, "h")
    assert wait == cure
    assert free.startswith("Ask for less in the pods' claims, or free devices"), "either helps"


def test_where_no_device_passes_the_selectors_are_to_be_corrected() -> None:
    c = ClaimCluster().offer("n")
    c.submit(gang(c, "g", 1, wish(expression=f"device.attributes['{DRIVER}'].model == 'B200'"))).run()
    [cure] = cures(c, "g")
    assert cure.startswith("Correct the class or the selectors in the pods' claims, or add nodes")


def test_where_all_that_pass_are_tainted_the_taint_is_what_to_look_at() -> None:
    sick = gpus("n", 2)
    for one in sick["devices"]:
        one["taints"] = [{"key": "example.com/xid", "effect": "NoSchedule"}]
    c = ClaimCluster().offer().node(make_node("n", gpus=0, listed=False)).slice("slice-n", sick)
    c.submit(gang(c, "g", 1, wish())).run()
    [cure] = cures(c, "g")
    assert cure.startswith("Repair the devices that are tainted, or let the pods' claims tolerate it")


def test_that_devices_are_not_prepared_is_said_when_there_is_an_event_for_it() -> None:
    c = ClaimCluster().offer("n")
    c.submit(gang(c, "g", 1, wish())).run()
    c.wait(100.0)
    assert "not prepared" not in explain(c.scheduler, c.group("g"), c.now_s).answer
    assert not [one for one in c.all(ef.RecordEvent) if one.reason == "DevicesNotPrepared"]
    c.wait(25.0)
    assert "not prepared" in explain(c.scheduler, c.group("g"), c.now_s).answer
    assert [one for one in c.all(ef.RecordEvent) if one.reason == "DevicesNotPrepared"]
