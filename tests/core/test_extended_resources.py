"""Extended resources that device classes serve (KEP-5004): which nodes suit, and how the claim is made,
allocated, stated in the pod's status and deleted. The claims of pods are in test_resource_claims.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.core.device_audit.claimed_devices import PREPARED_WITHIN_S
from gangsched.core.explaining.claim_views import view_claims
from gangsched.core.explaining.explain import explain
from gangsched.core.framework.interface import SUCCESS
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import (
    Container,
    ExtendedClaimStatus,
    Pod,
    RequestMapping,
    ResourceRequirements,
)
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, DeviceClass
from tests.core.claims import DRIVER, ClaimCluster, gpus, wish, with_claims
from tests.core.plugins import AsyncPermitter
from tests.support.scenario import Cluster

SERVED = f"device.driver == '{DRIVER}'"


def cluster(**nodes: int) -> ClaimCluster:
    """Nodes with so many devices of a class that serves GPUs, and no device plugin."""
    c = ClaimCluster().device_class("gpu", SERVED, serves=GPU)
    for name, n in nodes.items():
        c.offer(name, gpus_each=n)
    return c


def gang(name: str, n: int, gpus: int, **more: Any) -> list[Pod]:
    """A gang of pods that ask for GPUs by number."""
    return [make_pod(f"{name}-{i}", group=name, min_members=n, gpus=gpus, **more) for i in range(n)]


def made(c: ClaimCluster) -> dict[str, list[str]]:
    """By pod: the devices that its claim has."""
    found = {}
    for raw in c.resource_claims.values():
        [owner] = raw["metadata"]["ownerReferences"]
        found[owner["name"]] = c.devices(raw["metadata"]["name"])
    return found


def test_a_gang_gets_devices_of_the_class_that_serves_what_it_asks_for() -> None:
    c = cluster(n0=4).submit(gang("g", 2, 2)).run()

    assert c.placed("g", on=1)
    assert made(c) == {"g-0": ["n0/gpu-0", "n0/gpu-1"], "g-1": ["n0/gpu-2", "n0/gpu-3"]}
    for pod in ("g-0", "g-1"):
        stated = c.pod(pod).status.extended_resource_claim_status
        assert stated is not None
        raw = c.resource_claims[f"uid-{stated.resource_claim_name}"]
        assert raw["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert raw["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
        assert [one["name"] for one in raw["status"]["reservedFor"]] == [pod]
        [mapping] = stated.request_mappings
        [request] = raw["spec"]["devices"]["requests"]
        assert (mapping.container_name, mapping.resource_name) == ("main", GPU)
        assert mapping.request_name == request["name"] == "container-0-request-2"
        assert request["exactly"] == {"deviceClassName": "gpu", "count": 2}
    c.five_more_turns_change_nothing()


def test_all_claims_are_allocated_and_stated_before_the_first_binding() -> None:
    c = cluster(n0=4).submit(gang("g", 2, 2)).run()

    written = (ef.MakeClaim, ef.PatchClaim, ef.NoteClaim, ef.BindPod)
    kinds = [type(one) for one in c.effects if isinstance(one, written)]
    first_bind = kinds.index(ef.BindPod)
    assert kinds[:first_bind].count(ef.PatchClaim) == 2
    assert kinds[:first_bind].count(ef.NoteClaim) == 2
    assert set(kinds[first_bind:]) == {ef.BindPod}
    # The finalizer and the mark come with the claim: three writes a pod beside its Binding.
    assert len(kinds) == 8


def test_where_a_plugin_offers_the_resource_the_plugin_serves_it() -> None:
    c = cluster(dra=4)
    c.node(make_node("plugin", gpus=4, listed=False)).submit(gang("g", 2, 4)).run()

    assert sorted(c.nodes_of("g")) == ["dra", "plugin"]
    [(pod, devices)] = made(c).items()
    assert devices == [f"dra/gpu-{i}" for i in range(4)]
    [other] = {"g-0", "g-1"} - {pod}
    assert c.pod(pod).spec.node_name == "dra"
    assert c.pod(other).status.extended_resource_claim_status is None


STATED = ExtendedClaimStatus([RequestMapping("main", GPU, "container-0-request-2")], "theirs")


def stated_by_another(c: ClaimCluster, name: str) -> Pod:
    """The pod, in whose status a scheduler that led before has written a claim."""
    pod = c.pod(name)
    return c.store(pod, status=replace(pod.status, extended_resource_claim_status=STATED))


def test_a_pod_is_not_bound_to_a_plugins_node_once_its_status_states_a_claim() -> None:
    """kubelet would look for the claim there. The late write of a former leader is met by the version of the
    Binding; the version that is read then shows the claim."""
    c = ClaimCluster().device_class("gpu", SERVED, serves=GPU)
    c.node(make_node("plugin", gpus=4, listed=False))
    c.answer = lambda bind: "unknown"
    c.submit(gang("g", 1, 4)).run()
    assert len(c.held_binds) == 1
    stated_by_another(c, "g-0")
    c.read("g-0").wait(60.0)

    assert len(c.held_binds) == 1, "it is not sent again"
    c.answer = lambda bind: "ok"
    c.offer("dra", gpus_each=4).run().wait(60.0)
    assert c.nodes_of("g") == ["dra"]


def test_a_reserved_pod_is_placed_anew_once_its_status_states_a_claim() -> None:
    """The plugin's node was reserved before the late write; it is not bound there, now or later."""
    c = ClaimCluster(make=lambda settings: make_scheduler(settings, AsyncPermitter()))
    c.device_class("gpu", SERVED, serves=GPU).hook = lambda hook: None
    c.node(make_node("plugin", gpus=4, listed=False)).submit(gang("g", 1, 2)).run()
    assert c.state("g") == "waiting"
    c.tell(ev.PodUpdated(stated_by_another(c, "g-0")))
    c.say(c.held_hooks[0], SUCCESS).run()
    c.hook = lambda hook: SUCCESS
    c.wait(700.0)
    assert c.n_bound() == 0
    assert "whose status states a claim" in c.why("g")
    c.offer("dra", gpus_each=2).run().wait(60.0)
    assert c.nodes_of("g") == ["dra"]


