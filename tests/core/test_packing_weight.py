"""Packing as one score among others: by a profile's setting, a gang's annotation, refused where wrong."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.config import Settings, parse_config
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.placing import Placing
from gangsched.core.framework.interface import CycleState, FloatArray, IntArray
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import ConfigError
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model.objects import Pod
from gangsched.model.stated.packing_weight import PACKING_WEIGHT_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.core.plugins import with_plugins
from tests.support.long import all_but
from tests.support.scenario import Cluster, cluster, gang, with_annotations

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def config(ours: str, *, names: tuple[str, ...] = ("gangsched",)) -> Any:
    """The configuration of a file with these lines of ours."""
    listed = ", ".join(f"{{schedulerName: {name}}}" for name in names)
    text = f"{HEAD}profiles: [{listed}]\n---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n"
    return parse_config(text + ours, source="", plugins=IN_TREE)


def configured(ours: str) -> Cluster:
    def make(settings: Settings) -> Scheduler:
        read = config(ours)
        return Scheduler(build_profiles(read), replace(read.settings, settle_s=settings.settle_s))

    return Cluster(make=make)


def half_loaded(c: Cluster) -> Cluster:
    """Four nodes whose CPU is taken for the most part, and four idle ones with more GPUs."""
    for i in range(8):
        c.node(make_node(f"{'busy' if i < 4 else 'idle'}-{i}", gpus=4 if i < 4 else 8))
        if i < 4:
            load = make_pod(f"load-{i}", gpus=0, cpu="50", scheduler="other")
            c.submit(replace(load, spec=replace(load.spec, node_name=f"busy-{i}")))
    return c


def weighing(pods: list[Pod], weight: object) -> list[Pod]:
    return with_annotations(pods, {PACKING_WEIGHT_KEY: str(weight)})


def test_a_gang_goes_to_the_idle_half_or_is_packed_as_the_setting_says() -> None:
    packed = half_loaded(Cluster()).submit(gang("a", pods=4)).run()
    assert len(set(packed.nodes_of("a"))) == 1
    assert packed.nodes_of("a")[0].startswith("busy")
    spread = half_loaded(configured("packing: {weight: 0}")).submit(gang("a", pods=4)).run()
    assert [name[:4] for name in spread.nodes_of("a")] == ["idle"] * 4
    assert len(set(spread.nodes_of("a"))) == 4
    between = half_loaded(configured("packing: {weight: 1}")).submit(gang("a", pods=4)).run()
    assert [name[:4] for name in between.nodes_of("a")] == ["idle"] * 4
    assert len(set(between.nodes_of("a"))) == 1
    heavy = half_loaded(configured("packing: {weight: 100}")).submit(gang("a", pods=4)).run()
    assert heavy.nodes_of("a") == packed.nodes_of("a")


def test_a_gang_may_say_it_for_itself() -> None:
    c = half_loaded(Cluster()).submit(weighing(gang("a", pods=4), 0), gang("b", pods=4)).run()
    assert len(set(c.nodes_of("a"))) == 4
    assert len(set(c.nodes_of("b"))) == 1
    c = half_loaded(configured("packing: {weight: 0}")).submit(weighing(gang("a", pods=4), 100)).run()
    assert len(set(c.nodes_of("a"))) == 1


def test_a_pod_group_says_it_and_so_do_its_pods_where_it_does_not() -> None:
    label = {"scheduling.x-k8s.io/pod-group": "a"}
    pods = [make_pod(f"a-{k}", labels=label) for k in range(4)]
    for on_object, on_pods, n_nodes in ((None, None, 1), ("0", None, 4), (None, "0", 4), ("100", "0", 1)):
        own = {} if on_object is None else {PACKING_WEIGHT_KEY: on_object}
        c = half_loaded(Cluster())
        c.object("coscheduling", make_pod_group("a", spec={"minMember": 4}, annotations=own))
        c.submit(pods if on_pods is None else weighing(pods, on_pods)).run()
        assert len(set(c.nodes_of("a"))) == n_nodes, (on_object, on_pods)


@pytest.mark.parametrize("said", ["", "-1", "1.5", "much", "100001", "9" * 300])
def test_a_wrong_annotation_is_refused_with_the_reason(said: str) -> None:
    c = cluster().submit(weighing(gang("a", pods=2), said)).run()
    assert c.untouched("a")
    assert f"{PACKING_WEIGHT_KEY}: {said[:80]!r} is not a whole number from 0 to 100000" in c.said("a-0")
    c.five_more_turns_change_nothing()


def test_members_that_say_different_weights_are_refused() -> None:
    pods = gang("a", pods=2)
    c = cluster().submit(weighing(pods[:1], 1), weighing(pods[1:], 2)).run()
    assert c.untouched("a")
    assert f"members disagree on {PACKING_WEIGHT_KEY}: '1' (a-0), '2' (a-1)" in c.said("a-0")


class Likes:
    """A user's own Score: 100 for one node."""

    name = "Likes"

    def __init__(self, node: str) -> None:
        self._node = node

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        return np.array([100.0 * (view.name(int(row)) == self._node) for row in rows])


