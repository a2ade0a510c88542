"""gangsched.io/device-constraints: which devices members get, and what is said when there are none."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from gangsched.config import Settings, default_config
from gangsched.config.profiles import ProfileConfig
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.devices import links as device_topology
from gangsched.model.devices import sets as device_sets
from gangsched.model.devices.annotations import INVENTORY_KEY, Device, inventory_annotation
from gangsched.model.devices.constraints import CONSTRAINTS_KEY, DeviceConstraint
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.model.test_device_sets import constraint as drawn_constraint
from tests.model.test_device_sets import drawn, fits
from tests.support.long import all_but
from tests.support.scenario import Cluster, cluster, with_annotations


def listed(name: str, *devices: Device) -> Node:
    return make_node(
        name, gpus=len(devices), annotations={INVENTORY_KEY: inventory_annotation({GPU: devices})}
    )


def two_sockets(name: str, **more: Any) -> Node:
    """Eight devices, 0 to 3 on one NUMA node, 4 to 7 on the other; pairs are linked."""
    devices = [
        Device(f"{name}-{k}", numa=k // 4, links={f"{name}-{k ^ 1}": "NV18"}, **more) for k in range(8)
    ]
    return listed(name, *devices)


def asking(name: str, gpus: int, *, group: str = "", n: int = 0, **asked: Any) -> Pod:
    text = msgspec.json.encode({GPU: asked}).decode()
    own = {CONSTRAINTS_KEY: text} if asked else {}
    return make_pod(name, gpus=gpus, group=group, min_members=n, annotations=own)


# -- one pod -------------------------------------------------------------------------------------------


def test_the_devices_of_one_numa_node() -> None:
    """Five are free, three of them on one NUMA node, not linked all."""
    c = Cluster().node(two_sockets("n"))
    c.submit(asking("x", 1), asking("y", 2)).run()
    assert (c.numbers("x"), c.numbers("y")) == ([0], [2, 3])
    c.submit(asking("p", 3, sameNUMA=True)).run()
    assert c.numbers("p") == [4, 5, 6]


def test_linked_devices_or_none() -> None:
    c = Cluster().node(two_sockets("n")).submit(asking("x", 1)).run()
    c.submit(asking("p", 2, linked=True), asking("q", 3, linked=True)).run()
    assert c.numbers("p") == [2, 3]
    assert not c.pod("q").spec.node_name
    assert "1 node(s) without 3 free nvidia.com/gpu linked with each other as asked" in c.said("q")


def test_model_and_memory() -> None:
    old = two_sockets("a-old", model="NVIDIA A100", memory_mib=40960)
    new = two_sockets("b-new", model="NVIDIA H100 80GB HBM3", memory_mib=81559)
    c = Cluster().node(old).node(new)
    c.submit(asking("p", 2, model="H100"), asking("q", 2, minMemory="64Gi"), asking("r", 2, model="B200"))
    c.run()
    assert [c.pod(name).spec.node_name for name in "pqr"] == ["b-new", "b-new", ""]
    assert "2 node(s) without 2 free nvidia.com/gpu of model B200" in c.said("r")


def test_a_node_that_lists_nothing_cannot_promise_anything() -> None:
    c = Cluster().node(make_node("n", listed=False)).submit(asking("p", 1, model="H100")).run()
    assert not c.pod("p").spec.node_name
    assert "1 node(s) did not list their nvidia.com/gpu" in c.said("p")
    c.node(two_sockets("n", model="H100")).wait(15.0)
    assert c.pod("p").spec.node_name == "n"


def test_a_healed_device_ends_the_wait() -> None:
    devices = [Device(str(k), numa=k // 2) for k in range(4)]
    sick = [msgspec.structs.replace(d, health="Unhealthy") if d.id in "13" else d for d in devices]
    c = Cluster().node(listed("n", *sick)).submit(asking("p", 2, sameNUMA=True)).run()
    assert not c.pod("p").spec.node_name
    c.node(listed("n", *devices)).wait(15.0)
    assert c.numbers("p") == [0, 1]


# -- what is written wrongly ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not of the form"),
        ('{"nvidia.com/gpu":{"numa":true}}', "what can be asked: sameNUMA"),
        ('{"amd.com/gpu":{"sameNUMA":true}}', "no container asks for amd.com/gpu"),
    ],
)
def test_a_wrong_annotation_is_reported_on_the_pod_and_on_its_gang(text: str, says: str) -> None:
    c = cluster(nodes=1)
    members = [make_pod(f"a-{k}", gpus=1, group="a", min_members=2) for k in range(2)]
    annotations = {**(members[1].metadata.annotations or {}), CONSTRAINTS_KEY: text}
    wrong = msgspec.structs.replace(members[1].metadata, annotations=annotations)
    c.submit(members[0], msgspec.structs.replace(members[1], metadata=wrong)).run()
    for name in ("a-0", "a-1"):
        assert not c.pod(name).spec.node_name
        assert "gangsched.io/device-constraints" in c.said(name)
        assert says in c.said(name)


def test_a_wrong_constraint_may_be_corrected_on_the_pod() -> None:
    c = Cluster().node(two_sockets("n")).submit(asking("p", 2, linked="NVLINK")).run()
    assert "not a kind of path" in c.said("p")
    meta = c.pod("p").metadata
    right = {**(meta.annotations or {}), CONSTRAINTS_KEY: '{"nvidia.com/gpu":{"linked":true}}'}
    c.update(c.pod("p"), metadata=msgspec.structs.replace(meta, annotations=right)).wait(15.0)
    assert c.numbers("p") == [0, 1]


def test_a_profile_without_the_plugin_refuses_such_pods_and_gives_no_names() -> None:
    def make(settings: Settings) -> Scheduler:
        config = default_config(IN_TREE)
        profiles = []
        for profile in config.profiles:
            plugins = {
                point: tuple(name for name in names if "Devices" not in str(name))
                for point, names in profile.plugins.items()
            }
            profiles.append(msgspec.structs.replace(profile, plugins=plugins))
        assert all(isinstance(profile, ProfileConfig) for profile in profiles)
        config = msgspec.structs.replace(config, profiles=tuple(profiles))
        return Scheduler(build_profiles(config), settings, node_capacity=4)

    c = Cluster(make=make).node(make_node("n", gpus=8, listed=False))
    c.submit(asking("p", 1, sameNUMA=True), asking("q", 1)).run()
    assert "the plugin Devices is off in this pod's profile" in c.said("p")
    assert c.pod("q").spec.node_name == "n"


def test_a_constraint_that_is_stated_while_a_bind_is_on_its_way_counts_once_that_has_failed() -> None:
    c = Cluster().node(two_sockets("n"))
    c.answer = lambda bind: "hold"
    c.submit(asking("p", 5)).run()
    [bind] = c.held_binds
    c.update(asking("p", 5, sameNUMA=True)).run()
    c.answer = lambda bind: "ok"
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no")).run().wait(60.0)
    assert not c.pod("p").spec.node_name
    assert "1 node(s) without 5 free nvidia.com/gpu of one NUMA node" in c.said("p")


# -- gangs ---------------------------------------------------------------------------------------------


def test_equal_members_share_one_template_and_others_do_not() -> None:
    c = cluster(nodes=1)
    c.submit(*(asking(f"p{k}", 1, sameNUMA=True) for k in range(3)))
    c.submit(asking("q", 1), asking("r", 1, linked=True))
    pods = c.pod_infos()
    serials = {name: pods[f"uid-d-{name}"].template.serial for name in ("p0", "p1", "p2", "q", "r")}
    assert serials["p0"] == serials["p1"] == serials["p2"]
    assert len(set(serials.values())) == 3


def test_a_member_with_a_wish_finds_its_devices_after_its_siblings_have_chosen() -> None:
    """The leader, placed first, would take what is linked best; the worker needs exactly that."""
    devices = [
        Device("0", links={"1": "NV18"}),
        Device("1", links={"0": "NV18"}),
        Device("2", numa=0),
        Device("3", numa=0),
    ]
    c = Cluster().node(listed("n", *devices))
    c.submit(asking("a-leader", 2, group="a", n=2), asking("a-worker", 2, group="a", n=2, linked=True)).run()
    assert c.numbers("a-worker") == [0, 1]
    assert c.numbers("a-leader") == [2, 3]


def test_who_chose_again_keeps_that_where_another_gang_starts_together_with_its_own() -> None:
    """The other gang's members differ, so they are placed on a copy of what is placed before them."""
    devices = [Device(str(k), links={str(k ^ 1): "NV18"} if k < 2 else {}) for k in range(4)]
    c = Cluster().node(listed("n", *devices))
    leader, worker = asking("a-leader", 2, group="a", n=2), asking("a-worker", 2, group="a", n=2, linked=True)
    others = [make_pod(f"b-{k}", gpus=0, cpu=f"{k}", group="b", min_members=2) for k in (1, 2)]
    c.submit(with_annotations([leader, worker, *others], {GROUPS_KEY: '["a","b"]'})).run()
    assert c.placed("b")
    assert c.numbers("a-worker") == [0, 1]
    assert c.numbers("a-leader") == [2, 3]


