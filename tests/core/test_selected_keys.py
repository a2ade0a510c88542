"""Labels that selectors look at: named and forgotten, what a new one costs, and how fast many may come."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.core.cache.pods import index as pod_index
from gangsched.core.cache.pods import selected_keys
from gangsched.core.cache.pods.selected_keys import SelectedKeys
from gangsched.lab.sim.objects import STRANGER, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.workloads import PodDisruptionBudget, Service
from gangsched.plugins.neighbours.selecting_objects import selector_for
from tests.core.calls import n_calls
from tests.support.scenario import Cluster, cluster, gang

HOST = "kubernetes.io/hostname"


def labelled(name: str, labels: Mapping[str, str], *, against: str = "", **more: Any) -> Pod:
    """A pod with labels; `against`: not on a node with a pod that has this label."""
    pod = make_pod(name, labels=labels, gpus=1, **more)
    if not against:
        return pod
    term = {"labelSelector": {"matchExpressions": [{"key": against, "operator": "Exists"}]}}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "topologyKey": HOST}]}
    spec = msgspec.to_builtins(pod.spec) | {"affinity": {"podAntiAffinity": rules}}
    return replace(pod, spec=msgspec.convert(spec, type(pod.spec)))


def service(name: str, selector: Mapping[str, str], *, namespace: str = "d", version: int = 1) -> Service:
    meta = {"name": name, "namespace": namespace, "uid": f"u-{name}", "resourceVersion": str(version)}
    return msgspec.convert({"metadata": meta, "spec": {"selector": dict(selector)}}, Service)


def put(c: Cluster, *services: Service) -> Cluster:
    return c.tell(*(ev.ObjectPut("services", one) for one in services))


def gone(c: Cluster, *services: Service) -> Cluster:
    metas = [one.metadata for one in services]
    return c.tell(*(ev.ObjectGone("services", m.namespace, m.name, m.uid) for m in metas))


def hosts(n: int) -> Cluster:
    """n nodes that are each a domain of their own."""
    c = cluster(nodes=n)
    for name, node in list(c.nodes.items()):
        c.node(replace(node, metadata=replace(node.metadata, labels={HOST: name})))
    return c


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> int:
    """Few pods may be told apart in a second."""
    monkeypatch.setattr(selected_keys, "PODS_A_SECOND", 20)
    return 20


def selected_of(c: Cluster) -> SelectedKeys:
    return c.scheduler.shared.cache.index.selected


def keys_of(c: Cluster) -> set[str]:
    return set(selected_of(c).keys)


def test_keys_that_nobody_names_any_more_are_forgotten_but_for_the_last_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were kept for ever. A term that is still counted, one of the last few, names its keys too."""
    monkeypatch.setattr(pod_index, "_MAX_KEPT_TERMS", 10)
    c = cluster()
    services = [service(f"s{i}", {f"k{i}": "x"}) for i in range(600)]
    put(c, *services)
    assert len(keys_of(c)) == 600
    gone(c, *services)
    assert keys_of(c) == {f"k{i}" for i in range(600 - selected_keys.MAX_IDLE, 600)}
    for i in range(400):
        c.submit(labelled(f"p{i}", {}, against=f"q{i}")).run().delete(f"p{i}")
    assert len(keys_of(c)) == selected_keys.MAX_IDLE + 10


def test_a_service_that_selects_by_something_else_names_the_old_key_no_more() -> None:
    c = put(cluster(), service("s", {"a": "x"}), service("t", {"a": "y"}))
    put(c, service("s", {"b": "x"}, version=2))
    names = selected_of(c)
    assert keys_of(c) == {"a", "b"}
    assert names._n_names == {"a": 1, "b": 1}