def test_of_pods_that_are_alike_one_may_have_a_claim_stated() -> None:
    """A process that starts, or whose watch was cut, reads them one after the other."""
    c = ClaimCluster().device_class("gpu", SERVED, serves=GPU)
    c.node(make_node("plugin", gpus=4, listed=False))
    first, second, third = (make_pod(f"p-{i}", gpus=1) for i in range(3))
    second = replace(second, status=replace(second.status, extended_resource_claim_status=STATED))
    c.submit(first, second, third).run()
    assert c.are_bound("p-0", "p-1", "p-2") == [True, False, True]


def test_a_node_that_lists_devices_of_its_plugin_is_not_served_by_a_class() -> None:
    """Its plugin is being restarted, say: the devices are the plugin's."""
    c = cluster()
    listing = make_node("n0", gpus=2)
    status = replace(listing.status, allocatable={**(listing.status.allocatable or {}), GPU: "0"})
    c.node(replace(listing, status=status)).slice("slice-n0", gpus("n0", 2)).submit(gang("g", 1, 1)).run()

    assert c.n_bound() == 0
    assert "Insufficient nvidia.com/gpu" in c.why("g")


def test_a_class_serves_the_resource_of_its_own_name_always() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    c = ClaimCluster().offer("n0", gpus_each=2)
    c.submit([asking(f"g-{i}", {name: 1}, group="g", min_members=2) for i in range(2)]).run()

    assert c.placed("g", on=1)
    assert made(c) == {"g-0": ["n0/gpu-0"], "g-1": ["n0/gpu-1"]}


def test_of_two_classes_the_newer_one_serves() -> None:
    c = cluster(n0=2)
    newer = {"selectors": [{"cel": {"expression": "false"}}], "extendedResourceName": GPU}
    meta = {"name": "other", "uid": "uid-other", "creationTimestamp": "2026-06-01T00:00:00Z"}
    c.put(DEVICE_CLASSES, {"metadata": meta, "spec": newer}, DeviceClass)
    c.submit(gang("g", 1, 1)).run()

    assert c.n_bound() == 0
    assert "class other" in c.why("g")