Kinds = list[tuple[DeviceConstraint, int, int]]
"""(what is asked, how many devices, how many pods)."""


class OneNode:
    """A node drawn from a seed, and a gang of up to three kinds of members that wants to go there."""

    def __init__(self, seed: int, *, most: int = 8) -> None:
        rng = Random(f"gang-{seed}")
        self.of = of = drawn(rng, rng.randint(3, most))
        n = len(of.numa)
        made = []
        for i in range(n):
            links = {str(j): kind for j in range(n) if (kind := _kind(of.weight[i][j]))}
            made.append(
                Device(str(i), numa=of.numa[i], model=of.models[i], memory_mib=of.memory_mib[i], links=links)
            )
        self.node = listed("n", *made)
        self.kinds: Kinds = [
            (drawn_constraint(rng), rng.randint(1, 3), rng.randint(1, 2)) for _ in range(rng.randint(1, 3))
        ]
        n_all = sum(n for _, _, n in self.kinds)
        self.members = [
            asking(f"a-{k}-{i}", count, group="a", n=n_all, **_written(asked))
            for k, (asked, count, n_pods) in enumerate(self.kinds)
            for i in range(n_pods)
        ]
        self.exists = fits(of, (1 << n) - 1, [(a, count) for a, count, n in self.kinds for _ in range(n)])

    def check_bound(self, c: Cluster) -> None:
        """Every member has what it asked for."""
        for k, (asked, count, _) in enumerate(self.kinds):
            for pod in self.members:
                if pod.metadata.name.startswith(f"a-{k}-"):
                    mask = sum(1 << i for i in (int(d) for d in c.ids(pod.metadata.name)))
                    assert mask.bit_count() == count
                    assert fits(self.of, mask, [(asked, count)])