def calls_of_a_new_key(n_bound: int) -> int:
    """A cluster of so many bound pods of which three have the label that is new to selectors."""
    c = hosts(40)
    c.submit(labelled("first", {}, against="app")).run()  # pods are counted from here on
    for i in range(n_bound):
        c.submit(labelled(f"p{i}", {"app": str(i % 7)} | ({"rare": "x"} if i < 3 else {}))).run()
    pod = c.store(labelled("new", {}, against="rare"))

    def turn() -> None:
        c.scheduler.handle([ev.PodUpdated(pod)], c.now_s)
        c.scheduler.schedule_next(c.now_s)

    n = n_calls(turn)
    taken = {one.spec.node_name for one in c.pods.values() if "rare" in (one.metadata.labels or {})}
    assert c.pod_info(pod.metadata.name).node_name not in ("", *taken)
    return n


def test_a_new_key_costs_the_pods_that_have_it_and_no_others() -> None:
    """All pods were counted again for it."""
    assert calls_of_a_new_key(240) < calls_of_a_new_key(60) * 1.2


def test_many_new_keys_are_taken_in_over_several_turns(slow: int) -> None:
    """100 services come at once, each with a label of its own that 10 pods have."""
    c = hosts(2)
    labels = {f"k{i}": "x" for i in range(100)}
    c.submit(*(labelled(f"p{i}", labels) for i in range(10))).run()
    c.submit(labelled("asks", {}, against="k0")).run()
    selected = selected_of(c)
    before = selected.n_added
    put(c, *(service(f"s{i}", {f"k{i}": "x"}) for i in range(1, 100)))
    assert selected.n_added - before <= 3
    n_turns = 0
    while selected.waiting:
        now = selected.n_added
        c.wait(1.0).tell()
        assert selected.n_added - now <= 3, "20 pods a second, 11 a key; the last may exceed it"
        n_turns += 1
    assert n_turns > 30
    assert len(keys_of(c)) == 100


def test_a_pod_waits_for_its_new_label_with_the_reason_while_others_go_on(slow: int) -> None:
    c = hosts(20)
    c.submit(*(labelled(f"p{i}", {f"k{j}": "x" for j in range(5)}) for i in range(12))).run()
    c.submit(labelled("asks", {}, against="k0")).run()
    put(c, *(service(f"s{i}", {f"k{i}": "x"}) for i in range(1, 5)))
    waiting = next(iter(selected_of(c).waiting))
    c.submit(labelled("has", {waiting: "x"}), labelled("looks", {}, against=waiting), gang("a", pods=2)).run()
    assert c.placed("a")
    for name in ("has", "looks"):
        assert not c.pod(name).spec.node_name
        assert c.said(name).startswith(
            f"pods are still being indexed by labels that selectors have only begun to use ({waiting})"
        )
    for _ in range(20):
        c.wait(1.0).tell().run()
    assert c.pod("has").spec.node_name
    on = {p.spec.node_name for p in c.pods.values() if waiting in (p.metadata.labels or {})}
    assert c.pod("looks").spec.node_name not in on


def test_what_a_bound_stranger_is_against_holds_although_its_key_came_too_fast(slow: int) -> None:
    c = hosts(2)
    c.submit(
        labelled("asks", {}, against="k0"), *(labelled(f"p{i}", {"k1": "x", "k2": "x"}) for i in range(9))
    )
    c.run()
    rest = [f"s{i}" for i in range(8)]
    put(c, *(service(name, {f"k{1 + i % 2}": "x"}) for i, name in enumerate(rest)))
    c.submit(*(labelled(f"q{i}", {"k3": "x", "k4": "y"}) for i in range(2))).run()
    put(c, service("t", {"k4": "y"}))
    stranger = labelled("theirs", {}, against="late", scheduler=STRANGER)
    c.update(replace(stranger, spec=replace(stranger.spec, node_name="n0")))
    c.submit(*(labelled(f"late-{i}", {"late": "x"}) for i in range(3))).run()
    for _ in range(20):
        c.wait(1.0).tell().run()
    assert {c.pod(f"late-{i}").spec.node_name for i in range(3)} == {"n1"}


