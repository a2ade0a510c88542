"""Gangs of equal pods that go on where the one before has left off: the same story as without it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.choosing.weighed import WeighedNodes
from gangsched.core.cycle.placing import Placing
from gangsched.core.framework.interface import CycleState, FloatArray, IntArray
from gangsched.core.framework.scores.batching import Batching
from gangsched.core.framework.scores.weighing import Weighing
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Node, Pod, Taint
from gangsched.model.stated.bandwidth import EXPECTED_KEY, REMAINING_KEY, REQUIRED_KEY
from gangsched.model.stated.packing_weight import PACKING_WEIGHT_KEY
from tests.core.plugins import with_plugins
from tests.core.test_preferences import GOOD, like
from tests.plugins.bandwidths import report
from tests.support.long import all_but
from tests.support.scenario import Cluster

_next = Batching.next
_still_holds = Weighing._still_holds
_each_weighed = Placing._each_weighed
_SOFT = Taint("old", "", "PreferNoSchedule")


class Steps:
    """A Score by row: of some nodes more than of others, and less of what is fuller."""

    name = "Steps"
    score_by_row = True
    weight = 5.0

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        own: FloatArray = np.array([20.0, 0.0, 20.0])[rows % 3]
        own[view.free(0)[rows] > 20_000] += 10.0
        return own


def _node(rng: Random, name: str) -> Node:
    return make_node(name, gpus=rng.choice((4, 8, 8)), cpu=rng.choice((32, 64)), rack=f"r{rng.randrange(4)}")


def _gang(rng: Random, kind: int, name: str, weight: int | None, asked: dict[str, str]) -> list[Pod]:
    """Few kinds, so that one comes after its like; two of them have equal pods and differ in number."""
    n, gpus, cpu = ((2, 2, "1"), (4, 1, "2"), (4, 2, "1"), (8, 1, "1"), (2, 0, "3"))[kind]
    more: dict[str, Any] = {"priority": 10} if rng.random() < 0.05 else {}
    more["annotations"] = asked if weight is None else {PACKING_WEIGHT_KEY: str(weight), **asked}
    return [make_pod(f"{name}-{i}", group=name, min_members=n, gpus=gpus, cpu=cpu, **more) for i in range(n)]


class _Story:
    """One seed's: the same events whenever decisions are the same. weight: of packing, for every gang;
    prefers: gangs prefer nodes by a label; by_link: they request bandwidth, which nodes report."""

    def __init__(
        self, seed: int, weight: int | None = None, *, prefers: bool = False, by_link: bool = False
    ) -> None:
        self.weight = weight
        self.prefers = prefers
        self.by_link = by_link
        self.rng = rng = Random(f"batching-{seed}")
        plugins = [Steps()] if rng.random() < 0.5 else []
        self.c = with_plugins(*plugins, nodes=0, settings=Settings(allow_eviction=rng.random() < 0.5))
        self.c.answer = lambda bind: "409" if rng.random() < 0.02 else "ok"
        self.n_made = 0
        # Of nodes that are preferred there are fewer.
        for _ in range((20, 40, 60)[seed % 3] * (3 if prefers else 1)):
            self.c.node(self._node())

    def _node(self) -> Node:
        node = _node(self.rng, self._name("n"))
        node = self._reporting(node) if self.by_link else node
        return self._labelled(node) if self.prefers else node

    def _reporting(self, node: Node) -> Node:
        heard = report(1500, self.rng.randrange(0, 1500, 100), at_s=self.c.now_s)
        annotations = {**(node.metadata.annotations or {}), REMAINING_KEY: heard}
        return replace(node, metadata=replace(node.metadata, annotations=annotations))

    def _labelled(self, node: Node) -> Node:
        labels = {**(node.metadata.labels or {}), GOOD: self.rng.choice(("much", "much", "some", "not"))}
        return replace(node, metadata=replace(node.metadata, labels=labels))

    def _gang(self, kind: int) -> list[Pod]:
        asked = {REQUIRED_KEY: f"{20 * kind}MB/s", EXPECTED_KEY: "200MB/s"} if self.by_link and kind else {}
        pods = _gang(self.rng, kind, self._name("g"), self.weight, asked)
        return like(pods, ("much", 10), ("some", 4)) if self.prefers else pods

    def _name(self, letter: str) -> str:
        self.n_made += 1
        return f"{letter}{self.n_made:04}"

    def told(self) -> list[Any]:
        for _ in range(self.rng.randint(8, 16)):
            self._step()
            self.c.wait(self.rng.choice((0.0, 0.0, 3.0)))
        return self.c.effects

    def _step(self) -> None:
        c, rng = self.c, self.rng
        what = rng.random()
        if what < 0.55:
            kinds = rng.choices(range(5), k=rng.choice((1, 1, 2)))
            for _ in range(rng.randint(2, 9)):
                c.submit(self._gang(rng.choice(kinds)))
            c.run()
        elif what < 0.7:
            gangs = sorted({pod.metadata.name.split("-")[0] for pod in c.pods.values()})
            for name in rng.sample(gangs, min(len(gangs), rng.randint(1, 4))):
                c.delete(
                    *(p.metadata.name for p in list(c.pods.values()) if p.metadata.name.startswith(name))
                )
        elif what < 0.85:
            self._change_node()
        else:
            self._others_pod()

    def _change_node(self) -> None:
        c, rng = self.c, self.rng
        names = sorted(c.nodes)
        node = c.nodes[rng.choice(names)]
        what = rng.randrange(5)
        if what == 0:
            c.node(self._node())
        elif what == 1 and len(names) > 5:
            c.drop_node(node.metadata.name)
        elif what == 2:
            c.node(replace(node, spec=replace(node.spec, unschedulable=not node.spec.unschedulable)))
        elif self.by_link and rng.random() < 0.8:
            c.node(self._reporting(node))
        elif what == 3 and self.prefers and rng.random() < 0.9:
            c.node(self._labelled(node))
        elif what == 3:
            c.node(replace(node, spec=replace(node.spec, taints=None if node.spec.taints else [_SOFT])))
        else:
            cpu = {**(node.status.allocatable or {}), "cpu": rng.choice((16, 32, 64))}
            c.node(replace(node, status=replace(node.status, allocatable=cpu)))

    def _others_pod(self) -> None:
        """Of another scheduler: on a node, or promised one."""
        c, rng = self.c, self.rng
        pod, at = make_pod(self._name("o"), gpus=0, cpu="9", scheduler="other"), rng.choice(sorted(c.nodes))
        if rng.random() < 0.7:
            c.submit(replace(pod, spec=replace(pod.spec, node_name=at)))
        else:
            c.submit(replace(pod, status=replace(pod.status, nominated_node_name=at)))


@pytest.mark.parametrize("prefers", [False, True])
@pytest.mark.parametrize("block", all_but(1, range(6)))
def test_decisions_are_those_of_packing_each_gang_from_nothing(
    block: int, prefers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def counted(self: Batching, *asked: Any, **how: Any) -> int | None:
        row = _next(self, *asked, **how)
        found.extend(() if row is None else (row,))
        return row

    n_binds = 0
    for seed in range(block * 5, block * 5 + 5):
        monkeypatch.setattr(Batching, "next", counted)
        effects = _Story(seed, prefers=prefers).told()
        monkeypatch.setattr(Batching, "next", lambda *_, **__: None)
        assert effects == _Story(seed, prefers=prefers).told(), f"seed {seed}"
        n_binds += len(effects)
    assert n_binds > 300
    assert len(found) > 10


@pytest.mark.parametrize(
    ("weight", "by_link"),
    all_but(1, [(5, False), *product((0, 1, 2, 20, 1000), (False,)), *product((1, 5, 20), (True,))]),
)
def test_weighed_decisions_are_those_of_computing_all_again_for_each_member(
    weight: int, by_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_kept = n_binds = n_quick = 0

    def holds(self: Weighing, *asked: Any) -> bool:
        nonlocal n_kept
        found = _still_holds(self, *asked)
        n_kept += found
        return found

    def counted(quick: Callable[[WeighedNodes], int | None]) -> Callable[[WeighedNodes], int | None]:
        def asked(self: WeighedNodes) -> int | None:
            nonlocal n_quick
            row = quick(self)
            n_quick += row is not None
            return row

        return asked

    monkeypatch.setattr(WeighedNodes, "_best_by_bounds", counted(WeighedNodes._best_by_bounds))
    monkeypatch.setattr(WeighedNodes, "_only_open", counted(WeighedNodes._only_open))
    monkeypatch.setattr(Weighing, "_still_holds", holds)
    for seed in range(6):
        monkeypatch.setattr(Placing, "_each_weighed", _each_weighed)
        effects = _Story(seed, weight, by_link=by_link).told()
        monkeypatch.setattr(Placing, "_each_weighed", lambda *_: None)
        assert effects == _Story(seed, weight, by_link=by_link).told(), f"seed {seed}"
        n_binds += len(effects)
    assert n_binds > 300
    assert n_kept > 10
    assert n_quick > 10 or weight < 5, n_quick


def _equal_nodes(*plugins: object) -> Cluster:
    c = with_plugins(*plugins, nodes=0)
    for i in range(30):
        c.node(make_node(f"n{i:02}", gpus=8))
    return c


def _submit(c: Cluster, *names: str, n: int = 8) -> None:
    for name in names:
        c.submit([make_pod(f"{name}-{i}", group=name, min_members=n) for i in range(n)])
    c.run()


def _node_of(c: Cluster, gang: str) -> str | None:
    return c.pod(f"{gang}-0").spec.node_name


class Asked:
    """A Score by row that notes of how many rows it is asked."""

    name = "Asked"
    score_by_row = True

    def __init__(self) -> None:
        self.n_rows = 0

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        self.n_rows += len(rows)
        return np.full(len(rows), 50.0)


class Talks:
    """A Score that depends on all of the rows: the last of those that it is asked about is the best."""

    name = "Talks"
    weight = 1000.0

    def __init__(self) -> None:
        self.is_silent = True

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        return None if self.is_silent else np.where(np.arange(len(rows)) == len(rows) - 1, 100.0, 0.0)


def test_the_next_gang_of_its_kind_asks_no_plugin_about_nodes_that_have_not_changed() -> None:
    asked = Asked()
    c = _equal_nodes(asked)
    _submit(c, "a", "b", "c")
    assert [_node_of(c, name) for name in "abc"] == ["n00", "n01", "n02"]
    assert asked.n_rows == 30


def test_a_plugin_that_begins_to_tell_nodes_apart_is_heard_at_once() -> None:
    talks = Talks()
    c = _equal_nodes(talks)
    _submit(c, "a", "b")
    talks.is_silent = False
    _submit(c, "c")
    talks.is_silent = True
    _submit(c, "d")
    assert [_node_of(c, name) for name in "abcd"] == ["n00", "n01", "n29", "n02"]


def test_a_node_that_a_gang_has_half_filled_comes_before_the_next_empty_one() -> None:
    c = _equal_nodes()
    _submit(c, "a", "b", "c", n=4)
    assert [_node_of(c, name) for name in "abc"] == ["n00", "n00", "n01"]


def test_of_two_half_filled_nodes_the_better_is_taken() -> None:
    c = _equal_nodes()
    _submit(c, "a", "b", "c", n=4)
    c.delete(*(f"a-{i}" for i in range(4)))
    _submit(c, "d", "e", "f", n=4)
    assert [_node_of(c, name) for name in "def"] == ["n00", "n01", "n02"]


def test_room_that_comes_free_on_a_better_node_is_seen() -> None:
    c = _equal_nodes()
    _submit(c, "a", "b", "c")
    c.delete(*(f"b-{i}" for i in range(8)))
    _submit(c, "d", "e")
    assert [_node_of(c, name) for name in "de"] == ["n01", "n03"]
