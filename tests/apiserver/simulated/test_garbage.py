"""What goes when something else is gone: owners and dependents, namespaces, pod groups, old events."""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.simulated import SimulatedCluster
from gangsched.lab.apiserver.simulated.cluster import EVENT_TTL_S
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod


def owned(name: str, *owners: Object, blocking: bool = False) -> Object:
    references = []
    for owner in owners:
        one = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
        one.update(uid=owner["metadata"]["uid"], blockOwnerDeletion=blocking)
        references.append(one)
    meta: Object = {"name": name}
    if references:
        meta["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def family(blocking: bool = False) -> World:
    """root owns child, child owns grandchild."""
    world = World()
    owner: list[Object] = []
    for name in ("root", "child", "grandchild"):
        item = world.create("configmaps", owned(name, *owner, blocking=blocking))
        owner = [item.decode()]
    return world.run(0)


def names(world: World) -> list[str]:
    return [each["metadata"]["name"] for each in world.all("configmaps")]


def test_dependents_go_after_their_owner() -> None:
    assert names(family().delete("configmaps", "root", propagation="Background").run(0)) == []


def test_dependents_go_before_an_owner_deleted_in_the_foreground() -> None:
    world = family(blocking=True)
    order: list[str] = []

    def note(change: Any) -> None:
        if change.type == "DELETED":
            order.append(change.item.name)

    world.registry.store.subscribe(note, "/configmaps")
    world.delete("configmaps", "root", propagation="Foreground").run(0)
    assert order == ["grandchild", "child", "root"]


def test_dependents_that_do_not_block_are_not_waited_for() -> None:
    assert names(family().delete("configmaps", "root", propagation="Foreground").run(0)) == []


def test_orphans_stay_and_name_their_owner_no_more() -> None:
    world = family().delete("configmaps", "root", propagation="Orphan").run(0)
    assert names(world) == ["child", "grandchild"]
    assert "ownerReferences" not in world.get("configmaps", "child")["metadata"]


def test_one_owner_that_is_left_keeps_the_dependent() -> None:
    world = World()
    owners = [world.create("configmaps", owned(name)).decode() for name in ("a", "b")]
    world.create("configmaps", owned("child", *owners))
    world.run(0).delete("configmaps", "a").run(0)
    assert names(world) == ["b", "child"]
    (reference,) = world.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert reference["name"] == "b"


def test_an_owner_that_never_was_takes_the_dependent_with_it() -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "none"}}
    world = World()
    world.create("configmaps", owned("child", ghost))
    assert names(world.run(0)) == []


def test_an_owner_of_a_kind_that_is_not_served_is_taken_for_alive() -> None:
    child = owned("child", {"metadata": {"name": "x", "uid": "u"}})
    child["metadata"]["ownerReferences"][0].update(apiVersion="example.com/v1", kind="Robot")
    world = World()
    world.create("configmaps", child)
    assert names(world.run(0)) == ["child"]


def test_every_namespace_has_a_default_service_account() -> None:
    world = World()
    world.create("namespaces", {"metadata": {"name": "team"}})
    world.run(0)
    have = {each["metadata"]["namespace"] for each in world.all("serviceaccounts")}
    assert have == {"default", "kube-system", "kube-public", "kube-node-lease", "team"}
    world.delete("serviceaccounts", "default", "team").run(0)
    assert world.find("serviceaccounts", "default", "team") is not None


def test_a_namespace_is_emptied_before_it_goes() -> None:
    world = World(1)
    world.create("namespaces", {"metadata": {"name": "team"}})
    world.create("configmaps", {"metadata": {"name": "cfg"}}, "team")
    spec = pod("a")
    spec["spec"]["nodeName"] = "node-0"
    world.create("pods", spec, "team")
    world.run(5).delete("namespaces", "team").run(0.5)
    assert world.get("namespaces", "team")["status"]["phase"] == "Terminating"
    assert world.find("configmaps", "cfg", "team") is None
    remaining = world.condition("namespaces", "team", "NamespaceContentRemaining")
    assert "pods. has 1 resource instances" in remaining["message"]
    assert world.run(3).find("namespaces", "team") is None
    assert world.all("serviceaccounts", "team") == []


def test_a_finalizer_holds_its_namespace_and_is_named() -> None:
    world = World()
    world.create("namespaces", {"metadata": {"name": "team"}})
    world.create("configmaps", {"metadata": {"name": "cfg", "finalizers": ["example.com/mine"]}}, "team")
    world.run(0).delete("namespaces", "team").run(100)
    held = world.condition("namespaces", "team", "NamespaceFinalizersRemaining")
    assert "example.com/mine in 1 resource instances" in held["message"]

    def release(obj: Object) -> None:
        del obj["metadata"]["finalizers"]

    assert world.change("configmaps", "cfg", release, "team").run(0).find("namespaces", "team") is None


def test_a_pod_group_stays_until_its_pods_have_ended() -> None:
    world = World(1)
    protected = {"name": "gang", "finalizers": ["scheduling.k8s.io/podgroup-protection"]}
    world.create("podgroups.scheduling.k8s.io", {"metadata": protected})
    for name, run_s in (("a", 10), ("b", None)):
        world.submit(pod(name, run_s=run_s, schedulingGroup={"podGroupName": "gang"}), on="node-0")
    world.run(5).delete("podgroups.scheduling.k8s.io", "gang").run(20)
    assert world.phase("a") == "Succeeded"
    assert world.find("podgroups.scheduling.k8s.io", "gang") is not None
    assert world.delete("pods", "b").run(2).find("podgroups.scheduling.k8s.io", "gang") is None


def test_events_go_after_an_hour() -> None:
    world = World(1).submit(pod("a"), on="node-0").run(5)
    assert "Started" in world.events("a")
    world.run(EVENT_TTL_S).submit(pod("b"), on="node-0").run(5)
    assert world.events("a") == []
    assert "Started" in world.events("b")


def test_what_was_there_before_the_start_is_taken_in() -> None:
    first = World(1).submit(pod("a", run_s=100), on="node-0")  # not yet seen by its cluster
    first.cluster.stop()
    first.cluster = SimulatedCluster(first.registry)
    first.cluster.start()
    assert first.run(2).phase("a") == "Running"