def test_taking_a_key_away_and_naming_it_again_makes_no_work() -> None:
    c = put(cluster(), service("s", {"app": "x"}))
    before = selected_of(c).n_added
    for i in range(50):
        gone(c, service("s", {"app": "x"}, version=i + 1))
        put(c, service("s", {"app": "x"}, version=i + 2))
    assert selected_of(c).n_added == before


def test_pods_that_were_promised_a_node_are_distinguished_when_they_are_given_back() -> None:
    """They kept a template that knew nothing of the label, so that a pod that is against it was not seen."""
    c = hosts(2)
    c.submit(labelled("asks", {}, against="k0")).run()
    other = next(name for name in c.nodes if name != c.pod("asks").spec.node_name)
    c.drop_node(other)
    c.answer = lambda bind: "hold"
    c.submit(labelled("late", {"k1": "x"})).run()
    c.answer = lambda bind: "ok"
    (bind,) = c.held_binds
    theirs = labelled("theirs", {}, against="k1", scheduler=STRANGER)
    c.update(replace(theirs, spec=replace(theirs.spec, node_name=bind.node)))
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 500, "InternalError", "no"))
    c.wait(5.0).run()
    assert not c.pod("late").spec.node_name
    assert "anti-affinity" in c.said("late")


def test_services_and_budgets_of_other_namespaces_cost_a_decision_nothing() -> None:
    c = put(cluster(), service("own", {"app": "x"}))
    template = c.scheduler.shared.cache.template_of(labelled("p", {"app": "x"}))
    before = n_calls(lambda: selector_for(template, c.view()))
    put(c, *(service(f"s{i}", {"app": "x"}, namespace="other") for i in range(500)))
    assert n_calls(lambda: selector_for(template, c.view())) == before
    meta = {"name": "b", "namespace": "other", "uid": "u", "resourceVersion": "1"}
    budget = msgspec.convert({"metadata": meta, "spec": {}}, PodDisruptionBudget)
    c.tell(ev.ObjectPut("poddisruptionbudgets.policy", budget))
    assert list(c.view().objects_in("poddisruptionbudgets.policy", "other")) == ["b"]
    assert not c.view().objects_in("poddisruptionbudgets.policy", "d")


@pytest.mark.parametrize("more", [pod_index._LOG_MORE, 3], ids=["", "often rewritten"])
@pytest.mark.parametrize("seed", range(5))
def test_names_and_counts_agree_whatever_happens(
    seed: int, more: int, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step ends with validate(), which counts everything again. The term that was asked about when the
    log of pods was rewritten kept counting by the old one."""
    monkeypatch.setattr(pod_index, "_LOG_MORE", more)
    monkeypatch.setattr(pod_index, "_LOG_FACTOR", 1 if more == 3 else pod_index._LOG_FACTOR)
    n_rewritten = 0
    write = pod_index.PodIndex._write_log

    def rewrite(index: pod_index.PodIndex) -> None:
        nonlocal n_rewritten
        n_rewritten += 1
        write(index)

    monkeypatch.setattr(pod_index.PodIndex, "_write_log", rewrite)
    rng = Random(seed)
    c = hosts(4)
    keys = [f"k{i}" for i in range(8)]
    version = 1
    for step in range(150):
        what = rng.choice(("pod", "pod", "service", "gone", "delete", "relabel", "wait"))
        pods = sorted(pod.metadata.name for pod in c.pods.values())
        labels = dict.fromkeys(rng.sample(keys, rng.randint(0, 4)), "x")
        version += 1
        if what == "pod":
            c.submit(labelled(f"p{step}", labels, against=rng.choice(("", *keys))))
        elif what == "service":
            put(c, service(f"s{rng.randrange(6)}", labels, version=version))
        elif what == "gone":
            gone(c, service(f"s{rng.randrange(6)}", {}))
        elif what == "delete" and pods:
            c.delete(rng.choice(pods))
        elif what == "relabel" and pods:
            pod = c.pod(rng.choice(pods))
            c.update(pod, metadata=replace(pod.metadata, labels=labels))
        else:
            c.wait(rng.random())
        c.run()
    assert (n_rewritten > 10) is (more == 3)