def test_a_gang_waits_for_a_class_and_for_its_devices() -> None:
    c = ClaimCluster().offer("n0", gpus_each=2)
    c.submit(gang("g", 2, 1)).run()
    assert c.n_bound() == 0

    c.device_class("gpu", SERVED, serves=GPU).run()
    assert c.placed("g", on=1)


def test_a_gang_waits_for_a_driver_to_publish_devices() -> None:
    c = cluster()
    c.node(make_node("n0", gpus=0, listed=False)).submit(gang("g", 2, 1)).run()
    assert "No node offers nvidia.com/gpu" in c.why("g")

    c.slice("slice-n0", gpus("n0", 2)).wait(400.0).run()
    assert c.placed("g", on=1)


def test_what_nobody_offers_is_said() -> None:
    c = cluster().node(make_node("n0", gpus=0, listed=False))
    names = (GPU, "nvidia.com/gpux", "deviceclass.resource.kubernetes.io/gpux")
    for i, name in enumerate(names):
        c.submit(asking(f"p{i}", {name: 1}))
    c.run()
    assert "no driver has published devices on any of them (DeviceClass gpu serves it)" in c.said("p0")
    assert "No node offers nvidia.com/gpux" in c.said("p1")
    assert "There is no DeviceClass gpux." in c.said("p2")
    cures = [explain(c.scheduler, c.group(f"p{i}"), c.now_s).cures for i in range(3)]
    assert [any("Correct" in one for one in each) for each in cures] == [True, True, True]


def test_classes_are_not_followed_for_what_a_node_offers() -> None:
    c = Cluster().node(make_node("n", gpus=1)).submit(make_pod("p", gpus=4)).run()
    assert c.scheduler.newly_watched() == ()