def _written(asked: DeviceConstraint) -> dict[str, Any]:
    return {
        "sameNUMA": asked.same_numa,
        "linked": _kind(asked.link_weight) or False,
        "model": list(asked.models) or "",
        "minMemory": f"{asked.min_memory_mib}Mi" if asked.min_memory_mib else 0,
    }


@pytest.mark.parametrize("seed", range(120))
def test_a_gang_is_refused_only_when_no_assignment_exists(seed: int) -> None:
    """One node, up to three kinds of members, against every choice of devices there is."""
    case = OneNode(seed)
    c = Cluster().node(case.node).submit(*case.members).run()
    said = "" if case.exists else c.said(case.members[0].metadata.name)
    assert c.placed("a") == case.exists, f"seed {seed}: {said}"
    assert "A placement may exist" not in said
    if case.exists:
        case.check_bound(c)


@pytest.mark.parametrize("block", all_but(1, range(6)))
def test_where_a_search_for_sets_gives_up_it_is_reported_and_nothing_is_called_proved(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its budget: what is bound is right, and what is refused without a "may" does not fit."""
    n_given_up = 0
    for seed in range(block * 100, block * 100 + 100):
        case = OneNode(seed)
        monkeypatch.setattr(device_topology, "_topologies", {})  # what was found with a larger budget
        monkeypatch.setattr(device_sets, "_BUDGET", Random(f"budget-{seed}").choice((0, 1, 3, 8, 20, 50)))
        c = Cluster().node(case.node).submit(*case.members).run()
        if c.placed("a"):
            assert case.exists, f"seed {seed}"
            case.check_bound(c)
            continue
        said = c.said(case.members[0].metadata.name)
        if "A placement may exist" in said:
            n_given_up += 1
            assert "the search for sets of devices was given up on n." in said, f"seed {seed}: {said}"
        else:
            assert not case.exists, f"seed {seed}: {said}"
    assert n_given_up


def _kind(weight: int) -> str:
    """The name of a path, from its weight."""
    return {1: "SYS", 5: "NODE", 10: "PHB", 15: "PXB", 20: "PIX"}.get(
        weight, f"NV{weight - 100}" if weight > 100 else ""
    )


@pytest.mark.parametrize("seed", range(30))
def test_over_several_nodes_too_it_is_refused_only_when_no_assignment_exists(seed: int) -> None:
    """Two or three small nodes, two kinds of members; what is refused is proved, not given up."""
    rng = Random(f"nodes-{seed}")
    tops = [drawn(rng, rng.randint(2, 4)) for _ in range(rng.randint(2, 3))]
    c = Cluster()
    for k, of in enumerate(tops):
        n = len(of.numa)
        c.node(
            listed(
                f"n{k}",
                *(
                    Device(
                        f"n{k}-{i}",
                        numa=of.numa[i],
                        model=of.models[i],
                        memory_mib=of.memory_mib[i],
                        links={f"n{k}-{j}": kind for j in range(n) if (kind := _kind(of.weight[i][j]))},
                    )
                    for i in range(n)
                ),
            )
        )
    kinds = [(drawn_constraint(rng), rng.randint(1, 2)) for _ in range(2)]
    pods = [kinds[rng.randrange(2)] for _ in range(rng.randint(2, 4))]
    members = []
    for k, (asked, count) in enumerate(pods):
        members.append(asking(f"a-{k}", count, group="a", n=len(pods), **_written(asked)))
    c.submit(*members).run()
    exists = any(
        all(
            fits(of, (1 << len(of.numa)) - 1, [pod for pod, at in zip(pods, where, strict=True) if at == k])
            for k, of in enumerate(tops)
        )
        for where in product(range(len(tops)), repeat=len(pods))
    )
    assert c.placed("a") == exists, f"seed {seed}: {c.said('a-0')}"