def test_a_users_own_score_steers_a_gang_where_packing_has_a_weight() -> None:
    for weight, node in ((None, "n0"), (0, "n3"), (100, "n0")):
        c = with_plugins(Likes("n3"), nodes=0)
        for i in range(4):
            c.node(make_node(f"n{i}", gpus=4 if i == 0 else 8))
        pods = gang("a", pods=4)
        c.submit(pods if weight is None else weighing(pods, weight)).run()
        assert set(c.nodes_of("a")) == {node}, weight


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_great_weight_takes_as_few_nodes_and_racks_as_packing(gpus: int) -> None:
    for n_pods in (2, 5, 8):
        packed = cluster(nodes=16, racks=4).submit(gang("a", pods=n_pods, gpus=gpus)).run()
        heavy = cluster(nodes=16, racks=4).submit(weighing(gang("a", pods=n_pods, gpus=gpus), 1000)).run()
        assert _counts(heavy) == _counts(packed), n_pods


@pytest.mark.parametrize("seed", all_but(5, range(30)))
def test_computing_only_what_a_member_changes_decides_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against computing every score again for each member."""
    n_short = 0
    quick = Placing._each_weighed

    def counted(self: Placing, *asked: Any) -> int | None:
        nonlocal n_short
        n_placed = quick(self, *asked)
        n_short += n_placed is not None
        return n_placed

    monkeypatch.setattr(Placing, "_each_weighed", counted)
    found = _random_story(seed)
    assert n_short > 3, f"seed {seed}"
    monkeypatch.setattr(Placing, "_each_weighed", lambda *_: None)
    assert found == _random_story(seed), f"seed {seed}"


def _random_story(seed: int) -> list[tuple[str, str]]:
    """Where the pods of some gangs go, one gang after the other."""
    rng, c = Random(seed), Cluster()
    for i in range(24):
        rack = rng.choice(("", "r0", "r1", "r2"))
        c.node(make_node(f"n{i:02}", gpus=rng.randint(0, 8), cpu=rng.choice((8, 16, 64)), rack=rack))
    for k in range(8):
        pods = gang(f"g{k}", pods=rng.randint(2, 12), gpus=rng.choice((0, 1, 1, 2, 4)), cpu=rng.choice("123"))
        c.submit(weighing(pods, rng.choice((0, 1, 2, 3, 5, 20, 1000)))).run()
    return sorted((pod.metadata.name, pod.spec.node_name) for pod in c.pods.values())


def _counts(c: Cluster) -> tuple[int, int]:
    """(nodes, racks) that the gang is on."""
    return len(set(c.nodes_of("a"))), len({_rack(c, name) for name in c.nodes_of("a")})


def _rack(c: Cluster, node: str) -> str:
    return (c.nodes[node].metadata.labels or {})["topology.kubernetes.io/rack"]


def test_a_profile_may_have_its_own_weight() -> None:
    own = "{schedulerName: b, packing: {weight: 7}}, {schedulerName: c, packing: {}}"
    ours = f"packing: {{weight: 3}}\nprofiles: [{own}]"
    read = config(ours, names=("a", "b", "c"))
    assert read.settings.packing_weights == {"a": 3, "b": 7}
    assert config("").settings.packing_weights == {}


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ("packing: {weight: -1}", "packing.weight: -1 is not within 0..100000"),
        ("packing: {weight: 100001}", "packing.weight: 100001 is not within 0..100000"),
        ("packing: {weight: some}", "packing.weight"),
        ("packing: {wieght: 5}", "packing.wieght"),
        (
            "profiles: [{schedulerName: gangsched, packing: {weight: -5}}]",
            "profiles[0].packing.weight: -5 is not within 0..100000",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(ours: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(ours)
    assert said in str(error.value)