@pytest.mark.parametrize(("name", "counts"), [("class-a", "class-a"), ("class-c", "class-b")])
def test_of_two_classes_of_one_time_the_first_by_name_serves(name: str, counts: str) -> None:
    c = ClaimCluster().offer("n0", gpus_each=2)
    for one in ("class-b", name):
        c.device_class(one, SERVED, serves=GPU)
    c.submit(gang("g", 1, 1)).run()
    [raw] = c.resource_claims.values()
    [request] = raw["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == counts


def test_the_answer_says_what_a_claim_for_the_resource_would_find() -> None:
    c = cluster(n0=4).submit(gang("old", 1, 3)).run()
    c.submit(gang("g", 2, 1)).run()
    told = explain(c.scheduler, c.group("g"), c.now_s)
    assert f"{GPU}, by a claim (class gpu, 1 device): of 4 devices on 1 node" in told.answer
    assert "in use (" in told.answer


def test_devices_that_claims_and_resources_ask_for_are_the_same() -> None:
    c = cluster(n0=4)
    c.submit(c.want("p", wish(3))).run()
    c.submit(gang("g", 2, 1)).run()

    assert c.n_bound() == 1
    assert "cannot allocate all claims" in c.why("g")
    c.delete("p").lose("p-gpu")
    c.run()
    assert c.placed("g", on=1)


def test_a_pod_may_have_claims_and_extended_resources() -> None:
    c = cluster(n0=4)
    pod = with_claims(make_pod("p", gpus=2), own=("gpu",))
    c.make_claim("p-gpu", wish(2), owner=pod)
    c.submit(pod).run()

    assert c.n_bound() == 1
    both = [*c.devices("p-gpu"), *next(v for k, v in devices_by_claim(c).items() if k != "p-gpu")]
    assert sorted(both) == [f"n0/gpu-{i}" for i in range(4)]


def test_requests_are_named_and_counted_as_kube_scheduler_does() -> None:
    """Two containers side by side and two that run before them, one after the other: these use what the
    others get, and one more request for what the greater of them needs beyond that."""
    pod = asking("p", {GPU: 1})
    second = Container(name="side", resources=ResourceRequirements(requests={GPU: 2, "cpu": "1"}))
    first = [
        Container(name="fetch", resources=ResourceRequirements(requests={GPU: 4})),
        Container(name="warm", resources=ResourceRequirements(requests={GPU: 5})),
        Container(name="log", resources=ResourceRequirements(requests={GPU: 1}), restart_policy="Always"),
    ]
    spec = replace(pod.spec, init_containers=first, containers=[*pod.spec.containers, second])
    c = cluster(n0=8).submit(replace(pod, spec=spec)).run()

    [raw] = c.resource_claims.values()
    asked = {one["name"]: one["exactly"].get("count", 1) for one in raw["spec"]["devices"]["requests"]}
    assert asked == {
        "container-1-request-0": 1,  # warm: five, of which the three containers that last have four
        "container-2-request-0": 1,  # log
        "container-3-request-2": 1,  # main, which asks for cpu and memory too
        "container-4-request-1": 2,  # side
    }
    stated = c.pod("p").status.extended_resource_claim_status
    assert stated is not None
    by = [(one.container_name, one.request_name) for one in stated.request_mappings]
    assert by == [
        *(("log", "container-2-request-0"), ("main", "container-3-request-2")),
        ("side", "container-4-request-1"),
        *(("fetch", f"container-{i}-request-{j}") for i, j in ((2, 0), (3, 2), (4, 1))),
        *(("warm", f"container-{i}-request-{j}") for i, j in ((2, 0), (3, 2), (4, 1), (1, 0))),
    ]


def test_more_devices_than_a_claim_holds_are_refused() -> None:
    c = cluster(n0=40).submit(gang("g", 1, 33)).run()

    assert c.n_bound() == 0
    assert "at most 32" in c.why("g")


# -- what may go wrong between the reservation and the first Binding ---------------------------------------


def failing(kind: type, answers: list[str]) -> Callable[[object], str]:
    """Answers the first writes of that kind so; all others are ok."""
    return lambda one: answers.pop(0) if isinstance(one, kind) and answers else "ok"


@pytest.mark.parametrize("answers", [["late"], ["lost"], ["late", "late"], ["lost", "late"]])
def test_a_claim_is_made_once_whatever_becomes_of_the_answer(answers: list[str]) -> None:
    c = cluster(n0=4)
    c.claim_answer = failing(ef.MakeClaim, answers)
    c.submit(gang("g", 2, 2)).run()
    for _ in range(10):
        c.wait(1.0).run()

    assert c.placed("g", on=1)
    assert len(c.resource_claims) == 2


def test_a_right_that_is_missing_is_named_and_nothing_is_bound() -> None:
    c = cluster(n0=4)
    c.claim_answer = failing(ef.MakeClaim, ["ok", "403"])
    c.submit(gang("g", 2, 2)).run()

    assert c.n_bound() == 0
    assert "403" in c.why("g")
    c.wait(60.0).run()
    assert c.placed("g", on=1)
    assert len(c.resource_claims) == 2
    assert len(c.dropped) == 1


def test_what_was_made_for_an_attempt_is_taken_back_with_it() -> None:
    """The allocation of one is refused: no pod is bound, the claims of both are given back and deleted."""
    c = cluster(n0=4)
    c.claim_answer = failing(ef.PatchClaim, ["ok", "422"])
    c.submit(gang("g", 2, 2)).run()
    assert c.n_bound() == 0
    c.wait(60.0).run()

    assert c.placed("g", on=1)
    assert len(c.dropped) == 2
    assert len(c.resource_claims) == 2


def test_a_pod_that_has_changed_is_told_of_its_claim_again() -> None:
    c = cluster(n0=4)
    c.claim_answer = failing(ef.NoteClaim, ["409", "lost"])
    c.submit(gang("g", 2, 2)).run()
    assert c.n_bound() == 0

    pod = c.pod("g-0")
    c.update(replace(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), "x": "y"})))
    c.wait(5.0).run()
    assert c.placed("g", on=1)


def test_nothing_is_left_of_a_gang_that_is_deleted_while_its_claims_are_made() -> None:
    c = cluster(n0=4)
    c.claim_answer = lambda one: "late" if isinstance(one, ef.PatchClaim) else "ok"
    c.submit(gang("g", 2, 2))
    c.shows_claims = False
    c.run()
    c.delete("g-0", "g-1").show_all()
    for _ in range(10):
        c.wait(10.0).run()

    assert not any(c.devices(raw["metadata"]["name"]) for raw in c.resource_claims.values())
    assert not c.scheduler.shared.claim_uses.records


