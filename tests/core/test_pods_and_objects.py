"""What the view says of pods and of other objects: counts per node, a trial's own, kinds that are told."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.extension_points import ExtensionPoints
from gangsched.core.framework.interface import SUCCESS, CycleState, Status
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.cluster_events import Change
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.affinity_terms import AffinityKind
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.kube.watch.decode import objects
from gangsched.lab.sim.objects import at
from gangsched.model import events as ev
from gangsched.model.objects import LabelSelector, PlainObject, Pod
from gangsched.model.selectors import EVERYTHING, PodTerm, requirements_of, selector_of
from gangsched.model.workloads import Namespace, Service
from gangsched.plugins.priority_sort import PrioritySort
from gangsched.plugins.resources.devices import Devices
from tests.plugins.build import Cluster as Nodes
from tests.plugins.build import node, pod
from tests.support.scenario import Cluster


def labelled(name: str, namespace: str = "default", *, spec: Any = None, **labels: str) -> Pod:
    one = pod(name, **(spec or {}))
    meta = msgspec.structs.replace(one.metadata, labels=labels or None, namespace=namespace)
    return msgspec.structs.replace(one, metadata=meta)


def term(*namespaces: str, skip_leaving: bool = False, everywhere: bool = False, **labels: str) -> PodTerm:
    selector = EVERYTHING.with_requirements(requirements_of(labels))
    spaces = EVERYTHING if everywhere else None
    return PodTerm(namespaces or ("default",), spaces, selector, skip_leaving)


def using_volumes(c: Nodes) -> list[PodInfo]:
    return [info for info in c.cache.pods.values() if info.row >= 0 and info.template.volumes]


def counts(c: Nodes, one: PodTerm, view: ClusterView | None = None) -> list[int]:
    assert not list(c.cache.index.recount(using_volumes(c)))
    return [int(n) for n in (view or c.view).matching(one)]


def test_a_term_is_counted_and_kept_up() -> None:
    c = Nodes(node("a"), node("b"))
    web = c.run(labelled("1", app="web"), on="a")
    c.run(labelled("2", app="db"), on="a")
    c.run(labelled("3", "other", app="web"), on="b")
    assert counts(c, term(app="web")) == [1, 0]
    assert counts(c, term("default", "other", app="web")) == [1, 1]
    assert counts(c, term()) == [2, 0]
    c.run(labelled("4", app="web"), on="b")
    c.cache.forget(web)
    assert counts(c, term(app="web")) == [0, 1]
    assert counts(c, term(tier="x")) == [0, 0]
    c.run(labelled("5", app="web", tier="x"), on="a")
    assert counts(c, term(tier="x")) == [1, 0]


def test_a_pod_that_changes_is_counted_as_it_is() -> None:
    c = Nodes(node("a"))
    info = c.run(labelled("1", app="web"), on="a")
    living = term(skip_leaving=True, app="web")
    assert counts(c, term(app="web")) == counts(c, living) == [1]
    leaving = msgspec.structs.replace(info.pod.metadata, deletion_timestamp=at(1.0))
    c.cache.renew(info, msgspec.structs.replace(info.pod, metadata=leaving))
    assert (counts(c, term(app="web")), counts(c, living)) == ([1], [0])
    c.cache.renew(info, labelled("1", app="db"))
    assert counts(c, term(app="web")) == [0]
    assert [change.what for change in c.cache.index.changes] == [Change.POD_LABELS] * 2


def test_namespaces_are_chosen_by_their_labels() -> None:
    c = Nodes(node("a"))
    c.run(labelled("1", "blue"), on="a")
    chosen = PodTerm((), selector_of(LabelSelector({"team": "x"})), EVERYTHING)
    assert counts(c, chosen) == [0]
    c.cache.objects.put("namespaces", msgspec.convert({"metadata": named("blue", team="x")}, Namespace))
    assert counts(c, chosen) == [1]
    assert counts(c, term("nobody", everywhere=True)) == [1]


def test_more_nodes_than_there_were() -> None:
    c = Nodes(node("n0"))
    c.run(labelled("p0", app="web"), on="n0")
    assert counts(c, term(app="web")) == [1]
    for i in range(1, 200):
        c.put(node(f"n{i}"))
        c.run(labelled(f"p{i}", app="web"), on=f"n{i}")
    assert counts(c, term(app="web")) == [1] * 200


def test_labels_are_of_the_template_only_where_a_selector_looks_at_them() -> None:
    c = Nodes(node("a"))
    one, other = labelled("1", app="web", i="1"), labelled("2", app="web", i="2")
    assert c.template(one) is c.template(other)
    assert c.template(one).labels == {}
    info = PodInfo(one, c.template(one), one.metadata.uid)
    c.cache.join(info)
    c.view.matching(term(i="1"))
    assert c.template(one) is not c.template(other)
    assert info.template is not c.template(one)
    c.cache.settle(0.0)
    assert info.template is c.template(one)
    assert info.template.labels == {"i": "1"}


AGAINST_WEB = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}


def test_what_pods_say_of_others_is_found_by_those_it_means() -> None:
    c = Nodes(node("a"), node("b"))
    shy = c.run(labelled("shy", spec=AGAINST_WEB), on="b")
    web, db = c.template(labelled("w", app="web")), c.template(labelled("d", app="db"))
    [((wish, said), rows)] = c.view.carried_against(web)
    assert (wish, said.topology_key, dict(rows)) == (AffinityKind.ANTI_REQUIRED, "zone", {1: 1})
    assert not c.view.carried_against(db)
    trial = Trial(c.view)
    trial.place(0, shy.template, 2)
    assert dict(next(iter(trial.carried_against(web)))[1]) == {0: 2, 1: 1}
    trial.remove(shy)
    assert dict(next(iter(trial.carried_against(web)))[1]) == {0: 2}
    c.cache.forget(shy)
    assert not c.view.carried_against(web)


def test_a_trial_counts_what_it_places_and_takes_away() -> None:
    has = {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"}
    c = Nodes(node("a", allocatable=has, inventory={"nvidia.com/gpu": ["g0", "g1!"]}), node("b"))
    spec = {"hostNetwork": True}
    one = labelled("1", app="web", spec=spec)
    info = PodInfo(one, c.template(one), one.metadata.uid)
    c.cache.join(info)
    c.cache.place(info, "a", {"main": {"nvidia.com/gpu": ("g0", "g1")}})
    cpu = c.view.table.column("cpu")
    assert counts(c, term(app="web")) == [1, 0]
    c.cache.settle(0.0)
    before = c.view.free(cpu).copy()
    trial = Trial(c.view)
    other = c.template(labelled("2", app="web", spec={"containers": [CPU_1]}))
    trial.place(1, other, 3)
    assert counts(c, term(app="web"), trial) == [1, 3]
    trial.remove(info)
    trial.remove(info)
    trial.place(0, other)
    assert counts(c, term(app="web"), trial) == [1, 3]
    assert list(trial.pods_on(0)) == []
    assert list(trial.placed) == [(1, other, 3), (0, other, 1)]
    assert [int(n) for n in trial.free(cpu) - before] == [-1000, -3000]
    free = trial.device_free("nvidia.com/gpu")
    assert free is not None
    assert (int(free[0]), trial.device_mask(0, "nvidia.com/gpu")) == (1, 0b01), "g1 is not healthy"
    assert counts(c, term(app="web")) == [1, 0]
    assert list(c.view.pods_on(0)) == [info]
    assert not c.view.placed


def test_a_device_that_two_pods_hold_is_free_once_when_both_are_taken_away() -> None:
    has = {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"}
    c = Nodes(node("a", allocatable=has, inventory={"nvidia.com/gpu": ["g0", "g1"]}))
    thieves = []
    for name in ("1", "2"):
        pod = labelled(name)
        info = PodInfo(pod, c.template(pod), pod.metadata.uid)
        c.cache.join(info)
        c.cache.place(info, "a", {"main": {"nvidia.com/gpu": ("g0",)}})
        thieves.append(info)
    trial = Trial(c.view)
    trial.remove(*thieves)
    free = trial.device_free("nvidia.com/gpu")
    assert free is not None
    assert (int(free[0]), trial.device_mask(0, "nvidia.com/gpu")) == (2, 0b11)


CPU_1 = {"name": "main", "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_the_sum_over_the_pods_whatever_happens(seed: int) -> None:
    rng = Random(seed)
    c = Nodes(*(node(f"n{i}") for i in range(3)))
    infos: list[PodInfo] = []
    for step in range(200):
        labels = {key: rng.choice("xy") for key in rng.sample(["a", "b", "c"], rng.randint(0, 3))}
        name = f"p{step}"
        what = rng.choice(("run", "run", "forget", "renew", "ask", "node"))
        if what == "run":
            spec = rng.choice(({}, AGAINST_WEB))
            infos.append(c.run(labelled(name, rng.choice(("default", "x")), spec=spec, **labels), on=on(rng)))
        elif what == "forget" and infos:
            info = infos.pop(rng.randrange(len(infos)))
            c.cache.forget(info)
            c.cache.remove_pod(info.uid)
        elif what == "renew" and infos:
            info = rng.choice(infos)
            c.cache.renew(info, labelled(info.pod.metadata.name, info.pod.metadata.namespace, **labels))
        elif what == "node":
            c.cache.remove_node("n0")
            c.put(node("n0"))
        else:
            c.view.matching(
                PodTerm(("default",), None, EVERYTHING.with_requirements(requirements_of(labels)))
            )
            c.view.carried_against(c.template(labelled(name, app="web")))
        assert not list(c.cache.index.recount(using_volumes(c))), f"seed {seed}, step {step}: {what}"


def on(rng: Random) -> str:
    return f"n{rng.randrange(3)}"


# -- objects of other kinds ------------------------------------------------------------------------------


def named(name: str, namespace: str = "", **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}


class Locked:
    """No pod starts while there is a lock."""

    name = "Locked"
    watches = ("locks.example.com",)
    cured_by = Change.OBJECT

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        locks = view.objects("locks.example.com")
        return Status.unschedulable(f"{len(locks)} locks") if locks else SUCCESS

    def cures(self, change: Any, template: PodTemplate | None, view: ClusterView) -> bool:
        return bool(change.kind == "locks.example.com")


def locked() -> Cluster:
    profiles = {
        "gangsched": Profile(
            "gangsched",
            ExtensionPoints(queue_sort=PrioritySort(), pre_filter=(Locked(),), capacities=(Devices(),)),
        )
    }
    return Cluster(make=lambda settings: Scheduler(profiles, settings), synced=False)


def lock(version: str) -> PlainObject:
    return PlainObject({"metadata": {**named("one"), "resourceVersion": version}})


def test_a_kind_that_a_plugin_watches_is_waited_for_and_cures() -> None:
    from gangsched.lab.sim.objects import make_node, make_pod

    c = locked()
    assert c.scheduler.watches == ("locks.example.com",)
    c.node(make_node("n0")).submit(make_pod("p"))
    c.tell(*(ev.KindSynced(kind) for kind in c.scheduler.kinds if kind != "locks.example.com"))
    assert not c.scheduler.is_synced
    c.tell(ev.ObjectPut("locks.example.com", lock("1")), ev.KindSynced("locks.example.com")).run()
    assert c.state("p") == "unschedulable"
    c.wait(2.0)
    assert c.state("p") == "unschedulable", "its backoff is over, and nothing has changed"
    c.tell(ev.ObjectGone("locks.example.com", "", "one", "another-uid")).run()
    assert c.state("p") == "unschedulable"
    c.tell(ev.ObjectGone("locks.example.com", "", "one", "uid-one")).run()
    assert c.state("p") == "bound"


def test_an_object_that_says_nothing_new_changes_nothing() -> None:
    store = Nodes().cache.objects
    assert store.put("locks.example.com", lock("5"))
    assert not store.put("locks.example.com", lock("4")), "older"
    assert not store.put("locks.example.com", lock("6")), "only its version"
    assert store.revision("locks.example.com") == 1
    service = {"metadata": named("web", "default"), "spec": {"selector": {"app": "web"}}}
    assert store.put("services", msgspec.convert(service, Service))
    assert list(store.objects("services")) == [("default", "web")]
    assert not store.objects("nothing")


def test_counting_is_asleep_until_somebody_asks() -> None:
    c = Nodes(node("a"))
    c.run(labelled("1", app="web"), on="a")
    assert not c.cache.index.is_awake
    assert not c.cache.index.changes
    np.testing.assert_array_equal(c.view.matching(term(app="web")), [1])
    assert c.cache.index.is_awake


def test_only_what_groups_pods_for_placing_tells_them_apart() -> None:
    c = Cluster()
    spec = {"selector": {"matchLabels": {"tier": "x"}}}
    for kind in ("poddisruptionbudgets.policy", "persistentvolumeclaims"):
        raw = msgspec.json.encode({"metadata": named("one", "default"), "spec": spec})
        c.tell(ev.ObjectPut(kind, objects(kind).decode_object(raw)))
        assert "tier" not in c.scheduler.shared.cache.index.selected.keys
    raw = msgspec.json.encode({"metadata": named("one", "default"), "spec": {"selector": {"tier": "x"}}})
    c.tell(ev.ObjectPut("services", objects("services").decode_object(raw)))
    assert "tier" in c.scheduler.shared.cache.index.selected.keys