@pytest.mark.parametrize("n_writes", range(9))
def test_a_new_process_begins_where_the_last_one_ended(n_writes: int) -> None:
    """It gives back what was allocated for pods that are not bound, and makes claims of its own."""
    left = n_writes

    def answer(one: object) -> str:
        nonlocal left
        left -= 1
        return "ok" if left >= 0 else "hold"

    c = cluster(n0=4)
    c.claim_answer = answer
    c.answer = lambda bind: answer(bind)
    c.submit(gang("g", 2, 2)).run()
    c.held_binds.clear()
    c.claim_answer, c.answer = lambda one: "ok", lambda bind: "ok"
    c.restart().run()
    for _ in range(12):
        c.wait(20.0).run()

    assert c.placed("g", on=1), c.why("g")
    assert sorted(one for each in made(c).values() for one in each) == [f"n0/gpu-{i}" for i in range(4)]


def test_more_important_pods_get_the_devices_of_others() -> None:
    c = cluster(n0=2).submit(gang("low", 1, 2)).run()
    assert c.n_bound() == 1
    c.evictions = "ok"
    c.submit(gang("high", 2, 1, priority=10)).run()
    assert c.evicted() == ["low-0"]
    for raw in [*c.resource_claims.values()]:  # its controller deletes the claim with the pod
        if raw["metadata"]["ownerReferences"][0]["name"] == "low-0":
            c.lose(raw["metadata"]["name"])
    c.wait(10.0).run()

    assert c.placed("high", on=1)


def test_a_tainted_device_evicts_the_gang_that_has_it() -> None:
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(on_failure="evictGang")))
    c.device_class("gpu", SERVED, serves=GPU).offer("n0", gpus_each=4).submit(gang("g", 2, 1)).run()
    assert c.n_bound() == 2

    spec = gpus("n0", 4)
    spec["devices"][1]["taints"] = [{"key": "gpu.example.com/xid", "effect": "NoExecute"}]
    c.slice("slice-n0", spec).wait(31.0)
    assert sorted(c.evicted()) == ["g-0", "g-1"]


def test_devices_that_no_driver_prepares_are_told_of() -> None:
    c = cluster(n0=4).submit(gang("g", 2, 1)).run()
    c.wait(PREPARED_WITHIN_S + 1.0)
    assert [one.name for one in c.all(ef.RecordEvent) if one.reason == "DevicesNotPrepared"] == ["g-0", "g-1"]
    views, n = view_claims(c.scheduler, [c.group("g")], 10)
    assert n == 2
    assert all(one.asks == ("container-0-request-2: 1 of class gpu",) for one in views), views


def test_a_claim_of_another_namespace_is_no_claim_of_the_pod() -> None:
    """Anybody may write a pod's UID, and the name of its claim, into a claim of his own namespace."""
    c = cluster(n0=2).submit(gang("g", 1, 1)).run()
    [mine] = c.resource_claims.values()
    forged = json.loads(json.dumps(mine))
    meta = forged["metadata"]
    meta |= {"namespace": "other", "uid": "uid-forged"}
    forged["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    c.write(forged)
    book, pod = c.scheduler.shared.cache.claims, c.pod("g-0")
    assert [one.key for one in book.claims_of(pod).values()] == [f"d/{mine['metadata']['name']}"]
    assert not list(book.users(book.claims["uid-forged"]))
    del forged["status"]["allocation"]
    c.write(forged)
    for _ in range(5):
        c.wait(60.0).run()
    assert not c.dropped


def asking(name: str, requests: dict[str, int], **more: Any) -> Pod:
    """A pod whose container asks for these resources."""
    pod = make_pod(name, gpus=0, **more)
    [container] = pod.spec.containers
    assert container.resources is not None
    asked = {**(container.resources.requests or {}), **requests}
    own = replace(container, resources=ResourceRequirements(requests=asked))
    return replace(pod, spec=replace(pod.spec, containers=[own]))


def devices_by_claim(c: ClaimCluster) -> dict[str, list[str]]:
    return {name: c.devices(name) for name in (raw["metadata"]["name"] for raw in c.resource_claims.values())}
